"""Filters of 3^3 taps without dilation: a march of whole tiles, and both gradients in one.

As `forward`, but voxels of a tile lie side by side along x, and steps from column to column are known while code is
made, so 36 addresses are no registers. Values are those of the march there, bit by bit; sums for biases go plane by
plane.

`winograd_cubes_back`: data gradient and weight gradient in one task (`both_gradients`). Of the source's voxels two
thirds of the rows, and as many columns of them, are to be transformed.

Argument words: those of `both_gradients`, and `accumulate`, with dilations of 1.

Tasks may run concurrently if their tiles, and `weights`, are disjoint. Scratch of a worker, `cubes_floats`, in this
order: places of the tiles; a tile that reaches beyond its image; points of a column of all blocks [block][point][tile];
the ring of transformed rows [block][column][row][tile], whose first rows their outputs replace; points of a column of
values; rows of values [block][column][row][tile]; sums [column][point][channel][block of the gradient]; points of a
pair of channels on their way to taps.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.codegen import Value, float_pointer, load_vector, moved, store_vector, word
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.both_gradients import AT, add_point, clear, taps_of
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.forms import FORMS, NEW, POINTS, TAPS
from znnpy_kernels.winograd.gradient_lines import filter_depth, filter_plane, gradient_plane_of
from znnpy_kernels.winograd.line_transforms import (
    asking_of,
    source_depth,
    source_plane_of,
    target_depth,
    target_plane_of,
)
from znnpy_kernels.winograd.planar_lines import gradient_rows
from znnpy_kernels.winograd.planes import (
    added,
    along_zx,
    clear_bias_gradient,
    copied,
    holds,
    loose_bytes,
    place,
    places_bytes,
    seen_of,
    tiles_inside,
    zeros,
)
from znnpy_kernels.winograd.products import (
    ROWS,
    compiled_room,
    multiply_blocks,
    multiply_next,
    odd_bytes,
    room,
)

# Tiles at once: all of a row of 112 voxels, or half of one of 224, in parts that nearly fill register blocks. With
# more, filters would be read less often, and rings leave the L2 cache further behind.
GROUP = max(2 * ROWS[0], 28)
CUBE = (TAPS, TAPS, TAPS)
_FORM, _PLANE = FORMS[CUBE], POINTS * POINTS
# Bytes from point to point of a column, and from column to column of both rings. Rows of a column lie one behind the
# other, however many tiles they have.
POINT = odd_bytes(GROUP)
COLUMN, VALUES_COLUMN = odd_bytes(POINTS * GROUP), odd_bytes(NEW * GROUP)
BLOCK, RING, VALUES_RING = POINTS * POINT, _PLANE * COLUMN, _PLANE * VALUES_COLUMN
LOOSE = int(loose_bytes(_FORM))
PACKED, NEW_PACKED = POINTS * VECTOR_BYTES, NEW * VECTOR_BYTES
PLACES = places_bytes(GROUP)
_source_plane = source_plane_of((0, 2), COLUMN)
_target_plane = target_plane_of(AT, (0, 2), COLUMN)
_values_plane = gradient_plane_of(VALUES_COLUMN)
_ask_to_read, _ask_to_write = asking_of((0, 2)), asking_of((0, 2), new=True, write=True)
_ask_for_values = asking_of((0, 2), new=True)

NEAR_BYTES = 1 << 19
"""Bytes of filters that an L2 cache holds."""
SUMS_BYTES = 7 << 15
"""Bytes of the sums of all pairs of channels at all points, of up to 16: they stay in an L2 cache of half a MiB."""


def sums_bytes(inputs: int, outputs: int) -> int:
    """Bytes of the sums of a weight gradient between so many channels."""
    return _PLANE * POINTS * inputs * -(-outputs // LANES) * VECTOR_BYTES


def cubes_floats(inputs: int, outputs: int, *, weights: bool) -> int:
    """Floats of scratch that each worker needs between so many channels."""
    rows, blocks = -(-inputs // LANES), -(-outputs // LANES)
    most, _ = room(rows, blocks)
    bytes_ = int(PLACES + LOOSE + most * BLOCK + max(rows, blocks) * RING)
    if weights:
        bytes_ += blocks * (BLOCK + VALUES_RING) + sums_bytes(outputs, inputs)
        bytes_ += _PLANE * TAPS * VECTOR_BYTES
    return bytes_ // 4


@inlined
def _voxels(
    args: Any, block: int, places: Any, tile: int, count: int, row: int, loose: int, into: int
) -> None:
    """Row `row` of voxels of a tile and block, transformed along z and x; asks for the next tile's."""
    z, x, y = places[2 * tile], places[2 * tile + 1], row - args[AT.before_y]
    z, x = z - args[AT.before_z], x - args[AT.before_x]
    size_z, size_x = args[AT.source_size_z], args[AT.source_size_x]
    start = args[AT.source] + 4 * (block * args[AT.source_block] + y * args[AT.source_y])
    step = 4 * args[AT.source_z]
    here, by = start + z * step + x * VECTOR_BYTES, step
    after = 2 * min(tile + 1, count - 1)
    ahead = start + (places[after] - args[AT.before_z]) * step
    ahead += (places[after + 1] - args[AT.before_x] + POINTS - NEW) * VECTOR_BYTES
    inside = 0 <= y < args[AT.source_size_y]
    whole = inside and holds(z, size_z, 1, POINTS) and holds(x, size_x, 1, POINTS)
    # Tiles at a border are copied between zeros, so one transform without tests serves all.
    if not whole:
        zeros(loose, POINTS * POINTS)
        if inside:
            first_z, seen_z = seen_of(z, size_z, 1, POINTS)
            first_x, seen_x = seen_of(x, size_x, 1, POINTS)
            begin = here + first_z * step + first_x * VECTOR_BYTES
            to = loose + first_z * PACKED + first_x * VECTOR_BYTES
            copied(begin, (step, VECTOR_BYTES), (seen_z, seen_x), to, (PACKED, VECTOR_BYTES))
        here, by = loose, PACKED
    _ask_to_read(_FORM, ahead, step, VECTOR_BYTES)
    _source_plane(_FORM, here, by, VECTOR_BYTES, into, COLUMN)


@inlined
def _values(
    args: Any, block: int, places: Any, tile: int, count: int, row: int, loose: int, into: int
) -> None:
    """Row `row` of values of a tile and block, transformed along z and x as gradients are; asks for the next tile's."""
    z, x = places[2 * tile], places[2 * tile + 1]
    step, by = 4 * args[AT.values_z], 4 * args[AT.values_z]
    start = args[AT.values] + 4 * (block * args[AT.values_block] + row * args[AT.values_y])
    here, after = start + z * step + x * VECTOR_BYTES, 2 * min(tile + 1, count - 1)
    made_z, made_x = min(NEW, args[AT.target_size_z] - z), min(NEW, args[AT.target_size_x] - x)
    inside = row < args[AT.target_size_y]
    if not (inside and made_z == NEW and made_x == NEW):
        zeros(loose, NEW * NEW)
        if inside:
            copied(here, (step, VECTOR_BYTES), (made_z, made_x), loose, (NEW_PACKED, VECTOR_BYTES))
        here, by = loose, NEW_PACKED
    ahead = start + places[after] * step + places[after + 1] * VECTOR_BYTES
    _ask_for_values(_FORM, ahead, step, VECTOR_BYTES)
    _values_plane(_FORM, here, by, VECTOR_BYTES, into, VALUES_COLUMN)


@intrinsic
def _add_plane(typingctx: Any, total: Any, source: Any, step: Any) -> tuple[Signature, Any]:
    """Add the vectors of a plane of new outputs, `step` bytes from row to row, to a vector."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (total, source, step) = builder, args
        place = float_pointer(b, total)
        rows = [float_pointer(b, b.add(source, b.mul(step, word(z)))) for z in range(NEW)]
        sums: list[Value] = [load_vector(b, moved(b, row, 0)) for row in rows]
        for x in range(1, NEW):
            sums = [
                b.fadd(it, load_vector(b, moved(b, row, x * LANES)))
                for it, row in zip(sums, rows, strict=True)
            ]
        found = b.fadd(b.fadd(sums[0], sums[1]), b.fadd(sums[2], sums[3]))
        store_vector(b, b.fadd(load_vector(b, place), found), place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@inlined
def _outputs(
    args: Any, block: int, places: Any, tile: int, count: int, row: int, loose: int, from_: int
) -> None:
    """Row `row` of outputs of a tile and block; those outside of the target are dropped."""
    z, x = places[2 * tile], places[2 * tile + 1]
    step, value_step = 4 * args[AT.target_z], 4 * args[AT.output_z]
    start = args[AT.target] + 4 * (block * args[AT.target_block] + row * args[AT.target_y])
    value = args[AT.output] + 4 * (block * args[AT.output_block] + row * args[AT.output_y])
    after = 2 * min(tile + 1, count - 1)
    _ask_to_write(
        _FORM, start + places[after] * step + places[after + 1] * VECTOR_BYTES, step, VECTOR_BYTES
    )
    if args[AT.output]:
        ahead = value + places[after] * value_step + places[after + 1] * VECTOR_BYTES
        _ask_for_values(_FORM, ahead, value_step, VECTOR_BYTES)
    target, value = start + z * step + x * VECTOR_BYTES, value + z * value_step + x * VECTOR_BYTES
    here, by, seen, seen_by = target, step, value, value_step
    made = min(NEW, args[AT.target_size_z] - z), min(NEW, args[AT.target_size_x] - x)
    whole = made[0] == NEW and made[1] == NEW
    values = loose + NEW * NEW_PACKED
    if not whole:
        if args[AT.output]:
            copied(value, (value_step, VECTOR_BYTES), made, values, (NEW_PACKED, VECTOR_BYTES))
        if args[AT.accumulate]:
            copied(target, (step, VECTOR_BYTES), made, loose, (NEW_PACKED, VECTOR_BYTES))
        here, by, seen, seen_by = loose, NEW_PACKED, values, NEW_PACKED
    bias = args[AT.bias] + block * VECTOR_BYTES
    _target_plane(_FORM, args, bias, seen, seen_by, from_, COLUMN, here, by, VECTOR_BYTES)
    if not whole:
        copied(loose, (NEW_PACKED, VECTOR_BYTES), made, target, (step, VECTOR_BYTES))
    # From what was stored, as the gradient of the function is applied by then.
    if args[AT.bias_gradient]:
        total = args[AT.bias_gradient] + block * VECTOR_BYTES
        if whole:
            _add_plane(total, here, by)
        else:
            added(total, here, (by, VECTOR_BYTES), made)


@inlined
def _rows(args: Any, places: Any, count: int, made: int, seen: int, loose: int, slot: int) -> None:
    """Outputs of row `made` of all tiles and blocks, and into their place the voxels of row `seen`; negative: none."""
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    for block in range(max(inputs, outputs)):
        # While the row's place lies in the L1 cache.
        finished, taken = made >= 0 and block < outputs, seen >= 0 and block < inputs
        for tile in range(count):
            here = slot + block * RING + tile * VECTOR_BYTES
            if finished:
                _outputs(args, block, places, tile, count, made, loose, here)
            if taken:
                _voxels(args, block, places, tile, count, seen, loose, here)


@inlined
def _rows_of_values(args: Any, places: Any, count: int, y: int, loose: int, ring: int) -> None:
    for block in range(cover(args[AT.channels], LANES)):
        for row in range(NEW):
            here = ring + block * VALUES_RING + row * count * VECTOR_BYTES
            for tile in range(count):
                _values(
                    args, block, places, tile, count, y + row, loose, here + tile * VECTOR_BYTES
                )


@inlined
def _columns(
    args: Any, count: int, first: int, points: int, ring: int, weights: bool, values: int,
    rows: int, sums: int,
) -> None:  # fmt: skip
    """Outputs along y of all columns, in the place of their first rows, and sums of their products with values."""
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    step = compiled_point_bytes(args[AT.inputs], outputs)
    skipped = step - args[AT.inputs] * outputs * VECTOR_BYTES
    _, start = compiled_room(inputs, outputs)
    slot = count * VECTOR_BYTES
    for number in range(_PLANE):
        here = ring + number * COLUMN
        for block in range(inputs):
            source, target = here + block * RING, points + block * BLOCK
            for tile in range(count):
                by = tile * VECTOR_BYTES
                source_depth(_FORM, source + by, first, slot, target + by, POINT)
        if weights:
            for block in range(cover(args[AT.channels], LANES)):
                source = rows + block * VALUES_RING + number * VALUES_COLUMN
                target = values + block * BLOCK
                for tile in range(count):
                    by = tile * VECTOR_BYTES
                    gradient_rows(_FORM, source + by, slot, target + by, POINT)
            for point in range(POINTS):
                by = (number * POINTS + point) * args[AT.channels] * inputs * VECTOR_BYTES
                add_point(
                    args, count, values + point * POINT, BLOCK, points + point * POINT, BLOCK, sums + by
                )  # fmt: skip
        filters = args[AT.filters] + number * POINTS * step
        # Few filters come from the L2 cache: requests would take longer than they spare.
        if weights or _PLANE * POINTS * step <= NEAR_BYTES:
            multiply_blocks(
                POINTS, args[AT.inputs], outputs, count, filters, points, POINT, BLOCK, start * BLOCK, skipped, None
            )  # fmt: skip
        else:
            multiply_next(
                POINTS, args[AT.inputs], outputs, count, filters, points, POINT, BLOCK, start * BLOCK, skipped, None
            )  # fmt: skip
        for block in range(outputs):
            source, target = points + (start + block) * BLOCK, here + block * RING
            for tile in range(count):
                by = tile * VECTOR_BYTES
                target_depth(_FORM, source + by, POINT, target + by, first, slot)


@inlined
def _march(args: Any, places: Any, count: int, loose: int, weights: bool, sums: int) -> None:
    """Compute all tiles along y of a group: two of six rows are those of the tile before."""
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    points = loose + LOOSE
    most, _ = compiled_room(inputs, outputs)
    ring = points + most * BLOCK
    values = ring + max(inputs, outputs) * RING
    rows = values + outputs * BLOCK
    tile, before = args[AT.y0], False
    more = tile * NEW < args[AT.target_size_y] and tile < args[AT.y1]
    # One turn more than tiles: the last tile's outputs are finished where the next one's rows would be read.
    while more or before:
        y, first = tile * NEW, tile * NEW % POINTS
        for row in range(POINTS - (NEW if before else POINTS), POINTS):
            # Row r of the tile before lies where row r of this one's new rows comes.
            made = y + row - POINTS
            made = made if before and made < args[AT.target_size_y] else -1
            here = ring + (first + row) % POINTS * count * VECTOR_BYTES
            _rows(args, places, count, made, y + row if more else -1, loose, here)
        if more:
            if weights:
                _rows_of_values(args, places, count, y, loose, rows)
            _columns(args, count, first, points, ring, weights, values, rows, sums)
        tile, before = tile + 1, more
        more = more and tile < args[AT.y1] and tile * NEW < args[AT.target_size_y]


@inlined
def _filters(source: int, step: int, target: int, target_step: int, spare: int) -> None:
    """Transform the sums of a pair of channels, whose points are [z][x][y], to taps."""
    for number in range(_PLANE):
        into = spare + number * VECTOR_BYTES
        filter_depth(_FORM, source + number * step, _PLANE * step, into, _PLANE * VECTOR_BYTES)
    for z in range(TAPS):
        plane, into = spare + z * _PLANE * VECTOR_BYTES, target + z * TAPS * TAPS * target_step
        filter_plane(_FORM, plane, VECTOR_BYTES, POINTS * VECTOR_BYTES, into, target_step)


_to_taps = taps_of(_filters, TAPS**3)


@inlined
def _cubes(args: Any, scratch: int, weights: bool) -> None:
    clear_bias_gradient(args)
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    loose = scratch + PLACES
    most, _ = compiled_room(inputs, outputs)
    sums = loose + LOOSE + most * BLOCK + max(inputs, outputs) * RING
    sums += outputs * (BLOCK + VALUES_RING)
    pairs = args[AT.channels] * inputs
    if weights:
        clear(sums, _PLANE * POINTS * pairs)
    places, total = longs(scratch), tiles_inside(_FORM, args)
    # Of equal size within one, as in `forward`.
    groups, group, count = cover(total, GROUP), 0, 0
    for number in range(along_zx(_FORM, args)):
        count = place(_FORM, args, number, places, count)
        if count and count == (group + 1) * total // groups - group * total // groups:
            _march(args, places, count, loose, weights, sums)
            group, count = group + 1, 0
    if weights:
        _to_taps(args, sums, sums + _PLANE * POINTS * pairs * VECTOR_BYTES)


def _cubes_kernel(name: str, weights: bool) -> Kernel:
    @kernel(AT, name=name)
    def cubes(args: Any, worker: int) -> None:
        """Correlation of channels with cubes of taps, and the weight gradient in passing. Words: see the module."""
        _cubes(args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker], weights)

    return cubes


winograd_cubes = _cubes_kernel("winograd_cubes", False)
winograd_cubes_back = _cubes_kernel("winograd_cubes_back", True)
