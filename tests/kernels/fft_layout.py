"""Buffers and layouts that the tests of the FFT kernels share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.fft.filters import filter_spectra, spectra_filters
from znnpy_kernels.fft.images import image_spectra, spectra_images
from znnpy_kernels.machine.guards import unguarded
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import aligned_bytes
from znnpy.network.types import Triple
from znnpy.plan.fftw import FftPlan
from znnpy.plan.twiddle_tables import FilterPlan

Floats = NDArray[np.float32]


def spectra(count: int, plan: FftPlan | FilterPlan) -> Floats:
    """Room for spectra, full of NaN: whatever a kernel does not write shows."""
    made = aligned_bytes(4 * count * plan.floats).view(np.float32).reshape(count, plan.floats)
    made[:] = np.nan
    return made


def frequencies(rows: Floats, plan: FftPlan | FilterPlan) -> NDArray[np.complex64]:
    """Spectra (count, floats) as complex64 (count, z, y, x // 2 + 1), without padding."""
    z, y, x = plan.grid
    grid = rows[:, : z * y * plan.row].reshape(-1, z, y, plan.row)
    return np.ascontiguousarray(grid[..., : 2 * (x // 2 + 1)]).view(np.complex64)


def blocked(images: Floats) -> Floats:
    """(channel, z, y, x) to (block, z, y, x, lane), pad lanes 0."""
    channels, *size = images.shape
    blocks = -(-channels // LANES)
    padded = np.zeros((blocks * LANES, *size), np.float32)
    padded[:channels] = images
    return np.ascontiguousarray(np.moveaxis(padded.reshape(blocks, LANES, *size), 1, -1))


def planar(tensor: Floats, channels: int) -> Floats:
    """(block, z, y, x, lane) back to (channel, z, y, x)."""
    return np.moveaxis(tensor, -1, 1).reshape(-1, *tensor.shape[1:4])[:channels]


def steps(array: Floats) -> list[int]:
    """Strides in floats."""
    return [stride // 4 for stride in array.strides]


def to_spectra(images: Floats, plan: FftPlan) -> Floats:
    """Spectra of (channel, z, y, x) through the blocked layout, one task a block."""
    tensor, rows = blocked(images), spectra(len(images), plan)
    _, z, y, x, lane = steps(tensor)
    for block, first in enumerate(range(0, len(images), LANES)):
        image_spectra.run(
            source=tensor[block], source_z=z, source_y=y, source_x=x, source_channel=lane,
            target=rows[first], target_channel=plan.floats,
            channels=min(LANES, len(images) - first), plan=unguarded(plan.address),
        )  # fmt: skip
    return rows


def to_images(rows: Floats, plan: FftPlan) -> Floats:
    """(channel, z, y, x) from spectra, which are destroyed."""
    out = np.full((len(rows), *plan.image), np.nan, np.float32)
    channel, z, y, x = steps(out)
    spectra_images.run(
        source=rows, source_channel=plan.floats, target=out, target_z=z,
        target_y=y, target_x=x, target_channel=channel, channels=len(rows), pad=0, add=0,
        plan=unguarded(plan.address),
    )  # fmt: skip
    return out


def filters_to_spectra(filters: Floats, plan: FilterPlan) -> Floats:
    """Spectra of filters (count, kz, ky, kx)."""
    rows = spectra(len(filters), plan)
    each, z, y, x = steps(filters)
    filter_spectra.run(
        source=filters, source_z=z, source_y=y, source_x=x, source_filter=each,
        target=rows, target_filter=plan.floats, filters=len(filters), plan=unguarded(plan.address),
    )  # fmt: skip
    return rows


def spectra_to_filters(rows: Floats, plan: FilterPlan) -> Floats:
    """Filters (count, kz, ky, kx) from spectra, which are destroyed."""
    out = np.full((len(rows), *plan.size), np.nan, np.float32)
    each, z, y, x = steps(out)
    spectra_filters.run(
        source=rows, source_filter=plan.floats, target=out, target_z=z,
        target_y=y, target_x=x, target_filter=each, filters=len(rows), plan=unguarded(plan.address),
    )  # fmt: skip
    return out


def random(*shape: int, seed: int = 0) -> Floats:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def spread(filters: Floats, sparsity: Triple) -> NDArray[np.float64]:
    """Filters (..., kz, ky, kx) with zeros between their taps."""
    size = [(k - 1) * s + 1 for k, s in zip(filters.shape[-3:], sparsity, strict=True)]
    out = np.zeros((*filters.shape[:-3], *size))
    out[..., :: sparsity[0], :: sparsity[1], :: sparsity[2]] = filters
    return out
