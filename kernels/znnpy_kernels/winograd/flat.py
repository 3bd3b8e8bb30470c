"""A march of tiles of filters of 1 x 3 x 3 taps: whole planes along y and x, 36 points of each tile at once.

Where rows wait in a ring (`forward`), places are worked out for each row of six vectors, each of which is stored and
loaded once more. Here nothing waits: planes are read from the source as they lie, two of six rows again from a cache;
products follow point by point; planes of products become outputs. Values are those of the march by rows, bit by bit;
sums for biases go tile by tile.

Scratch of a worker, `flat_bytes`, behind the places: a tile that reaches beyond the source, or its outputs and their y;
[block][point][tile][lane], where products of a point take the place of the point before, whose tiles nothing needs any
more, and those of the first one a place before it.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, store
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.line_transforms import (
    asking_of,
    dense_source_plane_of,
    target_plane_of,
)
from znnpy_kernels.winograd.planes import AT, copied, holds, places_bytes, seen_of, zeros
from znnpy_kernels.winograd.products import GROUP, multiply_blocks, odd_bytes
from znnpy_kernels.winograd.tiles import origin

# Where vectors have 8 lanes: with 16 this has not been measured beside rows (docs/design/winograd.md, *Whole planes*).
FLAT = {(1, 3, 3)} if REGISTERS == 16 else set()
"""Taps of the filters whose tiles go by whole planes."""
# Bytes from point to point: known while code is made.
POINT = odd_bytes(GROUP)
AHEAD = 2  # tiles ahead whose voxels, and lines of outputs, are asked for
_source_plane, _target_plane = dense_source_plane_of(POINT), target_plane_of(AT, (1, 2), POINT)
_ask_to_read = asking_of((1, 2), new=True)
_ask_to_write = asking_of((1, 2), new=True, write=True)


def loose_bytes(form: Any) -> Any:
    """Return the bytes of a tile that reaches beyond the source, or of its outputs and their y."""
    return max(form.points_y * form.points_x, 2 * form.new_y * form.new_x) * VECTOR_BYTES


def block_bytes(form: Any) -> Any:
    """Return the bytes from block to block."""
    return (form.points_y * form.points_x + 1) * POINT


_loose_bytes, _block_bytes = inlined(loose_bytes), inlined(block_bytes)


def flat_bytes(form: Any, inputs: int, outputs: int) -> int:
    """Bytes of scratch that each worker needs between so many blocks."""
    return int(places_bytes(GROUP) + loose_bytes(form) + max(inputs, outputs) * block_bytes(form))


@inlined
def _address(
    start: int, strides: Any, block: int, places: Any, tile: int, before_z: int, before_x: int
) -> Any:
    """The first voxel of a tile, in a row that begins at `start`; `strides`: of blocks and planes, in floats."""
    z, x = places[2 * tile] - before_z, places[2 * tile + 1] - before_x
    return start + 4 * (block * strides[0] + z * strides[1]) + x * VECTOR_BYTES


@inlined
def _transform(
    form: Any, args: Any, places: Any, count: int, y: int, loose: int, points: int
) -> None:
    """Planes of all tiles and blocks, from row `y` of the source on, to their points."""
    steps = 4 * args[AT.source_y] * args[AT.dilation_y], VECTOR_BYTES * args[AT.dilation_x]
    packed = form.points_x * VECTOR_BYTES, VECTOR_BYTES
    sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
    strides = args[AT.source_block], args[AT.source_z]
    start, before_z, before_x = args[AT.source], args[AT.before_z], args[AT.before_x]
    start += 4 * y * args[AT.source_y]
    whole_y = holds(y, sizes[1], args[AT.dilation_y], form.points_y) and args[AT.dilation_x] == 1
    first_y, seen_y = seen_of(y, sizes[1], args[AT.dilation_y], form.points_y)
    # New rows and columns alone: the others are those of tiles before.
    new = (form.points_y - form.new_y) * steps[0] + (form.points_x - form.new_x) * steps[1]
    # The block outermost: its voxels lie together in memory.
    for block in range(cover(args[AT.inputs], LANES)):
        for tile in range(count):
            here = _address(start, strides, block, places, tile, before_z, before_x)
            after = min(tile + AHEAD, count - 1)
            ahead = _address(start, strides, block, places, after, before_z, before_x)
            _ask_to_read(form, ahead + new, steps[0], steps[1])
            z, x = places[2 * tile] - before_z, places[2 * tile + 1] - before_x
            inside = 0 <= z < sizes[0]
            whole = whole_y and inside and holds(x, sizes[2], 1, form.points_x)
            # Tiles at a border are copied between zeros, dilated ones side by side: one transform without tests
            # serves all.
            if not whole:
                zeros(loose, form.points_y * form.points_x)
                if inside:
                    first_x, seen_x = seen_of(x, sizes[2], args[AT.dilation_x], form.points_x)
                    begin = here + first_y * steps[0] + first_x * steps[1]
                    to = loose + first_y * packed[0] + first_x * packed[1]
                    copied(begin, steps, (seen_y, seen_x), to, packed)
            seen, by = (here, steps[0]) if whole else (loose, packed[0])
            into = points + block * _block_bytes(form) + tile * VECTOR_BYTES
            _source_plane(form, seen, by, into)


@inlined
def _added(bias_gradient: int, source: int, steps: Any, counts: Any) -> None:
    """Add vectors of a plane to a bias gradient; pairs along y, x."""
    total = load(bias_gradient)
    for y in range(counts[0]):
        for x in range(counts[1]):
            total = total + load(source + y * steps[0] + x * steps[1])
    store(bias_gradient, total)


@inlined
def _finish(form: Any, args: Any, places: Any, count: int, y: int, loose: int, points: int) -> None:
    """Outputs of all tiles and blocks, from row `y` of the target on; those outside are dropped."""
    steps = 4 * args[AT.target_y] * args[AT.dilation_y], VECTOR_BYTES * args[AT.dilation_x]
    value_steps = 4 * args[AT.output_y] * args[AT.dilation_y], steps[1]
    packed = form.new_x * VECTOR_BYTES, VECTOR_BYTES
    strides = args[AT.target_block], args[AT.target_z]
    value_strides = args[AT.output_block], args[AT.output_z]
    start = args[AT.target] + 4 * y * args[AT.target_y]
    value_start = args[AT.output] + 4 * y * args[AT.output_y]
    values = loose + form.new_y * form.new_x * VECTOR_BYTES
    made_y = min(form.new_y, cover(args[AT.target_size_y] - y, args[AT.dilation_y]))
    whole_y = made_y == form.new_y and args[AT.dilation_x] == 1
    for block in range(args[AT.blocks]):
        bias = args[AT.bias] + block * VECTOR_BYTES
        for tile in range(count):
            target = _address(start, strides, block, places, tile, 0, 0)
            value = _address(value_start, value_strides, block, places, tile, 0, 0)
            after = min(tile + AHEAD, count - 1)
            # Of values whose signs a data gradient needs none are asked for: 3 to 8 % slower.
            ahead = _address(start, strides, block, places, after, 0, 0)
            _ask_to_write(form, ahead, steps[0], steps[1])
            x, made_x = places[2 * tile + 1], form.new_x
            if not holds(x, args[AT.target_size_x], args[AT.dilation_x], form.new_x):
                made_x = min(made_x, cover(args[AT.target_size_x] - x, args[AT.dilation_x]))
            made, whole = (made_y, made_x), whole_y and made_x == form.new_x
            if not whole:
                if args[AT.output]:
                    copied(value, value_steps, made, values, packed)
                if args[AT.accumulate]:
                    copied(target, steps, made, loose, packed)
            here, by = (target, steps) if whole else (loose, packed)
            seen, seen_by = (value, value_steps) if whole else (values, packed)
            from_ = points + block * _block_bytes(form) + tile * VECTOR_BYTES
            _target_plane(form, args, bias, seen, seen_by[0], from_, POINT, here, by[0], by[1])
            # From what was stored, as the gradient of the function is applied by then.
            if args[AT.bias_gradient]:
                _added(args[AT.bias_gradient] + block * VECTOR_BYTES, here, by, made)
            if not whole:
                copied(loose, packed, made, target, steps)


@inlined
def flat_march(form: Any, args: Any, filters: int, places: Any, count: int, scratch: int) -> None:
    """Compute all tiles along y of a group."""
    inputs, outputs, many = args[AT.inputs], args[AT.blocks], form.points_y * form.points_x
    products = scratch + _loose_bytes(form)
    points = products + POINT
    skipped = compiled_point_bytes(inputs, outputs) - inputs * outputs * VECTOR_BYTES
    for tile in range(args[AT.y0], args[AT.y1]):
        y = origin(tile, args[AT.dilation_y], form.new_y)
        if y < args[AT.target_size_y]:
            _transform(form, args, places, count, y - args[AT.before_y], scratch, points)
            # Nothing is asked for meanwhile: whole planes are what a CPU sees coming by itself.
            multiply_blocks(
                many, inputs, outputs, count, filters, points, POINT, _block_bytes(form), -POINT, skipped, None
            )  # fmt: skip
            _finish(form, args, places, count, y, scratch, products)
