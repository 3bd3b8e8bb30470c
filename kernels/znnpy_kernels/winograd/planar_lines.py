"""Transforms of Winograd's minimal filtering between planar channels, whose vectors hold voxels of a row.

Along z and y lanes are independent, so lines are transformed as they lie. Along x, `UNITS` vectors of a row, a unit
each, and the first voxels behind each of them are sorted: to a vector for each point, which holds it of LANES tiles.
Tile t of a unit begins at its voxel 4 t. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.simd.codegen import (
    VECTOR,
    ZERO_VECTOR,
    Value,
    argument,
    float_pointer,
    load_broadcast,
    load_vector,
    prefetch,
    shuffled,
    store_masked,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forms import FORMS, NEW, POINTS, TAPS, Axis, axes_of
from znnpy_kernels.winograd.line_transforms import (
    Line,
    gradient_line,
    source_line,
    target_line,
)

UNITS = 4
"""Vectors of rows that are transformed together: their tiles fill one vector a point."""
EACH = LANES // UNITS  # tiles of a unit
# Voxels behind a unit that its last tile sees.
BEHIND = POINTS - NEW
PLANAR = tuple(taps for taps in FORMS if taps[2] == TAPS and UNITS * BEHIND <= LANES)
"""Taps of filters that planar channels have kernels for: where a vector has room for the voxels behind all units."""
Count = Callable[[Axis], int]
"""Of values that a line is made of."""
_BITS = ir.IntType(LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)


def stepped(b: ir.IRBuilder, start: Value, step: Value, number: int) -> Value:
    """Return the address `number` steps behind another."""
    return b.add(start, b.mul(step, word(number)))


def _mask(b: ir.IRBuilder, bits: Value) -> Value:
    return b.bitcast(b.trunc(bits, _BITS), _MASK)


def _load_masked(b: ir.IRBuilder, address: Value, mask: Value) -> Value:
    name = f"llvm.masked.load.v{LANES}f32.p0"
    number = ir.IntType(32)
    pointer = b.inttoptr(address, VECTOR.as_pointer())
    kinds = [pointer.type, number, _MASK, VECTOR]
    function = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(VECTOR, kinds), name
    )
    return b.call(function, [pointer, ir.Constant(number, 4), mask, ZERO_VECTOR])


def _load_whole(b: ir.IRBuilder, address: Value, mask: Value) -> Value:
    return load_vector(b, float_pointer(b, address))


def _store_whole(b: ir.IRBuilder, value: Value, pointer: Value, mask: Value) -> None:
    store_vector(b, value, pointer)


def depth_lines_of(line: Line, count: Count) -> Any:
    """The intrinsic `(form, source, step, target, target_step)`: a vector of each of some planes, along z."""

    def depth_lines(
        typingctx: Any, form: Any, source: Any, step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        planes = count(axes_of(form)[0])

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step, target, target_step) = builder, args
            places = [float_pointer(b, stepped(b, source, step, z)) for z in range(planes)]
            _store_line(b, line(b, [load_vector(b, it) for it in places]), target, target_step)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 4), codegen

    return intrinsic(depth_lines)


def border_lines_of(line: Line, count: Count) -> Any:
    """The intrinsic `(form, source, step, bits, low, high, target, target_step)`: as `depth_lines_of`, at a border.

    Only planes low..high are there, and lanes whose `bits` are set; else zeros.
    """

    def border_lines(
        typingctx: Any,
        form: Any,
        source: Any,
        step: Any,
        bits: Any,
        low: Any,
        high: Any,
        target: Any,
        target_step: Any,
    ) -> tuple[Signature, Any]:
        planes = count(axes_of(form)[0])

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step, bits, low, high, target, target_step) = builder, args
            values = []
            for z in range(planes):
                begun, before = (
                    b.icmp_signed("<=", low, word(z)),
                    b.icmp_signed("<", word(z), high),
                )
                mask = _mask(b, b.select(b.and_(begun, before), bits, word(0)))
                values.append(_load_masked(b, stepped(b, source, step, z), mask))
            _store_line(b, line(b, values), target, target_step)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 7), codegen

    return intrinsic(border_lines)


def _store_line(b: ir.IRBuilder, values: Sequence[Value], target: Value, step: Value) -> None:
    for number, value in enumerate(values):
        store_vector(b, value, float_pointer(b, stepped(b, target, step, number)))


def asking_of(*, new: bool = False, write: bool = False) -> Any:
    """The intrinsic `(form, place, step)` that asks for a line of each plane of a tile, `new` ones alone, along z."""

    def ask(typingctx: Any, form: Any, place: Any, step: Any) -> tuple[Signature, Any]:
        axis = axes_of(form)[0]

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, place, step) = builder, args
            for z in range(axis.new if new else axis.points):
                prefetch(b, stepped(b, place, step, z), write=write, level=2)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 2), codegen

    return intrinsic(ask)


@intrinsic
def gather_behind(
    typingctx: Any, first: Any, second: Any, third: Any, fourth: Any, bits: Any, target: Any
) -> tuple[Signature, Any]:
    """The voxels behind four units, at these places, side by side; `bits`: a byte each, of the lanes that are there."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (*places, bits, target) = builder, args
        found = []
        for unit, place in enumerate(places):
            own = b.and_(b.lshr(bits, word(8 * unit)), word((1 << BEHIND) - 1))
            found.append(_load_masked(b, place, _mask(b, own)))
        store_vector(b, _beside(b, found), float_pointer(b, target))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


def _beside(b: ir.IRBuilder, vectors: list[Value]) -> Value:
    """The first BEHIND lanes of each of UNITS vectors, one behind the other."""
    merged, width = vectors, BEHIND
    while len(merged) > 1:
        lanes = [*range(width), *range(LANES, LANES + width)]
        lanes += list(range(len(lanes), LANES))
        merged = [
            shuffled(b, one, other, lanes)
            for one, other in zip(merged[::2], merged[1::2], strict=True)
        ]
        width *= 2
    return merged[0]


def _sorted(b: ir.IRBuilder, units: list[Value]) -> list[Value]:
    """NEW vectors of LANES tiles, from the vectors of UNITS units: voxel p of each tile."""
    # Pairs first: points 0 and 1, and 2 and 3, of two units; then pairs of pairs.
    half = LANES // 2
    pairs = []
    for low, high in (units[:2], units[2:]):
        for first in (0, 2):
            lanes = [
                (tile // EACH) * LANES + NEW * (tile % EACH) + point
                for point in (first, first + 1)
                for tile in range(half)
            ]
            pairs.append(shuffled(b, low, high, lanes))
    points = []
    for first in (0, 1):
        one, other = pairs[first], pairs[first + 2]
        points.append(shuffled(b, one, other, [*range(half), *range(LANES, LANES + half)]))
        points.append(
            shuffled(b, one, other, [*range(half, LANES), *range(LANES + half, 2 * LANES)])
        )
    return points


def _seen(b: ir.IRBuilder, units: list[Value], behind: Value) -> list[Value]:
    """POINTS vectors of LANES tiles, from the vectors of UNITS units and what lies behind them."""
    points = _sorted(b, units)
    # The first voxels of the next tile; behind the last tile of a unit lie some that the unit does not have.
    for point in range(BEHIND):
        lanes = [
            tile + 1 if (tile + 1) % EACH else LANES + BEHIND * (tile // EACH) + point
            for tile in range(LANES)
        ]
        points.append(shuffled(b, points[point], behind, lanes))
    return points


def _unsorted(b: ir.IRBuilder, outputs: list[Value]) -> list[Value]:
    """The vectors of UNITS units, from NEW vectors of outputs of LANES tiles: the inverse of `_sorted`."""
    half = LANES // 2
    pairs = [
        # Outputs 0 and 1, and 2 and 3, of all tiles of the first half of the units, then of the second.
        shuffled(
            b,
            outputs[first],
            outputs[first + 1],
            [point * LANES + side * half + tile for tile in range(half) for point in range(2)],
        )
        for side in range(2)
        for first in (0, 2)
    ]
    units = []
    for side in range(2):
        one, other = pairs[2 * side : 2 * side + 2]
        for unit in range(2):
            lanes = []
            for tile in range(EACH):
                start = 2 * (unit * EACH + tile)
                lanes += [start, start + 1, LANES + start, LANES + start + 1]
            units.append(shuffled(b, one, other, lanes))
    return units


@intrinsic
def sort_lines(
    typingctx: Any, source: Any, step: Any, target: Any, target_step: Any
) -> tuple[Signature, Any]:
    """UNITS vectors of a row and what lies behind them, transformed along x, to a vector a point."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step, target, target_step) = builder, args
        places = [float_pointer(b, stepped(b, source, step, number)) for number in range(UNITS + 1)]
        *units, behind = [load_vector(b, place) for place in places]
        _store_line(b, source_line(b, _seen(b, units, behind)), target, target_step)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def sort_gradients(
    typingctx: Any, source: Any, step: Any, target: Any, target_step: Any
) -> tuple[Signature, Any]:
    """UNITS vectors of a row of gradients, transformed along x, to a vector a point."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step, target, target_step) = builder, args
        places = [float_pointer(b, stepped(b, source, step, number)) for number in range(UNITS)]
        units = [load_vector(b, place) for place in places]
        _store_line(b, gradient_line(b, _sorted(b, units)), target, target_step)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def unsort_lines(
    typingctx: Any, source: Any, step: Any, target: Any, target_step: Any
) -> tuple[Signature, Any]:
    """Products of the points of a row, back along x, to UNITS vectors of the row: the inverse of `sort_lines`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step, target, target_step) = builder, args
        places = [float_pointer(b, stepped(b, source, step, number)) for number in range(POINTS)]
        made = target_line(b, [load_vector(b, place) for place in places])
        _store_line(b, _unsorted(b, made), target, target_step)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def finish_lines_of(at: Any, *, whole: bool = False) -> Any:
    """The intrinsic `(form, arguments, bias, values, values_step, source, step, target, ...)`, which finishes lines.

    Products of a tile's points along z, back along z, with the epilogue of `direct.epilogue`, to the first `count`
    new planes of the target, in lanes whose `bits` are set; `whole`: to all of both. `total`: address of a vector to
    which what is stored is added, or 0. `at`: the kernel's words, `bias`: address of a float, `values`: of y.
    """
    # Stores with masks take many times as long where vectors have 8 lanes.
    load: Callable[..., Value] = _load_whole if whole else _load_masked
    keep: Callable[..., None] = _store_whole if whole else store_masked

    def finish_lines(
        typingctx: Any,
        form: Any,
        arguments: Any,
        bias: Any,
        values: Any,
        values_step: Any,
        source: Any,
        step: Any,
        target: Any,
        target_step: Any,
        bits: Any,
        count: Any,
        total: Any,
    ) -> tuple[Signature, Any]:
        _, points, new = axes_of(form)[0]

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, arguments, bias, values, values_step, source, step, *others) = builder, args
            target, target_step, bits, count, total = others

            def field(name: str) -> Value:
                return argument(b, arguments, getattr(at, name))

            masks = [
                _mask(b, b.select(b.icmp_signed("<", word(z), count), bits, word(0)))
                for z in range(new)
            ]
            sums = [
                load_vector(b, float_pointer(b, stepped(b, source, step, z))) for z in range(points)
            ]
            done = finished(
                b,
                field,
                target_line(b, sums),
                lambda: [load_broadcast(b, float_pointer(b, bias))] * new,
                lambda: [
                    load(b, stepped(b, values, values_step, z), mask)
                    for z, mask in enumerate(masks)
                ],
            )
            for z, (value, mask) in enumerate(zip(done, masks, strict=True)):
                keep(b, value, float_pointer(b, stepped(b, target, target_step, z)), mask)
            with b.if_then(b.icmp_signed("!=", total, word(0))):
                place = float_pointer(b, total)
                added = load_vector(b, place)
                for value, mask in zip(done, masks, strict=True):
                    counted = value if whole else b.select(mask, value, ZERO_VECTOR)
                    added = b.fadd(added, counted)
                store_vector(b, added, place)
            return context.get_dummy_value()

        return types.void(form, arguments, *[types.int64] * 10), codegen

    return intrinsic(finish_lines)


@intrinsic
def gradient_rows(
    typingctx: Any, form: Any, source: Any, step: Any, target: Any, target_step: Any
) -> tuple[Signature, Any]:
    """A vector of each of a tile's rows of gradients, transformed along y, to a vector a point."""
    rows = axes_of(form)[1].new

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, step, target, target_step) = builder, args
        places = [float_pointer(b, stepped(b, source, step, row)) for row in range(rows)]
        made = gradient_line(b, [load_vector(b, place) for place in places])
        _store_line(b, made, target, target_step)
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 4), codegen
