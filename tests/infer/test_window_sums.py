"""Means over windows, plane by plane, beside those of whole arrays; and resampled as they come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from znnpy.data.preparing.resampling import Resampling
from znnpy.infer.blocks import Region
from znnpy.infer.scans import resampled_planes
from znnpy.infer.sliding_window import Windows
from znnpy.infer.window_sums import kept_planes, mean_planes, padded


def said(window: np.ndarray) -> np.ndarray:
    """Values that depend on the window."""
    return np.stack([window[0] + window.mean(), window[-1] * window.std()])


def each(windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [said(window) for window in windows]


@pytest.mark.parametrize(
    ("spread", "blend"), [("even", "gaussian"), ("steps", "gaussian"), ("steps", "constant")]
)
@pytest.mark.parametrize("size", [(4, 6, 8), (1, 6, 8), (9, 9, 9)])
@pytest.mark.parametrize("extent", [(9, 14, 20), (9, 9, 9), (23, 10, 9)])
def test_planes_are_those_of_the_whole(extent: Any, size: Any, spread: Any, blend: Any) -> None:
    array = np.random.default_rng(0).standard_normal((2, *extent)).astype(np.float32)
    windows = Windows(size, (0.5, 0.5, 0.5), blend, extent, spread=spread)
    found = list(mean_planes(array, windows, 2, [each]))
    sums, total = np.zeros((2, *extent)), np.zeros(extent)
    for window in windows.meeting(Region((0, 0, 0), extent)):
        z, y, x = window.slices()
        sums[:, z, y, x] += windows.weight * said(array[:, z, y, x]).astype(float)
        total[z, y, x] += windows.weight
    assert total.min() > 0
    np.testing.assert_allclose(np.concatenate(found, axis=1), sums / total, atol=1e-5)
    # No more planes are kept than a window has.
    assert max(len(some[0]) for some in found) <= size[0]


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
@pytest.mark.parametrize("size", [(4, 6, 8), (1, 6, 8), (9, 10, 9), (23, 10, 9)])
@pytest.mark.parametrize("at_once", [1, 3])
def test_runs_add_up_and_take_turns_after_rows(at_once: int, size: Any, rows: int) -> None:
    array = np.random.default_rng(0).standard_normal((2, 23, 10, 9)).astype(np.float32)
    windows = Windows(size, (0.5, 0.5, 0.5), "gaussian", (23, 10, 9), spread="even")
    order: list[int] = []
    counts: list[int] = []

    def other(some: Sequence[np.ndarray]) -> list[np.ndarray]:
        order.append(1)
        return [3 * it - 1 for it in each(some)]

    def one(some: Sequence[np.ndarray]) -> list[np.ndarray]:
        order.append(0)
        counts.append(len(some))
        return each(some)

    found = list(mean_planes(array, windows, 2, [one, other], rows, at_once))
    alone = np.concatenate(list(mean_planes(array, windows, 2, [each])), axis=1)
    np.testing.assert_allclose(np.concatenate(found, axis=1), 4 * alone - 1, atol=1e-5)
    turns = 1 + sum(a != b for a, b in itertools.pairwise(order))
    assert turns == 2 * -(-len(windows.starts[0]) // rows)
    depth, *plane = map(len, windows.starts)
    assert sum(counts) == depth * math.prod(plane)
    assert max(counts) == min(at_once, min(depth, rows) * math.prod(plane))
    # What is kept is what was said that is.
    assert max(len(some[0]) for some in found) <= kept_planes(windows, rows) <= 23


def test_small_arrays_lie_in_the_middle() -> None:
    array = np.ones((1, 3, 8, 5), np.float32)
    found, inside = padded(array, (6, 8, 6))
    assert found.shape == (1, 6, 8, 6)
    assert inside == Region((1, 0, 0), (4, 8, 5))
    assert found.sum() == array.size
    assert (found[0][inside.slices()] == 1).all()
    assert padded(array, (3, 8, 5))[0] is array


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("across", [None, 0, 1])
@pytest.mark.parametrize("wanted", [(23, 7, 9), (5, 12, 9), (11, 8, 9)])
def test_planes_are_resampled_as_they_come(
    wanted: Any, across: int | None, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("znnpy.infer.scans.PLANES", 4 * 2 * 12 * 9 * 3)
    values = np.random.default_rng(0).standard_normal((2, 11, 8, 9)).astype(np.float32)
    how = Resampling((11, 8, 9), wanted, order, across)
    given = (values[:, low:high] for low, high in ((0, 1), (1, 6), (6, 8), (8, 11)))
    found = list(resampled_planes(given, how))
    for channel, made in zip(values, np.concatenate(found, axis=1), strict=True):
        np.testing.assert_allclose(made, how.applied(channel), atol=1e-6)
    if wanted[0] > 11:
        assert len(found) > 4
