import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.volume import ArrayVolume
from znnpy.errors import ShapeError
from znnpy.geometry.fit import fit
from znnpy.infer.blocks import choose_block, input_region, middle, starts, whole_field
from znnpy.network.types import Edge, Network, Node

NETWORK = Network(
    (Node("in", "input", 1), Node("mid", "transfer", 3), Node("out", "transfer", 1)),
    (
        Edge("c1", "conv", "in", "mid", size=(1, 2, 5)),
        Edge("c2", "conv", "mid", "out", size=(3, 3, 1), sparsity=(1, 2, 1)),
    ),
)
CORNER = {"in": (0, 0, 0)}


@given(st.tuples(*[st.integers(1, 30)] * 3), st.tuples(*[st.integers(1, 30)] * 3))
def test_blocks_cover_everything_and_stay_inside(shape, block):
    block = tuple(min(pair) for pair in zip(block, shape, strict=True))
    covered = np.zeros(shape, int)
    places = list(starts(shape, block))
    for z, y, x in places:
        assert all(a + n <= m for a, n, m in zip((z, y, x), block, shape, strict=True))
        covered[z : z + block[0], y : y + block[1], x : x + block[2]] += 1
    assert covered.min() == 1
    assert len(places) == math.prod(-(-n // b) for n, b in zip(shape, block, strict=True))


def test_valid_blocks_read_exactly_the_volume():
    volume = ArrayVolume(np.zeros((9, 10, 11)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=False)
    assert field.shape == (9 - 2, 10 - 5, 11 - 4)
    block = (3, 2, 4)
    regions = [
        input_region(field, fit(NETWORK, block), "in", start)
        for start in starts(field.shape, block)
    ]
    assert np.min([r.lower for r in regions], axis=0).tolist() == [0, 0, 0]
    assert np.max([r.upper for r in regions], axis=0).tolist() == [9, 10, 11]


def test_mirrored_field_is_the_whole_volume_and_centred():
    volume = ArrayVolume(np.zeros((4, 5, 6)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=True)
    assert field.shape == (4, 5, 6)
    region = input_region(field, fit(NETWORK, (4, 5, 6)), "in", (0, 0, 0))
    assert region.lower == (-1, -2, -2)
    assert region.upper == (5, 8, 8)


def test_volume_smaller_than_the_view_is_refused():
    with pytest.raises(ShapeError, match=r"\(3, 6, 5\); use border mirror"):
        whole_field(NETWORK, {"in": ArrayVolume(np.zeros((9, 5, 9)))}, CORNER, mirror=False)


def test_chosen_block_shares_evenly_and_keeps_the_budget():
    block = choose_block(NETWORK, (10, 101, 50), budget=100_000)
    assert block[0] == 10
    last = [-(-n // b) * b - n for n, b in zip((10, 101, 50), block, strict=True)]
    assert max(last) <= 3  # what the last blocks repeat
    nodes = fit(NETWORK, block).nodes
    assert sum(4 * n.images * math.prod(nodes[n.name].shape) for n in NETWORK.nodes) <= 100_000
    assert choose_block(NETWORK, (10, 101, 50)) == (10, 101, 50)


def test_middle_is_small_enough_and_centred():
    volume = ArrayVolume(np.zeros((20, 100, 90)))
    field = whole_field(NETWORK, {"in": volume}, CORNER, mirror=True)
    part = middle(field, 10_000)
    assert 8_000 < math.prod(part.shape) <= 10_000
    for first, size, whole in zip(part.first, part.shape, field.shape, strict=True):
        assert abs((first + size / 2) - whole / 2) <= 0.5
