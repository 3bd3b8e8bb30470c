"""Points of filters as panels take them (`panels`): axis after axis, each step in what a near cache holds.

Taps of a pair of vectors of filters and some blocks of inputs become planes along z once; of a plane, one or two
columns at a time are transformed along x and y, just before they are multiplied. The order of axes is that of
`filters`: the same bits.

Addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    Value,
    float_pointer,
    load_vector,
    prefetch,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.filters import TILE, gathered, plane_tap
from znnpy_kernels.winograd.forms import axes_of
from znnpy_kernels.winograd.line_transforms import (
    FILTER_FACTORS,
    LINE_BYTES,
    SOURCE_ROWS,
    filter_line,
)
from znnpy_kernels.winograd.products import odd_bytes

PANELS = words(
    "source source_image target target_image images tiles rows inputs outputs filters "
    "depth0 depth1 block0 block1 together scratch scratch_worker"
)
PAIR = 2  # vectors of outputs whose filters lie side by side
MOST_TERMS, MOST_FLAT_TERMS = max(16, LANES), 32 if LANES < 16 else 16
"""Inputs at a time; of filters of one tap along z, whose points are few. With 16 lanes 32 have not been measured."""


def most_terms(taps_z: int) -> int:
    """Return how many inputs are taken at a time at most."""
    return MOST_FLAT_TERMS if taps_z == 1 else MOST_TERMS


def row_bytes(taps_z: int) -> int:
    """Bytes from point to point, and of cubes from tap to tap.

    Known while code is made, so that addresses are no registers.
    """
    return odd_bytes(most_terms(taps_z) * PAIR)


_FLAT_ROW, _ROW = row_bytes(1), row_bytes(3)


@inlined
def row_of(form: Any) -> Any:
    """The same in compiled code."""
    return _FLAT_ROW if form.taps_z == 1 else _ROW


def _asking(level: int) -> Any:
    """The intrinsic `(address)`, which asks for a line to be read later, into the cache of this level."""

    def ask(typingctx: Any, address: Any) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            prefetch(builder, args[0], write=False, level=level)
            return context.get_dummy_value()

        return types.void(types.int64), codegen

    return intrinsic(ask)


ask_near, ask_far = _asking(1), _asking(2)


@inlined
def width_of(args: Any, pair: int) -> Any:
    """Vectors of outputs of the pair that begins with vector `pair`."""
    return min(PAIR, args[PANELS.block1] - pair)


@inlined
def taps_of(form: Any) -> Any:
    return form.taps_z * form.taps_y * form.taps_x


@inlined
def filters_of(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, block: int, loose: int
) -> Any:
    """Return where the filters of a pair and of a block of inputs lie, the inputs, and bytes from tap to tap."""
    first, width = begin + block * LANES, width_of(args, pair)
    count = min(LANES, args[PANELS.inputs] - first)
    if exchanged:
        return loose + block * taps_of(form) * TILE, count, TILE
    before = pair * args[PANELS.inputs] + first * width
    source = args[PANELS.filters] + taps_of(form) * before * VECTOR_BYTES
    return source, count, count * width * VECTOR_BYTES


@inlined
def _exchanged_row(form: Any, args: Any, channel: int, first: int) -> Any:
    """Return where the layer's filters from input `channel` to output `first` lie, and bytes from input to input."""
    at, group = PANELS, first // (PAIR * LANES) * PAIR * LANES
    # Of the layer: lanes of its group of outputs.
    width = min(PAIR, cover(args[at.inputs] - group, LANES)) * LANES
    before = taps_of(form) * (group * args[at.outputs] + channel * width)
    return args[at.filters] + 4 * (before + first - group), 4 * width


@inlined
def exchange(form: Any, args: Any, pair: int, begin: int, blocks: int, loose: int) -> None:
    """Filters of some blocks of the layer's outputs, flipped, with vectors of inputs: [block][tap][output][vector]."""
    at = PANELS
    taps, vectors = taps_of(form), width_of(args, pair)
    for block in range(blocks):
        first = begin + block * LANES
        count = min(LANES, args[at.inputs] - first)
        for vector in range(vectors):
            channel = (pair + vector) * LANES
            inputs = min(LANES, args[at.outputs] - channel)
            source, row = _exchanged_row(form, args, channel, first)
            into, step = loose + block * taps * TILE + vector * VECTOR_BYTES, vectors * VECTOR_BYTES
            gathered(taps, source, inputs, inputs * row, row, count, into, step)


@inlined
def ahead_of(form: Any, exchanged: bool, args: Any, pair: int, begin: int, part: Any) -> Any:
    """What to ask for, of the filters of a pair and the inputs from `begin` on, in one of so many `part`s.

    Return where the first row lies, bytes to that of the next vector and to the next row, and rows an input.
    """
    at, width = PANELS, width_of(args, pair)
    if begin >= args[at.inputs]:
        return args[at.filters], 0, 0, 0
    rows = cover(taps_of(form), part[1])
    if exchanged:
        source, row = _exchanged_row(form, args, pair * LANES, begin)
        step = taps_of(form) * LANES * row
    else:
        row, step = width * VECTOR_BYTES, VECTOR_BYTES
        source = args[at.filters] + taps_of(form) * (
            pair * args[at.inputs] * VECTOR_BYTES + begin * row
        )
    return source + part[0] * rows * LANES * row, step, row, rows


@inlined
def ask(ahead: Any, width: int, number: int) -> None:
    """Ask for the rows that go with one input, into the L1 cache."""
    first, step, row, rows = ahead
    for vector in range(width):
        for line in range(number * rows, (number + 1) * rows):
            ask_near(first + vector * step + line * row)


@inlined
def next_piece(form: Any, exchanged: bool, args: Any, pair: int, begin: int, calls: int) -> Any:
    """Return where the filters lie that come behind those of a pair and of inputs from `begin` on, and bytes a call."""
    at, behind, first = PANELS, pair + PAIR, begin
    if behind >= args[at.block1]:
        behind, first = args[at.block0], begin + args[at.together] * LANES
    terms = min(args[at.inputs] - first, args[at.together] * LANES)
    if terms <= 0:
        return args[at.filters], 0
    width = width_of(args, behind)
    step = cover(taps_of(form) * terms * width * VECTOR_BYTES, calls)
    if exchanged:
        return _exchanged_row(form, args, behind * LANES, first)[0], step
    before = behind * args[at.inputs] + first * width
    return args[at.filters] + taps_of(form) * before * VECTOR_BYTES, step


@inlined
def ask_piece(piece: Any, call: int) -> None:
    """Ask for a call's share of what comes next, into the L2 cache."""
    start, step = piece
    for place in range(start + call * step, start + (call + 1) * step, LINE_BYTES):
        ask_far(place)


def _vector(b: ir.IRBuilder, start: Value, number: int, step: Value | int) -> Value:
    bytes_ = word(number * step) if isinstance(step, int) else b.mul(step, word(number))
    return load_vector(b, float_pointer(b, b.add(start, bytes_)))


def _put(b: ir.IRBuilder, values: list[Value], target: Value, step: int) -> None:
    """Store values `step` bytes from each other."""
    for number, value in enumerate(values):
        store_vector(b, value, float_pointer(b, b.add(target, word(number * step))))


@intrinsic
def _all_depths(
    typingctx: Any, form: Any, source: Any, step: Any, target: Any
) -> tuple[Signature, Any]:
    """A line of taps along z, `step` bytes apart, to all its points, a plane of taps apart."""
    deep, high, wide = axes_of(form)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, step, target) = builder, args
        line = [_vector(b, source, z, step) for z in range(deep.taps)]
        _put(b, filter_line(b, line), target, high.taps * wide.taps * row_bytes(deep.taps))
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 3), codegen


@intrinsic
def _one_depth(
    typingctx: Any, form: Any, factors: Any, source: Any, step: Any, target: Any
) -> tuple[Signature, Any]:
    """The same for one point, whose factors of the taps are given."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, factors, source, step, target) = builder, args
        made = plane_tap(b, axes_of(form)[0], factors, source, step)
        store_vector(b, made, float_pointer(b, target))
        return context.get_dummy_value()

    return types.void(form, factors, *[types.int64] * 3), codegen


@inlined
def depths_of(
    form: Any, low: int, high: int, source: int, tap: int, vectors: int, target: int
) -> None:
    """Planes low..high of points along z of vectors that lie one behind the other: [z][tap along y, x][vector].

    `tap`: bytes from tap to tap, there; here `row_of`. Taps are read as they lie, which the hardware foresees.
    """
    plane, row = form.taps_y * form.taps_x, row_of(form)
    for number in range(plane):
        for vector in range(vectors):
            here = source + number * tap + vector * VECTOR_BYTES
            there = target + number * row + vector * VECTOR_BYTES
            if high - low == form.points_z:
                _all_depths(form, here, plane * tap, there)
            else:
                for depth in range(low, high):
                    into = there + (depth - low) * plane * row
                    _one_depth(form, FILTER_FACTORS[depth], here, plane * tap, into)


@intrinsic(prefer_literal=True)
def _columns(
    typingctx: Any, form: Any, unit: Any, source: Any, tap: Any, target: Any
) -> tuple[Signature, Any]:
    deep, high, wide = axes_of(form)
    row = row_bytes(deep.taps)

    def emit(b: ir.IRBuilder, source: Value, tap: Value | int, target: Value) -> None:
        # What other columns would need is left out when code is optimised.
        rows = [
            filter_line(b, [_vector(b, source, y * wide.taps + x, tap) for x in range(wide.taps)])
            for y in range(high.taps)
        ]
        units = SOURCE_ROWS[wide.taps]
        for number, x in enumerate(units[min(unit.literal_value, len(units) - 1)]):
            made = filter_line(b, [values[x] for values in rows])
            _put(b, made, b.add(target, word(number * high.points * row)), row)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, _, source, tap, target) = builder, args
        if deep.taps > 1:
            emit(b, source, row, target)
            return context.get_dummy_value()
        # Of whole blocks and pairs, as almost all are: constant offsets, or they would be kept on the stack.
        usual = b.icmp_signed("==", tap, word(TILE))
        with b.if_else(usual) as (then, other):
            with then:
                emit(b, source, TILE, target)
            with other:
                emit(b, source, tap, target)
        return context.get_dummy_value()

    return types.void(form, unit, *[types.int64] * 3), codegen


@inlined
def columns_of(form: Any, unit: int, source: int, tap: int, vectors: int, target: int) -> None:
    """The columns of a unit of a plane of points of so many vectors, [x][y][vector], from taps along y and x.

    `tap`: bytes from tap to tap, of one tap along z; else, and of points, `row_of`. Units: columns of the same sums
    (`line_transforms.SOURCE_ROWS`).
    """
    for number in range(vectors):
        here, there = source + number * VECTOR_BYTES, target + number * VECTOR_BYTES
        # Constants, as code is made for each unit.
        if unit == 0:
            _columns(form, 0, here, tap, there)
        elif unit == 1:
            _columns(form, 1, here, tap, there)
        elif unit == 2:
            _columns(form, 2, here, tap, there)
        else:
            _columns(form, 3, here, tap, there)
