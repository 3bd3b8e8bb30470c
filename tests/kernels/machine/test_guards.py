"""Kernels are tried between guards: nothing that they write beside an array is missed."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from znnpy_kernels.data.moments import byte_sums
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.guards import OutsideError, address, unguarded
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.rows import add_flat, copy_flat, zero_flat


def test_arrays_are_read_and_written_where_they_lie() -> None:
    memory = np.arange(40, dtype=np.float32)
    copy_flat.run(source=memory[1:], target=address(memory) + 4 * 20, length=15)
    np.testing.assert_array_equal(memory, [*range(20), *range(1, 16), *range(35, 40)])
    add_flat.run(first=memory, second=memory[:5], target=memory, length=5)
    np.testing.assert_array_equal(memory[:6], [0, 2, 4, 6, 8, 5])


@pytest.mark.parametrize(
    ("first", "length", "side", "floats"),
    [(0, 21, "behind", 1), (3, 20, "behind", 3), (-2, 5, "before", 2), (5000, 8, "behind", 8)],
)
def test_what_is_written_beside_an_array_is_told(
    first: int, length: int, side: str, floats: int
) -> None:
    memory = np.ones((4, 5), np.float32)
    with pytest.raises(OutsideError) as told:
        zero_flat.run(target=address(memory) + 4 * first, length=length)
    what = f"kernel zero_flat wrote {side} target, an array of 4 x 5 float32 (80 bytes): "
    farthest = 4 * max(-first, first + length - 20)
    end = "last" if side == "behind" else "first"
    assert str(told.value) == f"{what}{4 * floats} bytes, up to {farthest} {side} its {end}"
    assert (memory == 1).all()


def test_a_slice_is_guarded_where_its_memory_ends() -> None:
    memory = np.zeros(3 * LANES, np.float32)
    zero_flat.run(target=memory[LANES:], length=2 * LANES)
    with pytest.raises(OutsideError, match=rf"target, an array of {3 * LANES} float32"):
        zero_flat.run(target=memory[LANES:], length=2 * LANES + 1)


def test_what_is_read_beside_an_array_is_not_a_number() -> None:
    source, target = np.ones(3, np.float32), np.zeros(4, np.float32)
    copy_flat.run(source=source, target=target, length=4)
    assert np.isnan(target).tolist() == [False, False, False, True]


def test_what_is_read_only_stays_as_it_is() -> None:
    source = np.ones(3, np.float32)
    source.flags.writeable = False
    copy_flat.run(source=source, target=np.zeros(3, np.float32), length=3)
    with pytest.raises(OutsideError, match=r"wrote into target, .* which is read-only"):
        zero_flat.run(target=source, length=3)
    assert source.all()


@pytest.mark.parametrize("offset", [0, 4, 60])
def test_vectors_are_as_aligned_as_they_were(offset: int) -> None:
    seen = []

    class Seen(Kernel):
        def call(self, worker: int = 0, **values: float) -> None:
            seen.append(values["target"])

    array = np.zeros(100, np.uint8)[offset:]
    Seen(zero_flat.function, zero_flat.words).run(target=array, length=0)
    assert (seen[0] - array.ctypes.data) % 4096 == 0
    assert seen[0] != array.ctypes.data


def test_functions_that_are_no_kernels_are_guarded_too() -> None:
    with pytest.raises(OutsideError, match="kernel byte_sums wrote behind target, an array of 1 "):
        byte_sums.run(np.ones(4, np.uint8), 4, np.zeros(1, np.int64))


def test_numbers_that_would_be_addresses_are_refused() -> None:
    """Of pages of their own: some builds of Python have small arrays at addresses that numbers could be."""
    memory = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.float32, 3)
    memory[:] = 1
    with pytest.raises(TypeError, match=r"kernel zero_flat: target=\d+ .*give the array"):
        zero_flat.run(target=memory.ctypes.data, length=3)
    with pytest.raises(TypeError, match="give the array"):
        zero_flat.run(target=address(memory) - 4, length=3)
    zero_flat.call(target=memory.ctypes.data, length=1)
    zero_flat.run(target=unguarded(memory.ctypes.data + 4), length=1)
    assert memory.tolist() == [0, 0, 1]
