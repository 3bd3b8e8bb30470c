"""Single kernels, called from Python: buffers and argument blocks for the scripts that time them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import Kernel

Buffer = NDArray[np.float32]


def zeros(count: int) -> Buffer:
    """Zeros from a 64-byte boundary on, as kernels want them."""
    buffer = np.zeros(count + 16, np.float32)
    start = (-buffer.ctypes.data % 64) // 4
    return buffer[start : start + count]


def noise(count: int) -> Buffer:
    """Random float32 from a 64-byte boundary on."""
    buffer = zeros(count)
    buffer[:] = np.random.default_rng(0).standard_normal(count, np.float32)
    return buffer


def call_of(kernel: Kernel, **values: float) -> Callable[[], None]:
    """A call of the compiled kernel as worker 0, its argument block already packed.

    The caller keeps alive what the words point to.
    """
    words = kernel.arguments(**values)
    block = (ctypes.c_int64 * len(words))(*words)
    call = kernel.compile().ctypes
    return lambda: call(block, 0)
