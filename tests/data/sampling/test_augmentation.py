"""Turns commute with making targets; swaps respect voxel size and patch shape."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from znnpy.data.sampling.augmentation import Augmentation, Turn, draw_order
from znnpy.data.sampling.targets import AffinityTarget, BoundaryTarget, Target
from znnpy.errors import ShapeError, VolumeError

TURNS = st.builds(
    Turn, st.tuples(*[st.booleans()] * 3), st.sampled_from(list(itertools.permutations(range(3))))
)
SHAPES = st.tuples(*[st.integers(1, 5)] * 3)
LABELS = SHAPES.flatmap(lambda s: arrays(np.int64, (1, *s), elements=st.integers(0, 3)))


@given(TURNS, SHAPES)
def test_turn_moves_voxels(turn: Turn, shape: tuple[int, int, int]) -> None:
    array = np.arange(2 * np.prod(shape)).reshape(2, *shape)
    turned = turn.apply(array)
    assert turned.shape[1:] == tuple(shape[axis] for axis in turn.order)
    for voxel in itertools.product(*map(range, turned.shape[1:])):
        source = [0, 0, 0]
        for axis, origin in enumerate(turn.order):
            source[origin] = voxel[axis]
        source = [n - 1 - s if f else s for s, f, n in zip(source, turn.flips, shape, strict=True)]
        assert np.array_equal(turned[:, *voxel], array[:, *source])


@given(TURNS, LABELS, st.data(), st.sampled_from([BoundaryTarget(1), BoundaryTarget(2, "ignore")]))
def test_boundary_commutes(
    turn: Turn, labels: np.ndarray, data: st.DataObject, target: Target
) -> None:
    known = data.draw(arrays(np.bool_, labels.shape[1:]))
    before = target.compute(turn.apply(labels), turn.apply(known))
    after = [turn.apply(array) for array in target.compute(labels, known)]
    assert np.array_equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])


@given(TURNS, LABELS, st.data())
def test_affinity_commutes(turn: Turn, labels: np.ndarray, data: st.DataObject) -> None:
    """Affinities along axis i of the turned labels are those along the axis it came from.

    Where that axis was flipped, the pair of v and v - 1 was one of v and v + 1 before.
    """
    known = data.draw(arrays(np.bool_, labels.shape[1:]))
    values, weights = AffinityTarget().compute(turn.apply(labels), turn.apply(known))
    for axis, origin in enumerate(turn.order):
        step = [0, 0, 0]
        step[origin] = 1 if turn.flips[origin] else -1
        value, weight = AffinityTarget((tuple(step),)).compute(labels, known)  # type: ignore[arg-type]
        assert np.array_equal(values[axis], turn.apply(value)[0])
        assert np.array_equal(weights[axis], turn.apply(weight)[0])


@pytest.mark.parametrize(
    ("swaps", "resolution", "extent", "groups"),
    [
        ("auto", (1, 1, 1), (5, 5, 5), ((0, 1, 2),)),
        ("auto", (40, 4, 4), (5, 5, 5), ((1, 2),)),
        ("auto", (40, 4, 4), (5, 6, 5), ()),
        ("auto", (1, 1, 1), (3, 5, 5), ((1, 2),)),
        ("auto", (4, 40, 4), (5, 5, 5), ((0, 2),)),
        ("none", (1, 1, 1), (5, 5, 5), ()),
        ("zyx", (1, 1, 1), (5, 5, 5), ((0, 1, 2),)),
        ("yx", (1, 1, 1), (5, 5, 5), ((1, 2),)),
    ],
)
def test_groups(
    swaps: str, resolution: tuple[float, ...], extent: tuple[int, ...], groups: object
) -> None:
    got = Augmentation("zyx", swaps).groups(resolution, [extent], "volume")  # type: ignore[arg-type]
    assert tuple(tuple(sorted(group)) for group in got) == groups


def test_named_swaps_that_do_not_fit() -> None:
    with pytest.raises(VolumeError, match=r"volume: axes z and y and x.*40"):
        Augmentation("", "zyx").groups((40, 4, 4), [(5, 5, 5)], "volume")
    with pytest.raises(ShapeError, match="patches differ"):
        Augmentation("", "yx").groups((1, 1, 1), [(5, 5, 6)], "volume")


def test_all_turns_are_drawn_and_no_other() -> None:
    random = np.random.default_rng(0)
    augmentation = Augmentation("zx", "auto")
    groups = augmentation.groups((4, 4, 1), [(5, 5, 5)], "volume")
    drawn = {(augmentation.draw_flips(random), draw_order(groups, random)) for _ in range(300)}
    flips = [(a, False, b) for a in (False, True) for b in (False, True)]
    assert drawn == set(itertools.product(flips, [(0, 1, 2), (1, 0, 2)]))
