"""The evaluations of a run, as a list that draws itself in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from znnpy.evaluation.score_rows import score_rows
from znnpy.evaluation.volume import Evaluation
from znnpy.interactive import html
from znnpy.pictures.panels import figure_of, slice_panels
from znnpy.train.final_evaluation import is_drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Evaluations(list[Evaluation]):
    """An evaluation for each volume and output; `evaluation.scores["network"].average_precision` and such."""

    def figure(self, z: int | None = None) -> Figure:
        """Return a figure of matplotlib of one slice of the first: raw image, labels, prediction, objects."""
        first = self[0]
        known = first.known
        panels = slice_panels(
            known.raw, known.target, first.found, first.objects, z=z, span=first.span
        )
        index = len(known.raw) // 2 if z is None else z
        return figure_of(panels, f"{Path(first.volume).name}, slice z = {index}")

    def _repr_html_(self) -> str:
        shown = Markup("").join(_table(evaluation) for evaluation in self)
        if self and is_drawn(self[0]):
            shown += html.picture(self.figure(), "raw image, labels, prediction, objects")
        return str(shown)


def _table(evaluation: Evaluation) -> Markup:
    caption = f"{evaluation.volume} ({evaluation.output}), loss {evaluation.loss:.4f}"
    rows = [[title, *texts] for title, texts in score_rows(evaluation.scores)]
    return html.table(caption, ["", *evaluation.scores], rows)
