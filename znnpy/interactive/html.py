"""What results show of themselves in a notebook: tables and pictures as HTML that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from znnpy.pictures.panels import write_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table; the first cell of each row is its name."""
    names = Markup("").join(Markup("<th>{}</th>").format(name) for name in head)
    lines = Markup("").join(_row(row) for row in rows)
    text = Markup("<table><caption>{}</caption><tr>{}</tr>{}</table>")
    return text.format(caption, names, lines)


def _row(cells: Sequence[str]) -> Markup:
    first, *others = cells
    values = Markup("").join(
        Markup('<td style="text-align: right">{}</td>').format(cell) for cell in others
    )
    return Markup('<tr><th style="text-align: left">{}</th>{}</tr>').format(first, values)


def picture(figure: Figure, words: str) -> Markup:
    """Return a figure of matplotlib as an image; `words` say what it shows to those who cannot see it."""
    file = BytesIO()
    write_png(figure, file)
    data = base64.b64encode(file.getvalue()).decode()
    text = Markup('<img alt="{}" style="max-width: 100%" src="data:image/png;base64,{}">')
    return text.format(words, data)


def line(text: str) -> Markup:
    """Return a line of text."""
    return Markup("<p>{}</p>").format(escape(text))
