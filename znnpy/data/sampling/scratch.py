"""Memory that kernels need while they run, kept by each thread."""

from __future__ import annotations

from threading import local

import numpy as np


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
