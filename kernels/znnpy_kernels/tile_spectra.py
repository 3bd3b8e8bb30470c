"""Tiles of images to spectra and back: the transforms of tiled spectral convolution.

A tile has nz * ny * nx points, each size one of `fft_codelets.SIZES`, and the spectrum of LANES real
images at once: frequency f = (kz * ny + ky) * (nx // 2 + 1) + kx, each LANES real parts and then LANES
imaginary parts. Tiles lie in a grid of rows and columns: tile t = (tz * tiles_y + ty) * tiles_x + tx
begins at voxel origin + (tz, ty, tx) * step.

Argument words. Addresses in bytes; strides in floats; all else counts.
"""

from __future__ import annotations

from znnpy_kernels.lanes import LANES

SPECTRA_FIELDS = (
    "source", "source_block", "source_z", "source_y", "source_x", "source_lane", "channels",
    "blocks", "tiles_y", "tiles_x", "tile0", "tile1", "origin_z", "origin_y", "origin_x", "step_z",
    "step_y", "step_x", "count_z", "count_y", "count_x", "limit_z", "limit_y", "limit_x", "size_z",
    "size_y", "size_x", "target", "target_frequency", "target_tile", "target_block", "conjugate",
    "scratch", "scratch_worker",
)  # fmt: skip
IMAGES_FIELDS = (
    "source", "source_frequency", "source_tile", "source_block", "blocks", "tiles_y", "tiles_x",
    "tile0", "tile1", "size_z", "size_y", "size_x", "first_z", "first_y", "first_x", "count_z",
    "count_y", "count_x", "origin_z", "origin_y", "origin_x", "step_z", "step_y", "step_x",
    "limit_z", "limit_y", "limit_x", "target", "target_block", "target_z", "target_y", "target_x",
    "accumulate", "scale:float", "scratch", "scratch_worker",
)  # fmt: skip


def scratch_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size."""
    z, y, x = size
    return z * y * (2 * (x // 2 + 1) + x) * LANES + 64 * LANES
