"""Few labels drawn by hand are told from cells with membranes of 0, and from round objects on background."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from znnpy.data.sampling.label_checks import Strokes, strokes
from znnpy.data.volume import ArrayVolume

SHAPE = (32, 64, 64)
Labels = NDArray[np.uint32]


def cells(membrane: int) -> Labels:
    """Boxes of 8 x 10 x 10 voxels, of which the first ones along each axis are 0."""
    z, y, x = np.indices(SHAPE, dtype=np.uint32)
    found: Labels = 1 + z // 8 * 100 + y // 10 * 10 + x // 10
    inside = (z % 8 >= membrane) & (y % 10 >= membrane) & (x % 10 >= membrane)
    return np.where(inside, found, 0).astype(np.uint32)


def balls(radius: int, count: int) -> Labels:
    rng, found = np.random.default_rng(0), np.zeros(SHAPE, np.uint32)
    place = np.indices(SHAPE)
    for number in range(count):
        centre = rng.integers(0, SHAPE)[:, None, None, None]
        found[((place - centre) ** 2).sum(axis=0) <= radius**2] = number + 1
    return found


def scribbles(width: int, count: int) -> Labels:
    """Random walks of a brush, each within one plane."""
    rng, found = np.random.default_rng(0), np.zeros(SHAPE, np.uint32)
    for number in range(count):
        z, *start = rng.integers(0, SHAPE)
        for y, x in np.cumsum(rng.integers(-1, 2, (40, 2)), axis=0) + start:
            found[z, max(0, y) : max(0, y + width), max(0, x) : max(0, x + width)] = 1 + number % 3
    return found


@pytest.mark.parametrize("labels", [cells(0), cells(1), cells(2), balls(5, 20), balls(8, 8)])
def test_cells_and_round_objects_are_no_strokes(labels: Labels) -> None:
    assert not strokes(ArrayVolume(labels[None])).likely


@pytest.mark.parametrize(
    "labels", [scribbles(1, 20), scribbles(1, 200), scribbles(3, 40), scribbles(6, 40), balls(3, 2)]
)
def test_few_thin_labels_are(labels: Labels) -> None:
    assert strokes(ArrayVolume(labels[None])).likely


def test_classes_that_are_rare_are_not_drawn() -> None:
    assert not strokes(ArrayVolume(balls(3, 2)[None])).drawn
    assert not strokes(ArrayVolume(scribbles(3, 400)[None])).drawn
    assert strokes(ArrayVolume(scribbles(1, 20)[None])).drawn


def test_one_class_that_is_thin_is_not_drawn() -> None:
    """Vessels are all there; two classes at least are drawn where all else is not labelled."""
    vessels = (scribbles(1, 20) > 0).astype(np.uint32)
    found = strokes(ArrayVolume(vessels[None]))
    assert not found.drawn
    assert found.likely  # of objects


def test_counting() -> None:
    """Of a plus of five voxels in a plane the middle is inside, and of a row along an edge all but its ends."""
    labels = np.zeros((1, 9, 9), np.uint32)
    labels[0, 3:6, 4] = labels[0, 4, 3:6] = 7
    assert strokes(ArrayVolume(labels[None])) == Strokes(81, 5, 1, alike=True)
    row = np.array([0, 2, 2, 2, 2, 0], np.uint32).reshape(1, 1, 1, 6)
    assert strokes(ArrayVolume(row)) == Strokes(6, 4, 2, alike=True)
    assert not Strokes(1000, 0, 0).likely
