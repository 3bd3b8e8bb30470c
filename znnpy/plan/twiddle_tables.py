"""Tables of roots of unity with which compiled code transforms filters to spectra of whole-image FFTs and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.fft import filters as words
from znnpy_kernels.fft.pruned_lines import MOST_TAPS

from znnpy.errors import PlanError
from znnpy.network.types import Triple
from znnpy.plan.fftw import spectrum_floats, spectrum_row

Table = NDArray[np.float32]


@dataclass(frozen=True)
class FilterPlan:
    """Both directions between `size` taps (kz, ky, kx), `sparsity` voxels apart (dilation), and spectra of `grid`.

    `address`: the `plan` word of `filter_spectra` and `spectra_filters`; `row` and `floats` as in
    `znnpy.plan.fftw.FftPlan`. The tables live as long as the process; any number of threads may read them.
    """

    address: int
    grid: Triple
    size: Triple
    sparsity: Triple
    row: int
    floats: int


# Keeps blocks and tables alive: compiled code has their addresses.
_kept: list[Any] = []


@cache
def plan_filter(grid: Triple, size: Triple, sparsity: Triple = (1, 1, 1)) -> FilterPlan:
    """Return the tables for one size of filter on one grid; PlanError if the filter does not fit on it."""
    extent = tuple((taps - 1) * apart + 1 for taps, apart in zip(size, sparsity, strict=True))
    if any(reach > room for reach, room in zip(extent, grid, strict=True)):
        raise PlanError(f"FFT grid {grid} (z, y, x) cannot hold a filter of extent {extent}")
    # Kernels have room for so many taps of a line on their stack.
    if max(size) > MOST_TAPS:
        raise PlanError(f"filters by FFT have at most {MOST_TAPS} taps an axis, not {size}")
    tables = _tables(grid, size, sparsity)
    block = np.zeros(words.FILTER_WORDS, np.int64)
    row, count = spectrum_row(grid), spectrum_floats(grid)
    block[words.FILTER_GRID_Z : words.FILTER_TAPS_X + 1] = (grid[0], grid[1], row, count, *size)
    block[words.FILTER_FORWARD_Z :] = [table.ctypes.data for table in tables]
    _kept.append((block, tables))
    return FilterPlan(block.ctypes.data, grid, size, sparsity, row, count)


def _tables(grid: Triple, size: Triple, sparsity: Triple) -> list[Table]:
    """Return the tables of all axes: forward z, y, x, then back z, y, x."""
    # In float64, rounded to float32 once at the end.
    z, y, x = (
        _roots(room, taps, apart) for room, taps, apart in zip(grid, size, sparsity, strict=True)
    )
    half = grid[2] // 2 + 1
    doubled = np.full(half, 2.0)  # the frequencies above N / 2 are the conjugates of those below
    # Frequency 0, and N / 2 of an even size, are their own conjugates.
    doubled[0] = 1.0
    if grid[2] % 2 == 0:
        doubled[-1] = 1.0
    # The factor 1 / N of the whole inverse transform is in the table of one axis.
    back = x[:, :half] * doubled / (grid[0] * grid[1] * grid[2])
    return [
        _interleaved(z[:, : grid[0] // 2 + 1]),
        _interleaved(y[:, : grid[1] // 2 + 1]),
        _padded(x[:, :half], spectrum_row(grid)),
        _folded(z),
        _folded(y),
        _padded(back, spectrum_row(grid)),
    ]


def _roots(room: int, taps: int, step: int) -> NDArray[np.complex128]:
    """Return exp(-2 pi i j step f / room) for tap j and frequency f; the exponent is reduced exactly first."""
    # Reduced in integers, so that large products lose no digits in exp.
    turns = np.outer(np.arange(taps) * step, np.arange(room)) % room
    roots: NDArray[np.complex128] = np.exp(-2j * np.pi * turns / room)
    return roots


def _folded(roots: NDArray[np.complex128]) -> Table:
    """Return the inverse table, for sums and differences of voxels z and size - z: [z][tap], own mates halved."""
    size = roots.shape[1]
    back = roots[:, : size // 2 + 1].conj().T.copy()
    back[0] *= 0.5
    if size % 2 == 0:
        back[-1] *= 0.5
    return _interleaved(back)


def _interleaved(values: NDArray[np.complex128]) -> Table:
    return np.ascontiguousarray(values.astype(np.complex64)).view(np.float32)


def _padded(values: NDArray[np.complex128], row: int) -> Table:
    table = np.zeros((values.shape[0], row), np.float32)
    table[:, : 2 * values.shape[1]] = _interleaved(values)
    return table
