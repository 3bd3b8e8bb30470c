"""Memory that ranks of one host see in each other."""

from __future__ import annotations

import pytest
from launched import launched

SEE = """
import ctypes, sys
import numpy as np
from znnpy.distributed.shared_memory import Windows
from znnpy.distributed.world import World
from znnpy.engine.memory.arena import aligned_bytes

with World.open() as world:
    sizes = [50_000, 50_000, 9_000]
    memory = aligned_bytes(200_000)
    begin = 8_000 + 4_400 * world.rank
    numbers = memory[begin : begin + sizes[world.rank]].view("i4")
    windows = Windows.open(world, numbers.ctypes.data, numbers.nbytes)
    assert not memory.any()
    numbers[:] = np.arange(len(numbers)) + 1000 * world.rank
    world.exchange("written")
    for rank, shift in windows.shifts.items():
        theirs = (ctypes.c_int32 * len(numbers)).from_address(numbers.ctypes.data + shift)
        assert np.array_equal(theirs, np.arange(len(numbers)) + 1000 * rank)
    world.exchange("read")
    windows.close()
    print(world.rank, sorted(windows.shifts), flush=True)
"""


@pytest.mark.slow
def test_ranks_of_a_host_see_windows_as_large_as_theirs() -> None:
    assert launched(3, SEE) == ["0 [1]", "1 [0]", "2 []"]
