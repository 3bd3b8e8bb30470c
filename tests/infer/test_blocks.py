import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.volume import ArrayVolume
from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import fit
from znnpy.infer.blocks import Region, input_region, middle, region_of_interest, whole_field
from znnpy.infer.grid import Grid
from znnpy.network.types import Edge, Network, Node

NETWORK = Network(
    (Node("in", "input", 1), Node("mid", "transfer", 3), Node("out", "transfer", 1)),
    (
        Edge("c1", "conv", "in", "mid", size=(1, 2, 5)),
        Edge("c2", "conv", "mid", "out", size=(3, 3, 1), sparsity=(1, 2, 1)),
    ),
)
CORNER = {"in": (0, 0, 0)}


TRIPLES = st.tuples(*[st.integers(1, 12)] * 3)


@given(TRIPLES, TRIPLES, TRIPLES, TRIPLES)
def test_patches_cover_a_region_and_each_meets_it(patch, origin, lower, shape):
    grid = Grid(patch, origin)
    region = Region(lower, tuple(a + n for a, n in zip(lower, shape, strict=True)))
    covered = np.zeros(shape, int)
    for place in grid.meeting(region):
        assert all((a - o) % n == 0 for a, o, n in zip(place.lower, origin, patch, strict=True))
        part = place.within(region)
        assert min(part.shape) > 0
        covered[part.slices(lower)] += 1
    assert covered.min() == covered.max() == 1
    assert grid.count(region) == len(grid.meeting(region))


def test_whole_field_reads_exactly_the_volume():
    volume = ArrayVolume(np.zeros((9, 10, 11)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=False)
    assert field.shape == (9 - 2, 10 - 5, 11 - 4)
    seen = input_region(field, fit(NETWORK, (1, 1, 1)), "in", Region((0, 0, 0), field.shape))
    assert seen == Region((0, 0, 0), (9, 10, 11))


@given(st.integers(-5, 40), st.integers(1, 30), st.integers(1, 4))
def test_region_of_interest_by_positions(low, length, stride):
    volume = ArrayVolume(np.zeros((30, 30, 30)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=False)
    field = replace(field, stride=(stride, 1, 1), shape=(28 // stride, 5, 5))
    wanted = [i for i in range(field.shape[0]) if low <= field.first[0] + i * stride < low + length]
    roi = Region((low, 0, 0), (low + length, 30, 30))
    if wanted:
        found = region_of_interest(field, roi)
        assert found == Region((wanted[0], 0, 0), (wanted[-1] + 1, 5, 5))
    else:
        with pytest.raises(ShapeError, match="no output voxel"):
            region_of_interest(field, roi)


def test_mirrored_field_is_the_whole_volume_and_centred():
    volume = ArrayVolume(np.zeros((4, 5, 6)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=True)
    assert field.shape == (4, 5, 6)
    region = input_region(field, fit(NETWORK, (4, 5, 6)), "in", Region((0, 0, 0), (4, 5, 6)))
    assert region.lower == (-1, -2, -2)
    assert region.upper == (5, 8, 8)


def test_volume_smaller_than_the_view_is_refused():
    with pytest.raises(ShapeError, match=r"\(3, 6, 5\); use border mirror"):
        whole_field(NETWORK, {"in": ArrayVolume(np.zeros((9, 5, 9)))}, CORNER, mirror=False)


def test_middle_is_small_enough_and_centred():
    volume = ArrayVolume(np.zeros((20, 100, 90)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=True)
    part = middle(field, 10_000)
    assert 8_000 < math.prod(part.shape) <= 10_000
    for first, size, whole in zip(part.first, part.shape, field.shape, strict=True):
        assert abs((first + size / 2) - whole / 2) <= 0.5
