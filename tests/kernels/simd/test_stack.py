"""Room on the stack of a kernel: aligned, all of it there, of a size that is known while code is made."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.stack import stack_room

SIZE = 4096


@njit
def _filled(places: np.ndarray) -> float:
    for turn in range(len(places)):
        place = stack_room(SIZE)
        places[turn] = place
        for number in range(SIZE):
            floats(place)[number] = number
    total = 0.0
    for number in range(SIZE):
        total += floats(places[0])[number]
    return total


def test_the_same_aligned_room_each_turn() -> None:
    places = np.zeros(1000, np.int64)
    assert _filled(places) == np.arange(SIZE).sum()
    assert len({*places.tolist()}) == 1
    assert places[0] % 64 == 0


def test_a_size_that_is_no_constant_is_refused() -> None:
    @njit
    def of(size: int) -> int:
        return stack_room(size)

    with pytest.raises(TypingError, match="constant"):
        of(16)
