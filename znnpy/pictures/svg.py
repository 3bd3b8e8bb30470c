"""Builds SVG: elements with x in per cent and y in pixels, so that text keeps its size at any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from markupsafe import Markup, escape


def element(tag: str, *inside: str | Markup, **attributes: object) -> Markup:
    """Return an element; in names of attributes `_` stands for `-`, and a last one is dropped (`class_`)."""
    # `class` is a word of Python.
    words = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    body = "".join(str(escape(piece)) for piece in inside)
    return Markup(f"<{tag}{words}>{body}</{tag}>" if body else f"<{tag}{words}/>")


def _short(value: object) -> object:
    # Four digits are a tenth of a pixel on any screen; files stay small.
    return f"{value:.4g}" if isinstance(value, float) else value


def percent(value: float) -> str:
    """Return an x coordinate."""
    return f"{100 * value:.3f}".rstrip("0").rstrip(".") + "%"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """Return a line of text; x from 0 to 1."""
    return element("text", words, x=percent(x), y=y, class_=class_ or None, text_anchor=anchor)


def bar(x: float, width: float, y: float, height: float, class_: str, title: str) -> Markup:
    """Return a rectangle with a tooltip; x and width from 0 to 1."""
    return element(
        "rect",
        element("title", title),
        x=percent(x),
        width=percent(max(width, 0.0)),
        y=y,
        height=height,
        class_=class_,
    )


def rule(x: float, y0: float, y1: float, class_: str = "grid") -> Markup:
    """Return a vertical line."""
    return element("line", x1=percent(x), x2=percent(x), y1=y0, y2=y1, class_=class_)


def level(y: float, class_: str = "grid") -> Markup:
    """Return a horizontal line across everything."""
    return element("line", x1="0%", x2="100%", y1=y, y2=y, class_=class_)


def figure(height: float, parts: Iterable[Markup], label: str) -> Markup:
    """Return a picture as wide as its place; `label` says what it shows to those who cannot see it."""
    return element("svg", *parts, width="100%", height=height, role="img", aria_label=label)


def curve(points: Sequence[tuple[float, float]], class_: str, tag: str = "polyline") -> Markup:
    """Return a line (or `polygon`) through points from 0 to 1, y upwards; for use in `stretched`."""
    # In a box of 1000 x 1000, which is stretched to the picture's size.
    places = " ".join(f"{1000 * x:.1f},{1000 * (1 - y):.1f}" for x, y in points)
    # Or lines would be stretched, too.
    return element(tag, points=places, class_=class_, vector_effect="non-scaling-stroke")


def stretched(y: float, height: float, parts: Iterable[Markup]) -> Markup:
    """Return a box as wide as the picture, in which curves lie."""
    return element(
        "svg",
        *parts,
        x="0",
        y=y,
        width="100%",
        height=height,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
    )


def round_steps(high: float, most: int = 5) -> list[float]:
    """Return round numbers from 0 to about `high`, for an axis."""
    if high <= 0:
        return [0.0]
    rough = high / most
    unit = 10.0 ** floor(log10(rough))
    # 1, 2 and 5 times a power of ten; 0.999 forgives what rounding adds.
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    return [step * index for index in range(ceil(high / step * 0.999) + 1)]


def seconds(value: float) -> str:
    """Return a time as text: s, ms or us with three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"
