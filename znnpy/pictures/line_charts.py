"""Charts of curves over iterations or rates, as SVG that fits any width: light or dark by the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from znnpy.pictures import svg

HEIGHT, AXIS, EDGE = 170.0, 20, 12.0  # pixels: of the curves, of the axis below, free above
DECADES = 1.5  # that positive values span, from which on their scale is logarithmic

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve: `colour` is one of the palette, `faint` lies behind others, `dots` marks each point."""

    name: str
    colour: str
    points: Sequence[Point]
    faint: bool = False
    dots: bool = False
    dashed: bool = False


def line_chart(
    lines: Sequence[Line],
    label: str,
    *,
    height: float = HEIGHT,
    span: tuple[float, float] | None = None,
    rates: bool = False,
) -> Markup:
    """Return a chart of lines over iterations; nothing of lines without a point. `label` says what it shows.

    `rates`: over learning rates, on a logarithmic scale.

    Values stand left of the picture, for which its place leaves room (page.css: `.chart`). `span`: the values that are
    shown, at least; None: those that there are.
    """
    shown = [line for line in lines if line.points]
    points = [point for line in shown for point in line.points]
    if not points:
        return Markup()
    places = [x for x, _ in points]
    across = _scale(places, True) if rates else _iterations(places)
    up = _scale_of(shown, span)
    drawn = [*_level_marks(up, height), *_iteration_marks(across, height)]
    behind = sorted(shown, key=lambda it: not it.faint)
    curves = [_curve(line, across, up) for line in behind if len(line.points) > 1]
    if curves:
        drawn.append(svg.stretched(EDGE, height - EDGE, curves))
    for line in shown:
        if line.dots or len(line.points) == 1:
            drawn += [_dot(line, point, across, up, height) for point in line.points]
    return svg.figure(height + AXIS, drawn, label)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    log: bool
    least: float = 0.0  # between two marks

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if self.log:
            return (log10(max(value, 1e-300)) - log10(self.low)) / (
                log10(self.high) - log10(self.low)
            )
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Return round values within."""
        if self.log:
            low, high = log10(self.low), log10(self.high)
            decades = [10.0**n for n in range(ceil(low - 1e-9), floor(high + 1e-9) + 1)]
            return decades[:: -(-len(decades) // 5)] or [self.low, self.high]
        rough = max((self.high - self.low) / 4, self.least)
        unit = 10.0 ** floor(log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough * 0.999)
        first = ceil(self.low / step - 1e-9)
        return [step * n for n in range(first, floor(self.high / step + 1e-9) + 1)]


def _scale_of(lines: Sequence[Line], span: tuple[float, float] | None) -> _Scale:
    """Return the scale of values: of faint lines, which are noisy, what lies outside the bulk is not shown."""
    strong = [v for line in lines if not line.faint for _, v in line.points]
    faint = sorted(v for line in lines if line.faint for _, v in line.points)
    cut = len(faint) // 100
    values = strong + faint[cut : len(faint) - cut]
    if span:
        return _scale([*values, *span], False)
    low, high = min(values), max(values)
    return _scale(values, low > 0 and high / low > 10**DECADES)


def _iterations(places: Sequence[float]) -> _Scale:
    """Return the scale of iterations, which are whole numbers; from 0 where there is one alone."""
    low, high = min(places), max(places)
    return _Scale(low, high, False, 1.0) if low < high else _Scale(0.0, max(high, 1.0), False, 1.0)


def _scale(values: Sequence[float], log: bool) -> _Scale:
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a level line
        room = abs(high) / 2 or 1.0
        low, high, log = low - room, high + room, False
    return _Scale(low, high, log)


def _curve(line: Line, across: _Scale, up: _Scale) -> Markup:
    places = [(across.at(x), min(max(up.at(y), -0.05), 1.05)) for x, y in line.points]
    words = f"line s-{line.colour}" + " faint" * line.faint + " dashed" * line.dashed
    return svg.curve(places, words)


def _dot(line: Line, point: Point, across: _Scale, up: _Scale, height: float) -> Markup:
    where = f"rate {point[0]:.3g}" if across.log else f"iteration {point[0]:,.0f}"
    title = svg.element("title", f"{line.name}: {point[1]:.4g} at {where}")
    y = EDGE + (height - EDGE) * (1 - up.at(point[1]))
    x = svg.percent(across.at(point[0]))
    return svg.element("circle", title, cx=x, cy=y, r=3.5, class_=f"c-{line.colour}")


def _level_marks(up: _Scale, height: float) -> list[Markup]:
    drawn = []
    for value in up.marks():
        y = EDGE + (height - EDGE) * (1 - up.at(value))
        words = svg.element(
            "text", f"{value:.4g}", x=0, dx=-6, y=y + 4, class_="tick", text_anchor="end"
        )
        drawn += [svg.level(y), words]
    return drawn


def _iteration_marks(across: _Scale, height: float) -> list[Markup]:
    drawn = []
    for value in across.marks():
        x = across.at(value)
        anchor = "start" if x < 0.05 else "end" if x > 0.95 else "middle"
        drawn.append(svg.text(x, height + 15, short(value), "tick", anchor))
    return drawn


def short(value: float) -> str:
    """Return a number of iterations as text, such as 20k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.4g}"
