"""Denormals are flushed while the mode is set, and the caller's mode comes back."""

import numpy as np
from numba import njit
from znnpy_kernels.machine.denormals import FLUSH, float_mode, set_float_mode


@njit
def halve(values: np.ndarray) -> None:
    for index in range(values.size):
        values[index] *= np.float32(0.5)


@njit
def halve_flushed(values: np.ndarray) -> tuple[int, int]:
    mode = float_mode()
    set_float_mode(mode | FLUSH)
    inside = float_mode()
    for index in range(values.size):
        values[index] *= np.float32(0.5)
    set_float_mode(mode)
    return mode, inside


def test_flushes_and_restores() -> None:
    tiny = np.full(100, 1.5e-38, np.float32)
    kept, flushed = tiny.copy(), tiny.copy()
    mode, inside = halve_flushed(flushed)
    halve(kept)
    assert inside & FLUSH == FLUSH
    assert mode & FLUSH == 0
    assert (kept > 0).all()
    assert (flushed == 0).all()
