"""Transforms tiles of channel blocks to spectra and back, for tiled spectral convolution (overlap-save).

A tile has nz * ny * nx points, each size one of `fft.codelets.SIZES`, and the spectrum of LANES real
images at once: frequency f = (kz * ny + ky) * (nx // 2 + 1) + kx, each LANES real parts and then LANES
imaginary parts; on the way back `mirrored` ones are not read. Tiles lie in a grid and are numbered in `turns`;
the one at place (tz, ty, tx) begins at voxel origin + (tz, ty, tx) * step. A sparse convolution is an ordinary one
on interleaved lattices: the strides of a lattice are the tensor's times the sparsity.

Argument words. Addresses in bytes; strides in floats; all else counts. Words ending in _z, _y, _x
belong to the axes.

    source, source_block, source_z ..   (spectra) voxel (0, 0, 0) of the lattice in the first block;
                                        strides
    source_lane, channels       1: a blocked tensor, whose vectors are read whole; else the stride
                                from channel to channel of a planar one, and its channels from the
                                first block on: the lanes beyond are 0
    source, source_frequency, source_tile, source_block     (images) spectra of tile 0, first block
    blocks                      channel blocks of this task
    tiles_z ..                  tiles of the grid
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
    bias, channels              (images) added to the inverse: floats of the channels from the first
                                block on, and how many; 0: none, as where tiles overlap
    relu                        (images) 1: 0 is written for what would be less, last of all
    scratch, scratch_worker     64-byte aligned; worker w owns `scratch_floats(size)` floats from
                                w * scratch_worker on

Nothing but the target is written: all frequencies of a tile, or the wanted voxels within the limit.
Tasks over disjoint targets may run concurrently. Where wanted points of tiles overlap, these must be
written in the order of their numbers: the first of a voxel stores, the others add.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES, forward_lines
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.spectral.tile_transforms import (
    abreast,
    added,
    box,
    forward_planes,
    gathered,
    inverse_planes,
    last_axis,
    offset,
    prepare,
    scratch_floats,
    set_bias,
    tile_bytes,
    tiles_from_spectra,
    to_spectra,
    voxel_room,
)
from znnpy_kernels.spectral.turns import fresh, turns_of

__all__ = ["scratch_floats", "tile_images", "tile_spectra"]

TILES = words(
    "blocks tiles_z tiles_y tiles_x tile0 tile1 size_z size_y size_x origin_z origin_y origin_x "
    "step_z step_y step_x count_z count_y count_x limit_z limit_y limit_x scratch scratch_worker"
)
"""Words that both kernels begin with."""
SPECTRA = words(
    TILES,
    "source source_block source_z source_y source_x source_lane channels target target_frequency "
    "target_tile target_block",
)
IMAGES = words(
    TILES,
    "source source_frequency source_tile source_block first_z first_y first_x target target_block "
    "target_z target_y target_x scale:float bias channels relu",
)


@inlined
def triple(args: Any, z: int, y: int, x: int, unit: int) -> Any:
    """Return three words, as multiples of a unit."""
    # Numbers of words are constants here, so this is three loads.
    return unit * args[z], unit * args[y], unit * args[x]


@inlined
def task_words(args: Any, worker: int) -> Any:
    """Return scratch, points of a tile, `grid` and `place` as in `inside_of`, and the number of members of a task."""
    at = TILES
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    size = triple(args, at.size_z, at.size_y, at.size_x, 1)
    grid = (
        triple(args, at.tiles_z, at.tiles_y, at.tiles_x, 1),
        size,
        args[at.tile0],
        args[at.blocks],
    )
    place = (
        triple(args, at.origin_z, at.origin_y, at.origin_x, 1),
        triple(args, at.step_z, at.step_y, at.step_x, 1),
        triple(args, at.count_z, at.count_y, at.count_x, 1),
        triple(args, at.limit_z, at.limit_y, at.limit_x, 1),
    )
    return scratch, size, grid, place, (args[at.tile1] - args[at.tile0]) * args[at.blocks]


@inlined
def _turns(member: int, grid: Any, place: Any) -> Any:
    """Return the turns of a member's tile, and its place in the grid."""
    # Members go block by block within a tile: voxels of a tile in all its blocks are near each other.
    return turns_of(grid[2] + member // grid[3], grid[0], grid[1], place[1])


@inlined
def inside_of(member: int, grid: Any, place: Any) -> Any:
    """Return the voxel under a tile's first point, and which of its points lie inside.

    A member is a block of a tile. `grid`: tiles of the grid, points of a tile, first tile and blocks of the task;
    `place`: origin, step, count and limit.
    """
    _, (z, y, x) = _turns(member, grid, place)
    first, step = place[0], place[1]
    origin = first[0] + z * step[0], first[1] + y * step[1], first[2] + x * step[2]
    inside, count = box(origin, place[2], place[3])
    return origin, inside, count


@inlined
def fresh_points(member: int, grid: Any, place: Any, first: Any) -> Any:
    """Return from which point of a tile on, and up to which, nobody has written before; `first`: the first wanted."""
    turns, places = _turns(member, grid, place)
    tiles, size, step, count = grid[0], grid[1], place[1], place[2]
    z = fresh(turns[0], places[0], tiles[0], size[0], step[0], count[0])
    y = fresh(turns[1], places[1], tiles[1], size[1], step[1], count[1])
    x = fresh(turns[2], places[2], tiles[2], size[2], step[2], count[2])
    return added(first, (z[0], y[0], x[0])), added(first, (z[1], y[1], x[1]))


@inlined
def spectrum_at(member: int, grid: Any, strides: Any) -> Any:
    """Return the bytes to the first frequency of a member; `strides`: from tile to tile, from block to block."""
    return (grid[2] + member // grid[3]) * strides[0] + member % grid[3] * strides[1]


@inlined
def _together(start: int, end: int, grid: Any, strides: Any, size: Any) -> Any:
    """Members from `start` on whose spectra lie one step apart, and that step."""
    # By difference, as the step changes where a tile ends and the next begins.
    step = spectrum_at(start + 1, grid, strides) - spectrum_at(start, grid, strides)
    count = 1
    while count < min(end - start, abreast(size)):
        member = start + count
        if spectrum_at(member, grid, strides) != spectrum_at(member - 1, grid, strides) + step:
            break
        count += 1
    return count, step


@kernel(SPECTRA)
def tile_spectra(args: Any, worker: int) -> None:
    """Spectra of a range of tiles of some channel blocks. Words: see the module."""
    at = SPECTRA
    scratch, size, grid, place, end = task_words(args, worker)
    prepare(scratch, 0)
    steps = triple(args, at.source_z, at.source_y, at.source_x, 4)
    strides = 4 * args[at.target_tile], 4 * args[at.target_block]
    work, room, start = scratch + SPARE_BYTES, voxel_room(scratch, size), 0
    while start < end:
        tiles, step = _together(start, end, grid, strides, size)
        for member in range(start, start + tiles):
            origin, first, count = inside_of(member, grid, place)
            block = member % args[at.blocks]
            source, apart = (
                args[at.source] + 4 * block * args[at.source_block] + offset(origin, steps),
                steps,
            )
            if args[at.source_lane] != 1:
                # Channels of the last block may be fewer.
                lanes = max(0, min(LANES, args[at.channels] - block * LANES))
                source, apart = gathered(
                    source, steps, 4 * args[at.source_lane], lanes, first, count, room
                )
            # Behind the last member there may be no tile: it asks for its own once more.
            then = min(member + 1, end - 1)
            following = args[at.source] + 4 * (then % args[at.blocks]) * args[at.source_block]
            following += offset(inside_of(then, grid, place)[0], steps)
            here = work + (member - start) * tile_bytes(size)
            forward_planes(source, apart, first, count, size, here, 1.0, scratch, following)
        target = args[at.target] + spectrum_at(start, grid, strides)
        columns = to_spectra(
            work,
            size,
            tiles,
            target,
            step,
            4 * args[at.target_frequency],
            VECTOR_BYTES,
            1.0,
            scratch,
        )
        forward_lines(size[last_axis(size)[0]], columns, 1.0)
        start += tiles


@kernel(IMAGES)
def tile_images(args: Any, worker: int) -> None:
    """Wanted points of a range of tiles of some channel blocks. Words: see the module."""
    at = IMAGES
    scratch, size, grid, place, end = task_words(args, worker)
    prepare(scratch, args[at.relu])
    steps = triple(args, at.target_z, at.target_y, at.target_x, 4)
    wanted = triple(args, at.first_z, at.first_y, at.first_x, 1)
    strides = 4 * args[at.source_tile], 4 * args[at.source_block]
    scale = float_argument(args[at.scale])
    work, start = scratch + SPARE_BYTES, 0
    while start < end:
        tiles, step = _together(start, end, grid, strides, size)
        source = args[at.source] + spectrum_at(start, grid, strides)
        frequency = 4 * args[at.source_frequency]
        tiles_from_spectra(source, step, frequency, size, tiles, work, scratch, False, size[0])
        for member in range(start, start + tiles):
            origin, skipped, count = inside_of(member, grid, place)
            first = added(wanted, skipped)
            target = args[at.target] + 4 * (member % args[at.blocks]) * args[at.target_block]
            # Back by the first wanted point, so that `first` counts from the tile's first point.
            target += offset(origin, steps) - offset(wanted, steps)
            here = work + (member - start) * tile_bytes(size)
            if args[at.bias]:
                block = member % args[at.blocks]
                set_bias(
                    scratch, args[at.bias] + VECTOR_BYTES * block, args[at.channels] - LANES * block
                )
            low, high = fresh_points(member, grid, place, wanted)
            inverse_planes(here, size, first, count, target, steps, low, high, scale, scratch)
        start += tiles
