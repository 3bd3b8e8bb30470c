"""Regions: those of a tensor's blocks lie one behind the other, and neighbours are told as one."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.regions import Buffer, Name, Region, Use, joined
from znnpy.engine.memory.tensors import new_tensor

USE = Use("test")
BUFFERS = [Buffer(Name(USE, name)) for name in "ab"]


def points(regions):
    """All that regions hold, unit by unit."""
    return {
        (buffer, unit, section, strand)
        for buffer, low, high, section, strand in regions
        for unit in range(low, high)
    }


@given(
    st.lists(
        st.builds(
            lambda buffer, low, size, section, strand: Region(buffer, low, low + size, section, strand),
            st.sampled_from(BUFFERS), st.integers(0, 6), st.integers(1, 3), st.integers(0, 1),
            st.integers(-1, 1),
        )
    )
)  # fmt: skip
def test_joined_regions_hold_the_same(regions):
    found = joined(regions)
    assert points(found) == points(regions)
    assert len(found) <= len(regions)


def test_neighbours_are_one_region():
    a, b = BUFFERS
    given_ = [Region(a, 0, 2), Region(b, 0, 2), Region(a, 2, 3), Region(b, 5, 6), Region(b, 6, 7)]
    assert joined(given_) == [Region(a, 0, 3), Region(b, 0, 2), Region(b, 5, 7)]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("cut", [0, 1])
def test_blocks_never_meet_and_whole_ones_are_one_region_unless_apart(cut, apart):
    tensor = new_tensor(
        Arena(), Name(USE, "tensor"), 2, 40, (4, 5, 3), cut=cut, lanes=8, apart=apart
    )
    part = tensor.part(2, 24)
    owned = [
        points(tensor.met(batch, block, low, low + 1))
        for batch, block, low in product(range(2), range(5), range(tensor.extent))
    ]
    assert sum(map(len, owned)) == len(set().union(*owned)) == 2 * 5 * 4 * 5
    assert part.met(1, 0) == tensor.met(1, 2)
    # What lies beyond the last plane is not the next block's.
    assert tensor.met(0, 1, 1, 9) == tensor.met(0, 1, 1)
    whole = part.met_by(1, range(3))
    assert len(whole) == (3 if apart else 1)
    assert points(whole) == points([it for block in range(3) for it in part.met(1, block)])
    some = part.met_by(1, range(3), 1, 2, 0, 2)
    assert points(some) == points([it for b in range(3) for it in part.met(1, b, 1, 2, 0, 2)])
    assert len(some) == 3
