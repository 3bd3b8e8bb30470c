"""Targets against definitions written out voxel by voxel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from znnpy.data.sampling.targets import (
    AffinityTarget,
    BoundaryTarget,
    ClassesTarget,
    ImageTarget,
    MaskTarget,
)
from znnpy.learning.readings import LOGITS

SHAPES = st.tuples(*[st.integers(1, 5)] * 3)
LABELS = SHAPES.flatmap(lambda s: arrays(np.int64, (1, *s), elements=st.integers(0, 3)))
STEPS = [(-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)]


def everywhere(labels: np.ndarray) -> np.ndarray:
    return np.ones(labels.shape[1:], np.bool_)


def neighbours(voxel: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    moved = [tuple(v + d for v, d in zip(voxel, step, strict=True)) for step in STEPS]
    return [w for w in moved if all(0 <= c < n for c, n in zip(w, shape, strict=True))]


def reference_boundary(
    ids: np.ndarray, known: np.ndarray, thickness: int, background: str
) -> np.ndarray:
    voxels = list(itertools.product(*map(range, ids.shape)))
    counted = {v for v in voxels if known[v] and not (background == "ignore" and ids[v] == 0)}
    found: set[tuple[int, ...]] = set()
    for step in range(thickness):
        if step == 0:
            for v in counted:
                beside = [w for w in neighbours(v, ids.shape) if w in counted]
                if any(ids[w] != ids[v] for w in beside):
                    found.add(v)
        else:
            found |= {w for v in found for w in neighbours(v, ids.shape)}
    if background == "boundary":
        found |= {v for v in voxels if known[v] and ids[v] == 0}
    out = np.zeros(ids.shape, np.float32)
    for v in found:
        out[v] = 1
    return out


@given(LABELS, st.integers(0, 3), st.sampled_from(["boundary", "object", "ignore"]), st.data())
def test_boundary(labels: np.ndarray, thickness: int, background: str, data: st.DataObject) -> None:
    known = data.draw(arrays(np.bool_, labels.shape[1:]))
    target = BoundaryTarget(thickness, background)  # type: ignore[arg-type]
    value, weight = target.compute(labels, known)
    assert value.dtype == weight.dtype == np.float32
    assert np.array_equal(value[0], reference_boundary(labels[0], known, thickness, background))
    counted = known & (labels[0] != 0) if background == "ignore" else known
    assert np.array_equal(weight[0], counted)
    assert target.target_channels(1) == len(value) == 1


def test_boundary_by_hand() -> None:
    labels = np.array([7, 7, 7, 9, 9, 9, 0, 9, 9, 9]).reshape(1, 1, 1, 10)

    def row(*options: object) -> list[int]:
        value, _ = BoundaryTarget(*options).compute(labels, everywhere(labels))  # type: ignore[arg-type]
        return value.astype(int).ravel().tolist()

    assert row() == [0, 0, 1, 1, 0, 1, 1, 1, 0, 0]
    assert row(2) == [0, 1, 1, 1, 1, 1, 1, 1, 1, 0]
    assert row(0) == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert row(1, "ignore") == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]


OFFSETS = st.lists(st.tuples(*[st.integers(-6, 6)] * 3), min_size=1, max_size=4)


@given(LABELS, OFFSETS, st.data())
def test_affinity(
    labels: np.ndarray, offsets: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    ids, known = labels[0], data.draw(arrays(np.bool_, labels.shape[1:]))
    value, weight = AffinityTarget(tuple(offsets)).compute(labels, known)
    assert value.shape == weight.shape == (len(offsets), *ids.shape)
    for channel, offset in enumerate(offsets):
        for v in itertools.product(*map(range, ids.shape)):
            w = tuple(a + d for a, d in zip(v, offset, strict=True))
            inside = all(0 <= c < n for c, n in zip(w, ids.shape, strict=True))
            both = bool(inside and known[v] and known[w])
            assert weight[channel][v] == both
            assert value[channel][v] == (both and ids[v] == ids[w] != 0)


def test_affinity_by_hand() -> None:
    labels = np.array([[1, 1, 0], [0, 1, 2]]).reshape(1, 1, 2, 3)
    value, weight = AffinityTarget().compute(labels, everywhere(labels))
    assert not weight[0].any()
    assert weight[1].astype(int).tolist() == [[[0, 0, 0], [1, 1, 1]]]
    assert value[1].astype(int).tolist() == [[[0, 0, 0], [0, 1, 0]]]
    assert value[2].astype(int).tolist() == [[[0, 1, 0], [0, 0, 0]]]
    assert AffinityTarget().margin == 1
    assert AffinityTarget(((0, -3, 9),)).margin == 9


def test_labels_as_given() -> None:
    labels = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    known = np.arange(60).reshape(3, 4, 5) % 2 == 0
    value, weight = ImageTarget().compute(labels, known)
    assert np.array_equal(value, labels.astype(np.float32) * known)
    assert np.array_equal(weight, np.stack([known, known]))
    assert ImageTarget().target_channels(2) == 2
    assert not ImageTarget().segmentation


def test_scaled_values_are_cut_off_at_the_range_and_unknown_ones_are_0() -> None:
    labels = np.array([0, 51, 255, np.nan, np.inf, -7]).reshape(1, 1, 1, 6)
    known = np.array([1, 1, 1, 0, 0, 0], np.bool_).reshape(1, 1, 6)
    target = ImageTarget(0.00392157, LOGITS.taken("binomial_cross_entropy"))
    value, weight = target.compute(labels, known)
    assert value.ravel().tolist() == [0, pytest.approx(0.2, abs=1e-6), 1, 0, 0, 0]
    assert weight.ravel().tolist() == [1, 1, 1, 0, 0, 0]
    assert target.wrong(labels).ravel().tolist() == [False, False, False, True, True, True]


def test_mask() -> None:
    labels = np.array([[0, 255, 1, 0], [-3, 0, 0.25, np.nan]]).reshape(2, 1, 1, 4)
    known = np.array([1, 1, 1, 0], np.bool_).reshape(1, 1, 4)
    value, weight = MaskTarget().compute(labels, known)
    assert value[:, 0, 0].tolist() == [[0, 1, 1, 0], [1, 0, 1, 0]]
    assert weight[:, 0, 0].tolist() == [[1, 1, 1, 0]] * 2
    assert MaskTarget().target_channels(2) == 2


def test_one_hot() -> None:
    labels = np.array([0, 2, 1, 5]).reshape(1, 1, 1, 4)
    known = np.array([1, 1, 1, 0], np.bool_).reshape(1, 1, 4)
    for ids in (labels, labels.astype(np.float32)):
        value, weight = ClassesTarget(3).compute(ids, known)
        assert value[:, 0, 0].T.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
        assert weight[:, 0, 0].T.tolist() == [[1] * 3, [1] * 3, [1] * 3, [0] * 3]
    assert ClassesTarget(3).wrong(labels).ravel().tolist() == [False, False, False, True]


def test_classes_from_a_number_on() -> None:
    """Lower ones do not count; negative ones, fractions and NaN are as wrong as higher ones."""
    labels = np.array([0, 1, 2, 3, 4, -1, 2.5, np.nan, 255]).reshape(1, 1, 1, 9)
    target, known = ClassesTarget(3, ignore=255, first=1), np.ones((1, 1, 9), np.bool_)
    counted = target.counted(labels, known)
    assert counted.ravel().tolist() == [False, *[True] * 7, False]
    wrong = target.wrong(labels)[0] & counted
    assert wrong.ravel().tolist() == [False] * 4 + [True] * 4 + [False]
    value, weight = target.compute(labels, counted & ~wrong)
    assert value[:, 0, 0].T.tolist() == [[0] * 3, [1, 0, 0], [0, 1, 0], [0, 0, 1], *[[0] * 3] * 5]
    assert weight[0, 0, 0].tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert target.selective
    assert not ClassesTarget(3).selective
    assert target.takes_span(1, 3, np.dtype(np.uint8))
    assert not target.takes_span(0, 3, np.dtype(np.uint8))
    assert not target.takes_span(1, 4, np.dtype(np.uint8))
    assert "from 1 to 3" in target.wanted
