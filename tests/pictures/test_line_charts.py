"""Charts of one point, and of iterations, which are whole numbers."""

from __future__ import annotations

import re

import pytest

from znnpy.pictures.line_charts import Line, line_chart


def marks(chart: str) -> list[str]:
    """Words of the axis of iterations."""
    return [words for at, words in re.findall(r'<text x="([^"]*)%"[^>]*>([^<]*)</text>', chart)]


@pytest.mark.parametrize(
    ("iterations", "wanted"),
    [
        ([1], ["0", "1"]),
        ([5], ["0", "2", "4"]),
        ([1000], ["0", "500", "1k"]),
        ([0], ["0", "1"]),
        ([1, 2], ["1", "2"]),
        ([1, 2, 3, 4], ["1", "2", "3", "4"]),
        ([10, 50], ["10", "20", "30", "40", "50"]),
    ],
)
def test_iterations_have_whole_marks_and_one_alone_begins_at_none(
    iterations: list[int], wanted: list[str]
) -> None:
    chart = line_chart([Line("loss", "blue", [(n, 0.5) for n in iterations])], "Loss")
    assert marks(chart) == wanted
    dots = re.findall(r'cx="([^"]*)"', chart)
    last = "100%" if iterations[-1] else "0%"
    assert dots == ([last] if len(iterations) == 1 else [])
