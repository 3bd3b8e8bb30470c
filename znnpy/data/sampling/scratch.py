"""Addresses that kernels take: of arrays, and of memory that each thread keeps for them."""

from __future__ import annotations

from math import prod
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Kept(local):
    room = np.empty(0, np.uint8)
    region = np.empty(0, np.float32)


_kept = _Kept()


def scratch(count: int) -> int:
    """Return the address of `count` bytes of the calling thread, which it is given again at its next call."""
    if _kept.room.size < count:
        _kept.room = np.empty(count, np.uint8)
    return at(_kept.room)


def scratch_region(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array of the calling thread, which it is given again at its next call.

    A new one of this size would be new pages each time, whose first touch takes as long as all that is done there.
    """
    count = prod(shape)
    if _kept.region.size < count:
        _kept.region = np.empty(count, np.float32)
    return _kept.region[:count].reshape(shape)


def at(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.ctypes.data)
