"""Weight gradients by Winograd's minimal filtering, first stage: the points of tiles of source and output gradient.

Made once, for all tasks of the second stage (`gradient_sums`). Those of a block lie together, [y][x][z][tile][lane],
an odd number of lines from point to point and from block to block. Tasks of any blocks and tiles may run concurrently.

Argument words. Addresses in bytes; strides in floats; all else counts.

    images, images_block, images_z, images_y    voxel (0, 0, 0) of the first block of source or gradient
    blocks, images_size_*                       blocks of this task; voxels
    gradient_size_*                             voxels of the output gradient: tiles that begin beyond are left out
    dilation_*                                  voxels from tap to tap
    z0, z1, y0, y1                              tiles of this task along z and y; all along x
    tiles, first                                in each point; number of the first one of this task
    target                                      points of the first block, 64-byte aligned
    scratch, scratch_worker                     worker w owns `points_scratch_floats` from w * scratch_worker on:
                                                voxels of a tile that reaches beyond its images, planes of one tile
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.gradient_lines import gradient_column, gradient_plane, source_column
from znnpy_kernels.winograd.line_transforms import (
    asking_for_lines_of,
    asking_of,
    gradient_line,
    source_line,
    source_plane_of,
    stepped_plane_of,
)
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes
from znnpy_kernels.winograd.tiles import fetch, origin, tiles_along

AT = words(
    "images images_block images_z images_y blocks images_size_z images_size_y images_size_x "
    "gradient_size_z gradient_size_y gradient_size_x dilation_z dilation_y dilation_x "
    "z0 z1 y0 y1 tiles first target scratch scratch_worker"
)
_ask_to_read, _source_plane = asking_of((1, 2)), source_plane_of((1, 2))
_ask_for_gradients = asking_of((1, 2), new=True)
_ask_for_lines = asking_for_lines_of()
_source_of_run = stepped_plane_of(source_line, lambda axis: axis.points)
_gradient_of_run = stepped_plane_of(gradient_line, lambda axis: axis.new)
AHEAD = 2  # tiles of a run ahead whose lines are asked for


def block_floats(taps: Triple, tiles: int) -> int:
    """Floats of all points of so many tiles of one block."""
    return int(_block_bytes(FORMS[taps], tiles)) // 4


def points_scratch_floats(taps: Triple) -> int:
    """Floats of scratch that each worker needs."""
    form = FORMS[taps]
    return int(2 * form.points_z * form.points_y * form.points_x * VECTOR_BYTES) // 4


def _block_bytes(form: Any, tiles: int) -> Any:
    points = form.points_z * form.points_y * form.points_x
    return odd_bytes(points * odd_bytes(tiles) // VECTOR_BYTES)


@inlined
def compiled_block_bytes(form: Any, tiles: int) -> Any:
    """Return the bytes from block to block, with so many tiles in each point."""
    points = form.points_z * form.points_y * form.points_x
    return compiled_odd_bytes(points * compiled_odd_bytes(tiles) // VECTOR_BYTES)


@inlined
def _plane(
    form: Any, of_source: bool, source: int, step_y: int, step_x: int, target: int, step: int
) -> None:
    """Transform a plane of voxels along y and x."""
    if of_source:
        _source_plane(form, source, step_y, step_x, target, step)
    else:
        gradient_plane(form, source, step_y, step_x, target, step)


@inlined
def _ask(form: Any, of_source: bool, place: int, step_y: int, step_x: int) -> None:
    """Ask for the new columns of a plane."""
    if of_source:
        _ask_to_read(form, place, step_y, step_x)
    else:
        _ask_for_gradients(form, place, step_y, step_x)


@inlined
def _tile(
    form: Any, of_source: bool, args: Any, base: int, place: Any, scratch: int, target: int
) -> None:
    """Points of a tile of one block."""
    counts = form.new_z, form.new_y, form.new_x
    if of_source:
        counts = form.points_z, form.points_y, form.points_x
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    rows = args[AT.images_z], args[AT.images_y], LANES
    sizes = args[AT.images_size_z], args[AT.images_size_y], args[AT.images_size_x]
    columns, step = form.points_y * form.points_x, compiled_odd_bytes(args[AT.tiles])
    here, z_step, y_step, x_step = fetch(sizes, rows, dilation, base, place, counts, scratch)
    # The next tile along x, which neighbours this one or its lattice.
    ahead = base + 4 * (place[0] * rows[0] + place[1] * rows[1])
    ahead += (place[2] + form.new_x * dilation[2]) * VECTOR_BYTES
    planes = scratch + form.points_z * columns * VECTOR_BYTES
    for z in range(counts[0]):
        asked, into = ahead + 4 * z * rows[0] * dilation[0], planes + z * columns * VECTOR_BYTES
        _ask(form, of_source, asked, 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2])
        if form.points_z == 1:
            _plane(form, of_source, here, y_step, x_step, target, step)
        else:
            _plane(form, of_source, here + z * z_step, y_step, x_step, into, VECTOR_BYTES)
    if form.points_z > 1:
        for column in range(columns):
            here, into = planes + column * VECTOR_BYTES, target + column * form.points_z * step
            if of_source:
                source_column(form, here, columns * VECTOR_BYTES, into, step)
            else:
                gradient_column(form, here, columns * VECTOR_BYTES, into, step)


@inlined
def _run(
    form: Any, of_source: bool, args: Any, base: int, z: int, y: int, along_x: int, target: int
) -> Any:
    """Points of the first tiles along x of a row, side by side, all of whose voxels exist; their number.

    None of cubes, or of dilated ones.
    """
    points_y, points_x = form.new_y, form.new_x
    if of_source:
        points_y, points_x = form.points_y, form.points_x
    far = y + (points_y - 1) * args[AT.dilation_y]
    if form.points_z > 1 or args[AT.dilation_x] > 1 or far >= args[AT.images_size_y]:
        return 0
    run = min(along_x, (args[AT.images_size_x] - points_x) // form.new_x + 1)
    step, step_y = compiled_odd_bytes(args[AT.tiles]), 4 * args[AT.images_y] * args[AT.dilation_y]
    here, advance = (
        base + 4 * (z * args[AT.images_z] + y * args[AT.images_y]),
        form.new_x * VECTOR_BYTES,
    )
    # Of the source new rows and columns alone: the others are those of tiles before.
    ahead = here + AHEAD * advance
    ahead += (points_y - form.new_y) * step_y + (points_x - form.new_x) * VECTOR_BYTES
    for _ in range(run):
        _ask_for_lines(form, ahead, step_y)
        if of_source:
            _source_of_run(form, here, step_y, target, step)
        else:
            _gradient_of_run(form, here, step_y, target, step)
        here, ahead, target = here + advance, ahead + advance, target + VECTOR_BYTES
    return max(run, 0)


@inlined
def _points(form: Any, of_source: bool, args: Any, scratch: int) -> None:
    along_x = tiles_along(args[AT.gradient_size_x], args[AT.dilation_x], form.new_x)
    step = compiled_block_bytes(form, args[AT.tiles])
    for block in range(args[AT.blocks]):
        base = args[AT.images] + 4 * block * args[AT.images_block]
        target = args[AT.target] + block * step + args[AT.first] * VECTOR_BYTES
        for tile_z in range(args[AT.z0], args[AT.z1]):
            z = origin(tile_z, args[AT.dilation_z], form.new_z)
            for tile_y in range(args[AT.y0], args[AT.y1]):
                y = origin(tile_y, args[AT.dilation_y], form.new_y)
                if z < args[AT.gradient_size_z] and y < args[AT.gradient_size_y]:
                    run = _run(form, of_source, args, base, z, y, along_x, target)
                    target += run * VECTOR_BYTES
                    for tile in range(run, along_x):
                        x = origin(tile, args[AT.dilation_x], form.new_x)
                        if x < args[AT.gradient_size_x]:
                            _tile(form, of_source, args, base, (z, y, x), scratch, target)
                            target += VECTOR_BYTES


def _winograd_gradient_points(taps: Triple, of_source: bool) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x, of the source or of the output gradient."""
    form, of = FORMS[taps], "source" if of_source else "gradient"

    @kernel(AT, name=f"winograd_{of}_points{name_of(taps)}")
    def winograd_gradient_points(args: Any, worker: int) -> None:
        """Points of some tiles. Words: see the module."""
        scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        _points(form, of_source, args, scratch)

    return winograd_gradient_points


SOURCE_POINTS = {taps: _winograd_gradient_points(taps, True) for taps in FORMS}
GRADIENT_POINTS = {taps: _winograd_gradient_points(taps, False) for taps in FORMS}
"""By the taps of filters along z, y, x."""
