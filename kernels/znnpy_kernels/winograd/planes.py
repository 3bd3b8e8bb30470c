"""Transforms the planes of one tile and channel block along z and x, and outputs back.

Along an axis of one tap (`forms`) a plane is one vector wide, and stays as it is there.

`AT` has the argument words of all kernels that do so. Addresses in bytes; strides in floats; all else counts.

    source, source_block, source_z, source_y        voxel (0, 0, 0) of the first block of channels
    inputs, source_size_*       images and voxels of the source; tiles see zeros beyond
    dilation_*                  voxels from tap to tap
    target, target_block, target_z, target_y        voxel (0, 0, 0) of the first block
    blocks, target_size_*       vectors of output channels and voxels of the target
    z0, z1, y0, y1              tiles of this task along z and y; all along x
    bias, slope, slopes, output, output_block, output_z, output_y, bias_gradient    see `direct.epilogue`
    scratch, scratch_worker     64-byte aligned; worker w owns what a kernel needs from w * scratch_worker on
    before_*                    voxels before the source that the target's first ones see, all zeros
    accumulate                  0: overwrite the target; 1: add to it before bias and transfer
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.forms import POINTS
from znnpy_kernels.winograd.line_transforms import asking_of, source_plane_of, target_plane_of
from znnpy_kernels.winograd.tiles import origin, tiles_along

AT = words(
    "source source_block source_z source_y inputs source_size_z source_size_y source_size_x "
    "dilation_z dilation_y dilation_x target target_block target_z target_y blocks "
    "target_size_z target_size_y target_size_x z0 z1 y0 y1 bias slope:float slopes output scratch "
    "scratch_worker before_z before_y before_x output_block output_z output_y bias_gradient accumulate",
)
# Tiles ahead whose voxels are asked for, and the lines of outputs and of the values whose signs a data gradient needs.
# One: its lines arrive while a tile is transformed; further ones would push out what is in use. Of planes of few
# columns, more: a forward pass of 1 x 3 x 3 filters with 32 channels, 16 x 128^2, takes 12.9 ms with one, 10.7 with
# four; with lines of outputs 9.9, its data gradient with those of values 12.6 in place of 13.9. Of 3^3 filters with 8
# channels, 96^3, a forward pass takes 12.9 ms with outputs asked for, 14.2 without.
AHEAD, THIN_AHEAD = 1, 4
ask_to_read, source_plane = asking_of((0, 2)), source_plane_of((0, 2))
target_plane = target_plane_of(AT)
ask_to_write = asking_of((0, 2), new=True, write=True)
ask_for_values = asking_of((0, 2), new=True)


def plane(form: Any) -> Any:
    """Return the number of columns: points of a tile along z and x."""
    return form.points_z * form.points_x


def loose_bytes(form: Any) -> Any:
    """Return the bytes of a tile that reaches beyond the source, or of its outputs and their y."""
    return max(form.points_z * form.points_x, 2 * form.new_z * form.new_x) * VECTOR_BYTES


@inlined
def is_thin(form: Any) -> Any:
    """Whether planes have fewer columns than those of cubes."""
    return form.points_z * form.points_x < POINTS * POINTS


@inlined
def _ahead(form: Any) -> Any:
    return THIN_AHEAD if is_thin(form) else AHEAD


compiled_plane, compiled_loose_bytes = inlined(plane), inlined(loose_bytes)


def places_bytes(tiles: int) -> int:
    """Return the bytes for the places of so many tiles: two words each, in whole cache lines."""
    # Whole lines, as vectors follow that are aligned to their bytes.
    return -(-2 * 8 * tiles // 64) * 64


@inlined
def holds(place: int, size: int, dilation: int, count: int) -> Any:
    """Whether `count` voxels from a place on all lie inside."""
    # Without a division, which for each row of a tile would take as long as its transform along a line.
    return place >= 0 and place + (count - 1) * dilation < size


@inlined
def seen_of(place: int, size: int, dilation: int, points: int) -> Any:
    """The first voxel of a tile of `points` that lies in the source, and how many do; it may begin before."""
    # A tile of the data gradient may begin before the source, among zeros.
    first = max(0, cover(-place, dilation))
    return first, min(points, cover(size - place, dilation)) - first


@inlined
def copied(source: int, steps: Any, counts: Any, target: int, to: Any) -> None:
    """Vectors of a plane from place to place; pairs along z, x."""
    for z in range(counts[0]):
        for x in range(counts[1]):
            store(target + z * to[0] + x * to[1], load(source + z * steps[0] + x * steps[1]))


@inlined
def zeros(target: int, vectors: int) -> None:
    for vector in range(vectors):
        store(target + vector * VECTOR_BYTES, splat(0.0))


@inlined
def _transformed(
    form: Any, args: Any, source: int, ahead: int, place: Any, loose: int, target: int, column: int
) -> None:
    """A row of voxels of one tile and block, transformed along z and x; asks for those at `ahead`.

    `place`: z, y, x of its first voxel, at `source`.
    """
    steps = 4 * args[AT.source_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    packed = form.points_x * VECTOR_BYTES, VECTOR_BYTES
    size_z, size_x = args[AT.source_size_z], args[AT.source_size_x]
    inside = 0 <= place[1] < args[AT.source_size_y]
    whole_z = holds(place[0], size_z, args[AT.dilation_z], form.points_z)
    whole = inside and whole_z and holds(place[2], size_x, args[AT.dilation_x], form.points_x)
    # Tiles at a border are copied between zeros, so one transform without tests serves all.
    if not whole:
        zeros(loose, compiled_plane(form))
        if inside:
            first_z, seen_z = seen_of(place[0], size_z, args[AT.dilation_z], form.points_z)
            first_x, seen_x = seen_of(place[2], size_x, args[AT.dilation_x], form.points_x)
            begin = source + first_z * steps[0] + first_x * steps[1]
            to = loose + first_z * packed[0] + first_x * packed[1]
            copied(begin, steps, (seen_z, seen_x), to, packed)
    # From the third column on: the first two are shared with this tile.
    ask_to_read(form, ahead + (form.points_x - form.new_x) * steps[1], steps[0], steps[1])
    here, by = (source, steps) if whole else (loose, packed)
    source_plane(form, here, by[0], by[1], target, column)


@inlined
def added(bias_gradient: int, source: int, steps: Any, counts: Any) -> None:
    """Add vectors of a plane to a bias gradient; pairs along z, x."""
    total = load(bias_gradient)
    for z in range(counts[0]):
        for x in range(counts[1]):
            total = total + load(source + z * steps[0] + x * steps[1])
    store(bias_gradient, total)


@inlined
def _finished(
    form: Any, args: Any, block: int, source: int, column: int, place: Any, loose: int, target: int
) -> None:
    """A row of outputs of one tile and block; those outside the target are dropped."""
    steps = 4 * args[AT.target_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    value_steps = 4 * args[AT.output_z] * args[AT.dilation_z], steps[1]
    packed = form.new_x * VECTOR_BYTES, VECTOR_BYTES
    size_z, size_x = args[AT.target_size_z], args[AT.target_size_x]
    whole = holds(place[0], size_z, args[AT.dilation_z], form.new_z)
    whole = whole and holds(place[2], size_x, args[AT.dilation_x], form.new_x)
    made = form.new_z, form.new_x
    if not whole:
        # Tiles may reach beyond the target; what lies there is computed and dropped.
        made = (
            min(form.new_z, cover(size_z - place[0], args[AT.dilation_z])),
            min(form.new_x, cover(size_x - place[2], args[AT.dilation_x])),
        )
    value = args[AT.output] + 4 * (
        block * args[AT.output_block] + place[0] * args[AT.output_z] + place[1] * args[AT.output_y]
    )
    # Behind the outputs in `loose`, which has room for both (`loose_bytes`).
    outputs = form.new_z * form.new_x * VECTOR_BYTES
    value, values = value + place[2] * VECTOR_BYTES, loose + outputs
    if args[AT.output] and not whole:
        copied(value, value_steps, made, values, packed)
    here, by = (target, steps) if whole else (loose, packed)
    seen, seen_by = (value, value_steps) if whole else (values, packed)
    if args[AT.accumulate] and not whole:
        copied(target, steps, made, loose, packed)
    bias = args[AT.bias] + block * VECTOR_BYTES
    target_plane(form, args, bias, seen, seen_by[0], source, column, here, by[0], by[1])
    # From what was stored, as the gradient of the function is applied by then.
    if args[AT.bias_gradient]:
        added(args[AT.bias_gradient] + block * VECTOR_BYTES, here, by, made)
    if not whole:
        copied(loose, packed, made, target, steps)


@inlined
def transform(
    form: Any,
    args: Any,
    block: int,
    places: Any,
    tile: int,
    count: int,
    row: int,
    loose: int,
    target: int,
    column: int,
) -> None:
    """Row `row` of voxels of a tile and block, to vectors `column` bytes from each other; asks for the next tile's."""
    before = args[AT.before_z] * args[AT.source_z] + args[AT.before_x] * LANES
    before -= (row - args[AT.before_y]) * args[AT.source_y]
    source = args[AT.source] + 4 * (block * args[AT.source_block] - before)
    # The next tile, or this one again at the end: lines in the cache cost nothing to ask for.
    z, x, after = places[2 * tile], places[2 * tile + 1], 2 * min(tile + _ahead(form), count - 1)
    here = source + 4 * z * args[AT.source_z] + x * VECTOR_BYTES
    ahead = source + 4 * places[after] * args[AT.source_z] + places[after + 1] * VECTOR_BYTES
    # Relative to the source, where the first seen voxel may lie before 0.
    place = z - args[AT.before_z], row - args[AT.before_y], x - args[AT.before_x]
    _transformed(form, args, here, ahead, place, loose, target, column)


@inlined
def finish(
    form: Any,
    args: Any,
    block: int,
    places: Any,
    tile: int,
    count: int,
    row: int,
    loose: int,
    source: int,
    column: int,
) -> None:
    """Row `row` of outputs of a tile and block, from vectors `column` bytes from each other."""
    z, x = places[2 * tile], places[2 * tile + 1]
    target = args[AT.target] + 4 * (block * args[AT.target_block] + row * args[AT.target_y])
    after = 2 * min(tile + _ahead(form), count - 1)
    ahead = target + 4 * places[after] * args[AT.target_z] + places[after + 1] * VECTOR_BYTES
    step_z = 4 * args[AT.target_z] * args[AT.dilation_z]
    step_x = VECTOR_BYTES * args[AT.dilation_x]
    ask_to_write(form, ahead, step_z, step_x)
    if args[AT.output]:
        value = args[AT.output] + 4 * (block * args[AT.output_block] + row * args[AT.output_y])
        value += 4 * places[after] * args[AT.output_z] + places[after + 1] * VECTOR_BYTES
        ask_for_values(form, value, 4 * args[AT.output_z] * args[AT.dilation_z], step_x)
    target += 4 * z * args[AT.target_z] + x * VECTOR_BYTES
    _finished(form, args, block, source, column, (z, row, x), loose, target)


@inlined
def clear_bias_gradient(args: Any) -> None:
    """Zeros for all blocks, where a bias gradient is wanted."""
    # Every task owns its sums: so tasks add without meeting, and whoever adds theirs reads zeros from those without
    # tiles.
    if args[AT.bias_gradient]:
        for block in range(args[AT.blocks]):
            store(args[AT.bias_gradient] + block * VECTOR_BYTES, splat(0.0))


@inlined
def _inside(first: int, end: int, dilation: int, new: int, size: int) -> Any:
    """Return how many of a range of tiles begin inside."""
    count = 0
    for tile in range(first, end):
        count += origin(tile, dilation, new) < size
    return count


@inlined
def _along_x(form: Any, args: Any) -> Any:
    return tiles_along(args[AT.target_size_x], args[AT.dilation_x], form.new_x)


@inlined
def along_zx(form: Any, args: Any) -> Any:
    """Return the number of tiles of this task along z and x; the last ones may lie outside."""
    return (args[AT.z1] - args[AT.z0]) * _along_x(form, args)


@inlined
def tiles_inside(form: Any, args: Any) -> Any:
    """Return the number of tiles of this task along z and x that begin inside."""
    dilation, size = args[AT.dilation_z], args[AT.target_size_z]
    count = _inside(args[AT.z0], args[AT.z1], dilation, form.new_z, size)
    dilation, size = args[AT.dilation_x], args[AT.target_size_x]
    return count * _inside(0, _along_x(form, args), dilation, form.new_x, size)


@inlined
def place(form: Any, args: Any, number: int, places: Any, count: int) -> Any:
    """Note where a tile along z and x begins, if that is inside; return the number of places, `count` before."""
    along_x = _along_x(form, args)
    z = origin(args[AT.z0] + number // along_x, args[AT.dilation_z], form.new_z)
    x = origin(number % along_x, args[AT.dilation_x], form.new_x)
    if z < args[AT.target_size_z] and x < args[AT.target_size_x]:
        places[2 * count], places[2 * count + 1] = z, x
        return count + 1
    return count
