"""Transforms tiles of few planar channels to spectra; lanes hold tiles and channels, so none is idle.

A block of lanes holds LANES // images tiles: lane (t % tiles) * images + i is channel i of tile t; where images
come phase by phase, all of the first phase are before those of the next. Each block is a row of complex
vectors in the order of frequencies of `tile_spectra`. `spectral_products` and `spectral_gradients` take the
tiles of one block, `images` floats from tile to tile.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_image, source_z, source_y, source_x      voxel (0, 0, 0) of the lattice in the first
                                image; strides
    images                      of a phase; those of all phases are at most LANES
    phases_z, phases_y, phases_x        how many
    phase_z, phase_y, phase_x           stride from phase to phase
    between_z, between_y, between_x     the same in voxels
    tiles_z, tiles_y, tiles_x   of the grid, numbered in `turns`
    block0, block1              blocks of lanes of this task
    plane0, plane1              (tile_lane_planes) planes of this task
    step_z, step_y, step_x      voxels from tile to tile, of which the first begins at voxel (0, 0, 0)
    extent_z, extent_y, extent_x    voxels from the lattice's first on: beyond are zeros
    apart_z, apart_y, apart_x   voxels from point to point of the lattice
    size_z, size_y, size_x      points of a tile
    target, target_block, target_frequency      spectra of the first block of the grid; strides
    scratch, scratch_worker     64-byte aligned; worker w owns `lanes_floats(size)` floats from
                                w * scratch_worker on

`tile_lane_planes` leaves tiles of several planes transformed along these alone, where their spectra will lie;
`tile_columns` takes them from there.

Tasks over disjoint blocks or planes may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES, forward_lines
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import scratch_tile, to_voxels
from znnpy_kernels.simd.vectors import below, load_masked, splat, store
from znnpy_kernels.spectral.tile_spectra import scratch_floats
from znnpy_kernels.spectral.tile_transforms import (
    forward_planes,
    forward_rows,
    last_axis,
    plane_to_spectra,
    prepare,
    to_spectra,
    voxel_room,
)
from znnpy_kernels.spectral.turns import turns_of

AT = words(
    "source source_image source_z source_y source_x images tiles_z tiles_y tiles_x block0 block1 "
    "step_z step_y step_x extent_z extent_y extent_x apart_z apart_y apart_x phases_z phases_y "
    "phases_x phase_z phase_y phase_x between_z between_y between_x size_z size_y size_x target "
    "target_block target_frequency scratch scratch_worker",
)
PLANES = words(AT, "plane0 plane1")
# A table, as addresses and borders are the same for all rows of a block.
WORDS = 4  # of a lane: address of its first voxel, points inside along z, y, x
# LANES entries: whole cache lines, so what follows stays aligned.
TABLE_BYTES = 8 * WORDS * LANES


def lanes_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    return scratch_floats(size) + TABLE_BYTES // 4


@inlined
def _inside(extent: int, before: int, apart: int, first: int, size: int) -> Any:
    """Return how many points of a tile lie inside; its first is number `first`, counted from voxel `before`."""
    return min(size, cover(max(0, extent - before), apart) - first)


@inlined
def _table(args: Any, block: int, size: Any, table: int) -> None:
    """Write where each lane's tile begins, and how many of its points lie inside."""
    images, lane = args[AT.images], longs(table)
    each = images * args[AT.phases_z] * args[AT.phases_y] * args[AT.phases_x]
    # Whole tiles in a vector; lanes beyond them are idle.
    tiles = LANES // each
    grid = args[AT.tiles_z], args[AT.tiles_y], args[AT.tiles_x]
    step = args[AT.step_z], args[AT.step_y], args[AT.step_x]
    for number in range(LANES):
        # Phase by phase: see the head of this module.
        tile, phase = block * tiles + number // each, number % each // images
        phase_z, phase_y, phase_x = (
            phase // args[AT.phases_x] // args[AT.phases_y],
            phase // args[AT.phases_x] % args[AT.phases_y],
            phase % args[AT.phases_x],
        )
        here = number // each < tiles and tile < grid[0] * grid[1] * grid[2]
        # Idle lanes stand at the first tile: they have no plane inside.
        _, place = turns_of(tile if here else 0, grid, size, step)
        z, y, x = place[0] * step[0], place[1] * step[1], place[2] * step[2]
        address = args[AT.source] + 4 * (
            number % images * args[AT.source_image]
            + z * args[AT.source_z]
            + y * args[AT.source_y]
            + x * args[AT.source_x]
            + phase_z * args[AT.phase_z]
            + phase_y * args[AT.phase_y]
            + phase_x * args[AT.phase_x]
        )
        lane[WORDS * number] = address
        inside = _inside(
            args[AT.extent_z], phase_z * args[AT.between_z], args[AT.apart_z], z, size[0]
        )
        # Lanes without a tile have no planes inside, so they become zeros.
        lane[WORDS * number + 1] = inside if here else 0
        lane[WORDS * number + 2] = _inside(
            args[AT.extent_y], phase_y * args[AT.between_y], args[AT.apart_y], y, size[1]
        )
        lane[WORDS * number + 3] = _inside(
            args[AT.extent_x], phase_x * args[AT.between_x], args[AT.apart_x], x, size[2]
        )


@inlined
def _copy(source: int, step: int, count: int, target: int) -> None:
    """`count` points of a row, at most LANES, and zeros up to LANES."""
    # Strides of 1, without dilation: one masked load.
    if step == 1:
        store(target, load_masked(source, below(count)))
        return
    # A row at a time is gathered from its step; zeros first, for what lies outside.
    store(target, splat(0.0))
    voxels, row = floats(source), floats(target)
    for x in range(count):
        row[x] = voxels[x * step]


@inlined
def _gathered(args: Any, size: Any, low: int, high: int, table: int, tile: int, room: int) -> None:
    """Voxels [z][y][x][lane] of planes low..high of all lanes' tiles; `tile` is room for LANES * LANES floats."""
    # Row by row: each lane's row is copied to a row of a tile, which is transposed: so memory is read along x.
    lane = longs(table)
    for row in range((high - low) * size[1]):
        z, y = low + row // size[1], row % size[1]
        target = room + row * size[2] * VECTOR_BYTES
        for first in range(0, size[2], LANES):
            for number in range(LANES):
                inside = z < lane[WORDS * number + 1] and y < lane[WORDS * number + 2]
                count = min(LANES, lane[WORDS * number + 3] - first) if inside else 0
                source = lane[WORDS * number] + 4 * (
                    z * args[AT.source_z] + y * args[AT.source_y] + first * args[AT.source_x]
                )
                _copy(source, args[AT.source_x], max(0, count), tile + number * VECTOR_BYTES)
            to_voxels(tile, target + first * VECTOR_BYTES, min(LANES, size[2] - first))


@inlined
def _rooms(args: Any, worker: int, size: Any) -> Any:
    """Scratch, room of half spectra, table of lanes, room of voxels; steps between voxels."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    table = voxel_room(scratch, size)
    steps = size[1] * size[2] * VECTOR_BYTES, size[2] * VECTOR_BYTES, VECTOR_BYTES
    return scratch, scratch + SPARE_BYTES, table, table + TABLE_BYTES, steps


@kernel(AT)
def tile_lanes(args: Any, worker: int) -> None:
    """Spectra of some blocks of lanes. Words: see the module."""
    size = args[AT.size_z], args[AT.size_y], args[AT.size_x]
    scratch, work, table, room, steps = _rooms(args, worker, size)
    prepare(scratch, 0)
    origin, tile = (0, 0, 0), scratch_tile()
    for block in range(args[AT.block0], args[AT.block1]):
        _table(args, block, size, table)
        _gathered(args, size, 0, size[0], table, tile, room)
        forward_planes(room, steps, origin, size, size, work, 1.0, scratch, room)
        target = args[AT.target] + 4 * block * args[AT.target_block]
        frequency = 4 * args[AT.target_frequency]
        # From block to block there is nothing to step over: one tile at a time.
        columns = to_spectra(work, size, 1, target, 0, frequency, VECTOR_BYTES, 1.0, scratch)
        forward_lines(size[last_axis(size)[0]], columns, 1.0)


@kernel(PLANES)
def tile_lane_planes(args: Any, worker: int) -> None:
    """Half transformed planes of some blocks of lanes. Words: see the module."""
    size = args[AT.size_z], args[AT.size_y], args[AT.size_x]
    low, high = args[PLANES.plane0], args[PLANES.plane1]
    scratch, work, table, room, steps = _rooms(args, worker, size)
    prepare(scratch, 0)
    origin, tile, frequency = (0, 0, 0), scratch_tile(), 4 * args[AT.target_frequency]
    for block in range(args[AT.block0], args[AT.block1]):
        _table(args, block, size, table)
        _gathered(args, size, low, high, table, tile, room)
        target = args[AT.target] + 4 * block * args[AT.target_block]
        for z in range(low, high):
            here = room + (z - low) * steps[0], (0, steps[1], steps[2])
            forward_rows(here[0], here[1], origin, size, size, work, 1.0, scratch, 0, size[1])
            plane = target + z * size[1] * (size[2] // 2 + 1) * frequency
            plane_to_spectra(work, size, plane, frequency, scratch)
