"""Charts of the report: stacked bars, histogram of task sizes, speed-up curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2, log10
from typing import Any

from markupsafe import Markup

from znnpy.pictures import svg
from znnpy.profile.summary import LARGEST, SMALLEST

BAR = 14  # pixels high


def stacked(parts: Iterable[tuple[float, str, str]], height: float = BAR) -> Markup:
    """Return a bar of parts (fraction of the width, colour, tooltip), one after the other."""
    drawn, left = [], 0.0
    for share, colour, title in parts:
        if share > 0:
            drawn.append(svg.bar(left, share, 0, height, f"c-{colour}", title))
            left += share
    return svg.figure(height, drawn, "; ".join(title for share, _, title in parts if share > 0))


def single(share: float, colour: str, title: str, mark: float | None = None) -> Markup:
    """Return a bar from the left, with an optional mark."""
    drawn = [svg.bar(0, share, 0, BAR, f"c-{colour}", title)]
    if mark is not None:
        drawn.append(svg.rule(mark, 0, BAR, "mark"))
    return svg.figure(BAR, drawn, title)


def histogram(sizes: Mapping[str, Any]) -> Markup:
    """Return the fraction of tasks, and of their time, by length; the wanted range is shaded."""
    bounds = sizes["bounds"]
    low, high = log10(bounds[0]), log10(bounds[-1])

    def across(seconds: float) -> float:
        return (log10(seconds) - low) / (high - low)

    # Pixels of a picture, and between both: room for the axis and its words.
    height, gap = 90, 34
    drawn = []
    for row, (what, colour) in enumerate((("tasks", "gray"), ("seconds", "blue"))):
        top = row * (height + gap) + 16
        total = max(sum(sizes[what]), 1e-12)
        # The first and last bars are what lies outside the bounds.
        shares = [value / total for value in sizes[what][1:-1]]
        # A hundredth at least, so that empty pictures have a scale.
        most = max(*shares, 0.01)
        drawn.append(
            svg.element(
                "rect",
                x=svg.percent(across(SMALLEST)),
                width=svg.percent(across(LARGEST) - across(SMALLEST)),
                y=top,
                height=height,
                class_="wanted",
            )
        )
        step = 1 / len(shares)
        # A bar takes 84 % of its step, and a gap on both sides.
        for index, share in enumerate(shares):
            tall = height * share / most
            title = f"{share:.1%} of the {'tasks' if row == 0 else 'time'}: " + (
                f"{svg.seconds(bounds[index])} to {svg.seconds(bounds[index + 1])}"
            )
            drawn.append(
                svg.bar(
                    # 8 % of a step free at both sides.
                    (index + 0.08) * step,
                    0.84 * step,
                    top + height - tall,
                    tall,
                    f"c-{colour}",
                    title,
                )
            )
        drawn.append(svg.level(top + height, "axis"))
        words = "share of the tasks" if row == 0 else "share of their time"
        drawn.append(svg.text(0, top - 4, f"{words}, up to {most:.0%}", "label"))
        drawn += [
            svg.text(
                across(10.0**power), top + height + 14, svg.seconds(10.0**power), "tick", "middle"
            )
            # From a microsecond to 10 ms: every decade within the bounds.
            for power in range(-6, -1)
        ]
    return svg.figure(2 * (height + gap) + 16, drawn, "Histogram of task sizes")


Series = tuple[str, str, Sequence[tuple[float, float]]]
"""Name, class, and (workers, speed-up) points."""


def speed_ups(
    lines: Sequence[Series],
    dots: Sequence[Series],
    height: float = 260,
    band: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Return curves and points of speed-up over workers, both on log2 scales; `band`: outline of an area behind."""
    every = [point for _, _, points in (*lines, *dots) for point in points]
    every += band
    widest = max(1.0, *(log2(max(x, 1)) for x, _ in every))
    tallest = max(1.0, *(log2(max(y, 1)) for _, y in every))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        # 2^-0.3: points below one worker's speed are drawn a little below the axis, not far away.
        x, y = (log2(max(value, 2**-0.3)) for value in point)
        # A margin at the left for the scale's words; 6 % above for the highest point's circle.
        return 0.05 + 0.92 * x / widest, max(-0.02, y / tallest * 0.94)

    drawn = []
    for power in range(int(tallest) + 1):
        y = height * (1 - power / tallest * 0.94)
        drawn += [svg.level(y), svg.text(0, y - 3, f"{2**power} x", "tick")]
    for power in range(int(widest) + 1):
        x, _ = place((2**power, 1))
        drawn.append(svg.text(x, height + 15, str(2**power), "tick", "middle"))
    drawn.append(
        svg.stretched(
            0,
            height,
            [
                svg.curve([place(p) for p in band], "band", "polygon"),
                *(svg.curve([place(p) for p in points], f"line {c}") for _, c, points in lines),
            ],
        )
    )
    for name, class_, points in dots:
        for point in points:
            x, y = place(point)
            title = f"{name}: {point[1]:.2f} times as fast on {point[0]:g} workers"
            drawn.append(_dot(title, x, height * (1 - y), 4.5, class_))
    return svg.figure(height + 22, drawn, "Speed-up over workers")


def _dot(title: str, x: float, y: float, radius: float, class_: str) -> Markup:
    named = svg.element("title", title)
    return svg.element("circle", named, cx=svg.percent(x), cy=y, r=radius, class_=class_)


LEAST_INTENSITY, MOST_INTENSITY = 2.0**-4, 2.0**10
"""Operations a byte between which a roofline is drawn; kinds beyond stand at its edge."""


def roofline(slope: float, peak: float, dots: Sequence[tuple[str, str, float, float]]) -> Markup:
    """Return a roofline: operations a second over operations a byte, both on log2 scales.

    `slope`: bytes a second; `peak`: operations a second; `dots`: name, colour, operations a byte and a second.
    """
    height = 220.0
    wide = log2(MOST_INTENSITY / LEAST_INTENSITY)
    # From what memory allows at the left edge, or the slowest kind, up to the peak, or the fastest.
    tallest = max(peak, *(rate for *_, rate in dots))
    lowest = min(LEAST_INTENSITY * slope, *(rate / 2 for *_, rate in dots))
    tall = log2(tallest / lowest)

    def place(intensity: float, rate: float) -> tuple[float, float]:
        across = min(max(intensity, LEAST_INTENSITY), MOST_INTENSITY)
        return (
            0.05 + 0.92 * log2(across / LEAST_INTENSITY) / wide,
            0.94 * log2(max(rate, lowest) / lowest) / tall,
        )

    corners = (LEAST_INTENSITY, peak / slope, MOST_INTENSITY)
    roof = [place(at, min(peak, at * slope)) for at in corners]
    drawn = [svg.stretched(0, height, [svg.curve(roof, "line bound")])]
    for power in range(int(log2(LEAST_INTENSITY)), int(log2(MOST_INTENSITY)) + 1, 2):
        x, _ = place(2.0**power, tallest)
        drawn.append(svg.text(x, height + 15, f"{2.0**power:g}", "tick", "middle"))
    for decade in range(int(log10(lowest)) + 1, int(log10(tallest)) + 1):
        _, y = place(1.0, 10.0**decade)
        top = height * (1 - y)
        drawn += [svg.level(top), svg.text(0, top - 3, f"{10.0 ** (decade - 9):g} GFLOP/s", "tick")]
    for name, colour, intensity, rate in dots:
        x, y = place(intensity, rate)
        title = f"{name}: {rate * 1e-9:.3g} GFLOP/s at {intensity:.3g} operations a byte"
        drawn.append(_dot(title, x, height * (1 - y), 5.5, f"c-{colour}"))
    return svg.figure(height + 22, drawn, "Roofline: operations a second by operations a byte")
