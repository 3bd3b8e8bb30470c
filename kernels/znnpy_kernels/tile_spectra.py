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
    scale                       of the inverse, which is not normalised: 1 / points, times anything
    old_z, old_y, old_x         (images) points below these stand where the tile before along the axis,
                                if there is one, has written: they are added to what stands there
    bias, channels              (images) added to the inverse: floats of the channels from the first
                                block on, and how many; 0: none, as where tiles overlap
    relu                        (images) 1: 0 is written for what would be less, last of all
    scratch, scratch_worker     64-byte aligned; worker w owns `scratch_floats(size)` floats from
                                w * scratch_worker on

Nothing but the target is written: all frequencies of a tile, or the wanted voxels within the limit.
Tasks over disjoint targets may run concurrently. Where tiles overlap, all tiles of a block must be
written in the order of their numbers: the first of a voxel stores, the others add.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.fft_codelets import (
    SPARE_BYTES,
    VECTOR_BYTES,
    backward_lines,
    forward_lines,
)
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import float_argument
from znnpy_kernels.tile_transforms import (
    abreast,
    added,
    box,
    forward_planes,
    from_spectra,
    gathered,
    inverse_planes,
    last_axis,
    offset,
    prepare,
    scratch_floats,
    set_bias,
    tile_bytes,
    to_spectra,
    voxel_room,
)

__all__ = ["IMAGES_FIELDS", "SPECTRA_FIELDS", "scratch_floats", "tile_images", "tile_spectra"]

SPECTRA_FIELDS = (
    "source", "source_block", "source_z", "source_y", "source_x", "source_lane", "channels",
    "blocks", "tiles_y", "tiles_x", "tile0", "tile1", "origin_z", "origin_y", "origin_x", "step_z",
    "step_y", "step_x", "count_z", "count_y", "count_x", "limit_z", "limit_y", "limit_x", "size_z",
    "size_y", "size_x", "target", "target_frequency", "target_tile", "target_block", "scratch",
    "scratch_worker",
)  # fmt: skip
IMAGES_FIELDS = (
    "source", "source_frequency", "source_tile", "source_block", "blocks", "tiles_y", "tiles_x",
    "tile0", "tile1", "size_z", "size_y", "size_x", "first_z", "first_y", "first_x", "count_z",
    "count_y", "count_x", "origin_z", "origin_y", "origin_x", "step_z", "step_y", "step_x",
    "limit_z", "limit_y", "limit_x", "target", "target_block", "target_z", "target_y", "target_x",
    "old_z", "old_y", "old_x", "scale:float", "scratch", "scratch_worker", "bias", "channels", "relu",
)  # fmt: skip


@inlined
def _triple(args: Any, first: int, unit: int) -> Any:
    return unit * args[first], unit * args[first + 1], unit * args[first + 2]


@inlined
def _tile(member: int, grid: Any, place: Any) -> Any:
    """Of a tile: the voxel under its first point, and which of its points lie inside.

    A member is a block of a tile. `grid`: rows, columns, first tile and blocks of the task;
    `place`: origin, step, count and limit.
    """
    tile = grid[2] + member // grid[3]
    row = tile // grid[1]
    z, y, x = row // grid[0], row % grid[0], tile % grid[1]
    first, step = place[0], place[1]
    origin = first[0] + z * step[0], first[1] + y * step[1], first[2] + x * step[2]
    inside, count = box(origin, place[2], place[3])
    return origin, inside, count


@inlined
def _old(overlap: Any, origin: Any, first: Any) -> Any:
    """Points of a tile that other tiles have written: none along an axis where it is the first."""
    return (
        overlap[0] if origin[0] > first[0] else 0,
        overlap[1] if origin[1] > first[1] else 0,
        overlap[2] if origin[2] > first[2] else 0,
    )


@inlined
def _spectrum(member: int, grid: Any, strides: Any) -> Any:
    """Bytes to the first frequency of a member; `strides`: from tile to tile, from block to block."""
    return (grid[2] + member // grid[3]) * strides[0] + member % grid[3] * strides[1]


@inlined
def _together(start: int, end: int, grid: Any, strides: Any, size: Any) -> Any:
    """Members from `start` on whose spectra lie one step apart, and that step."""
    step = _spectrum(start + 1, grid, strides) - _spectrum(start, grid, strides)
    count = 1
    while count < min(end - start, abreast(size)):
        member = start + count
        if _spectrum(member, grid, strides) != _spectrum(member - 1, grid, strides) + step:
            break
        count += 1
    return count, step


@kernel(*SPECTRA_FIELDS)
def tile_spectra(args: Any, worker: int) -> None:
    """Spectra of a range of tiles of some channel blocks. Words: see the module."""
    scratch = args[31] + 4 * worker * args[32]
    prepare(scratch, 0)
    size, steps = _triple(args, 24, 1), _triple(args, 2, 4)
    grid = args[8], args[9], args[10], args[7]
    place = _triple(args, 12, 1), _triple(args, 15, 1), _triple(args, 18, 1), _triple(args, 21, 1)
    strides = 4 * args[29], 4 * args[30]
    work, room = scratch + SPARE_BYTES, voxel_room(scratch, size)
    start, end = 0, (args[11] - args[10]) * args[7]
    while start < end:
        tiles, step = _together(start, end, grid, strides, size)
        for member in range(start, start + tiles):
            origin, first, count = _tile(member, grid, place)
            block = member % args[7]
            source, apart = args[0] + 4 * block * args[1] + offset(origin, steps), steps
            if args[5] != 1:
                lanes = max(0, min(LANES, args[6] - block * LANES))
                source, apart = gathered(source, steps, 4 * args[5], lanes, first, count, room)
            following = args[0] + 4 * ((member + 1) % args[7]) * args[1]
            following += offset(_tile(member + 1, grid, place)[0], steps)
            here = work + (member - start) * tile_bytes(size)
            forward_planes(source, apart, first, count, size, here, 1.0, scratch, following)
        target = args[27] + _spectrum(start, grid, strides)
        columns = to_spectra(
            work, size, tiles, target, step, 4 * args[28], VECTOR_BYTES, 1.0, scratch
        )
        forward_lines(size[last_axis(size)[0]], columns, 1.0)
        start += tiles


@kernel(*IMAGES_FIELDS)
def tile_images(args: Any, worker: int) -> None:
    """Wanted points of a range of tiles of some channel blocks. Words: see the module."""
    scratch = args[36] + 4 * worker * args[37]
    prepare(scratch, args[40])
    size, steps, wanted = _triple(args, 9, 1), _triple(args, 29, 4), _triple(args, 12, 1)
    grid = args[5], args[6], args[7], args[4]
    place = _triple(args, 18, 1), _triple(args, 21, 1), _triple(args, 15, 1), _triple(args, 24, 1)
    strides, scale = (4 * args[2], 4 * args[3]), float_argument(args[35])
    overlap = _triple(args, 32, 1)
    work = scratch + SPARE_BYTES
    start, end = 0, (args[8] - args[7]) * args[4]
    while start < end:
        tiles, step = _together(start, end, grid, strides, size)
        source = args[0] + _spectrum(start, grid, strides)
        columns = from_spectra(source, step, 4 * args[1], VECTOR_BYTES, size, tiles, work, scratch)
        backward_lines(size[last_axis(size)[0]], columns, 1.0)
        for member in range(start, start + tiles):
            origin, skipped, count = _tile(member, grid, place)
            first = added(wanted, skipped)
            target = args[27] + 4 * (member % args[4]) * args[28]
            target += offset(origin, steps) - offset(wanted, steps)
            here = work + (member - start) * tile_bytes(size)
            if args[38]:
                block = member % args[4]
                set_bias(scratch, args[38] + VECTOR_BYTES * block, args[39] - LANES * block)
            old = _old(overlap, origin, place[0])
            inverse_planes(here, size, first, count, target, steps, old, scale, scratch)
        start += tiles
