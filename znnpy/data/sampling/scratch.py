"""Addresses that kernels take: of arrays, and of memory that each thread keeps for them."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Kept(local):
    memory = np.empty(0, np.uint8)
    address = 0


_kept = _Kept()


def scratch(count: int) -> int:
    """Return the address of `count` bytes of the calling thread, which it is given again at its next call."""
    if _kept.memory.size < count:
        _kept.memory = np.empty(count, np.uint8)
        _kept.address = _kept.memory.ctypes.data
    return _kept.address


def at(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.ctypes.data)
