"""Tiles of images to spectra and back: the transforms of tiled spectral convolution.

A tile has nz * ny * nx points, each size one of `fft_codelets.SIZES`, and the spectrum of LANES real
images at once: frequency f = (kz * ny + ky) * (nx // 2 + 1) + kx, each LANES real parts and then LANES
imaginary parts. Tiles lie in a grid of rows and columns: tile t = (tz * tiles_y + ty) * tiles_x + tx
begins at voxel origin + (tz, ty, tx) * step. A sparse convolution is an ordinary one on interleaved
lattices: the strides of a lattice are the tensor's times the sparsity.

Argument words. Addresses in bytes; strides in floats; all else counts. Words ending in _z, _y, _x
belong to the axes.

    source, source_block, source_z ..   (spectra) voxel (0, 0, 0) of the lattice in the first block;
                                        strides
    source_lane, channels       1: a blocked tensor, whose vectors are read whole; else the stride
                                from channel to channel of a planar one, and its channels from the
                                first block on: the lanes beyond are 0
    source, source_frequency, source_tile, source_block     (images) spectra of tile 0, first block
    blocks                      channel blocks of this task
    tiles_y, tiles_x            rows and columns of tiles in a plane of the grid
    tile0, tile1                tiles of this task
    size_z ..                   points of a tile
    origin_z .., step_z ..      voxel under the first read, or wanted, point of tile (0, 0, 0), may be
                                negative; voxels from tile to tile
    first_z ..                  (images) the first wanted point in the tile
    count_z ..                  points that are read (the others are 0), or wanted
    limit_z ..                  voxels 0 <= v < limit are read (the others are 0), or written
    target, target_frequency, target_tile, target_block     (spectra) of tile 0, first block
    target, target_block, target_z ..   (images) voxel (0, 0, 0) of the lattice in the first block;
                                        blocked
    conjugate                   1: the conjugate spectra
    scale                       of the inverse, which is not normalised: 1 / points, times anything
    accumulate                  1: added to the target
    scratch, scratch_worker     64-byte aligned; worker w owns `scratch_floats(size)` floats from
                                w * scratch_worker on

Nothing but the target is written: all frequencies of a tile, or the wanted voxels within the limit.
Tasks over disjoint targets may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import float_argument
from znnpy_kernels.tile_transforms import (
    SPARE_BYTES,
    box,
    forward_tile,
    gathered,
    inverse_tile,
    prepare,
    scratch_floats,
)

__all__ = ["IMAGES_FIELDS", "SPECTRA_FIELDS", "scratch_floats", "tile_images", "tile_spectra"]

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


@inlined
def _triple(args: Any, first: int, unit: int) -> Any:
    return unit * args[first], unit * args[first + 1], unit * args[first + 2]


@inlined
def _origin(tile: int, tiles_y: int, tiles_x: int, origin: Any, step: Any) -> Any:
    """The voxel under a tile's first point."""
    row = tile // tiles_x
    z, y, x = row // tiles_y, row % tiles_y, tile % tiles_x
    return origin[0] + z * step[0], origin[1] + y * step[1], origin[2] + x * step[2]


@kernel(*SPECTRA_FIELDS)
def tile_spectra(args: Any, worker: int) -> None:
    """Spectra of a range of tiles of some channel blocks. Words: see the module."""
    scratch = args[32] + 4 * worker * args[33]
    prepare(scratch)
    size, steps = _triple(args, 24, 1), _triple(args, 2, 4)
    sign = -1.0 if args[31] else 1.0
    planar = args[5] != 1
    room = scratch + SPARE_BYTES + 8 * LANES * size[0] * size[1] * (size[2] // 2 + 1)
    for tile in range(args[10], args[11]):
        origin = _origin(tile, args[8], args[9], _triple(args, 12, 1), _triple(args, 15, 1))
        first, count = box(origin, _triple(args, 18, 1), _triple(args, 21, 1))
        offset = origin[0] * steps[0] + origin[1] * steps[1] + origin[2] * steps[2]
        for block in range(args[7]):
            source, strides = args[0] + 4 * block * args[1] + offset, steps
            if planar:
                lanes = max(0, min(LANES, args[6] - block * LANES))
                source, strides = gathered(source, steps, 4 * args[5], lanes, first, count, room)
            target = args[27] + 4 * (tile * args[29] + block * args[30])
            forward_tile(source, strides, first, count, size, target, 4 * args[28], sign, scratch)


@kernel(*IMAGES_FIELDS)
def tile_images(args: Any, worker: int) -> None:
    """Wanted points of a range of tiles of some channel blocks. Words: see the module."""
    scratch = args[34] + 4 * worker * args[35]
    prepare(scratch)
    size, steps, wanted = _triple(args, 9, 1), _triple(args, 29, 4), _triple(args, 12, 1)
    scale = float_argument(args[33])
    for tile in range(args[7], args[8]):
        origin = _origin(tile, args[5], args[6], _triple(args, 18, 1), _triple(args, 21, 1))
        skipped, count = box(origin, _triple(args, 15, 1), _triple(args, 24, 1))
        first = (wanted[0] + skipped[0], wanted[1] + skipped[1], wanted[2] + skipped[2])
        offset = (
            (origin[0] - wanted[0]) * steps[0]
            + (origin[1] - wanted[1]) * steps[1]
            + (origin[2] - wanted[2]) * steps[2]
        )
        if count[0] * count[1] * count[2] == 0:
            continue
        for block in range(args[4]):
            source = args[0] + 4 * (tile * args[2] + block * args[3])
            target = args[27] + 4 * block * args[28] + offset
            inverse_tile(
                source, 4 * args[1], size, first, count, target, steps, args[32], scale, scratch
            )
