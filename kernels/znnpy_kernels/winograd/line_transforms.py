"""Transforms of Winograd's minimal filtering along lines: six voxels give four outputs of three taps.

    Y = A' [(G g) * (B' d)]     (Winograd 1980; Lavin and Gray 2016, arXiv 1509.09308)

The polynomials are evaluated at 0, +-sqrt(1/2), +-sqrt(2) and infinity: with a * b = 1 numbers neither
grow nor shrink much, and three transformed axes lose about as many bits as a transform by FFT.
Along z, y and x one after the other it is the same for cubes: POINTS^3 products for NEW^3 outputs. Along an axis
of one tap (`forms`) a line is a single value, which all transforms leave as it is.

Vectors hold LANES channels. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.simd.codegen import (
    VECTOR,
    WORD,
    ZERO_VECTOR,
    Value,
    argument,
    float_pointer,
    load_vector,
    multiply_add,
    prefetch,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.forms import TAPS, Axis, axes_of

# LOW * HIGH = 1 keeps the magnitudes of powers near 1: see docs/design/winograd.md, *Rounding*.
LOW, HIGH = sqrt(0.5), sqrt(2.0)
# Times which filters are taken at each place, so that two outputs need no products: LOW * HIGH = 1.
# LOW is the first pair's factor in output 1, HIGH^2 the second pair's in output 2: there they enter as they are.
TARGET_SCALES = np.array([1.0, LOW, LOW, HIGH**2, HIGH**2, 1.0])
LINE_BYTES = 64  # of a cache
Rows = tuple[tuple[int, ...], ...]
# By the taps across rows: rows of a plane that are made of the same sums, in pairs: more of them at once do not fit
# registers.
SOURCE_ROWS: dict[int, Rows] = {TAPS: ((0,), (1, 2), (3, 4), (5,)), 1: ((0,),)}
# Outputs 0 and 2 take the even sums, 1 and 3 the odd ones; 0 and 3 one product more.
TARGET_ROWS: dict[int, Rows] = {TAPS: ((0, 2), (1, 3)), 1: ((0,),)}
# A line of values, transformed: emits code.
Line = Callable[[ir.IRBuilder, list[Value]], list[Value]]


def filter_matrix() -> Any:
    """G as float64 (POINTS, TAPS): powers of each place, divided by its distances to the others."""
    places = (0.0, LOW, -LOW, HIGH, -HIGH)
    rows = [
        # Lagrange's denominators: the product over all other finite places. The last row is infinity's, the
        # highest tap alone.
        [place**tap / np.prod([place - other for other in places if other != place])
         for tap in range(TAPS)]
        for place in places
    ]  # fmt: skip
    return np.array([*rows, [0.0, 0.0, 1.0]])


FILTER_FACTORS: tuple[tuple[float, ...], ...] = tuple(
    tuple(float(np.float32(factor)) for factor in row)
    for row in TARGET_SCALES[:, None] * filter_matrix()
)
"""G, scaled by place: the factors of the taps for each point, in float32."""


def filter_line(builder: ir.IRBuilder, g: list[Value]) -> list[Value]:
    """G g, scaled by place: POINTS values from TAPS taps."""
    b = builder
    if len(g) == 1:
        return g

    def pair(place: int) -> list[Value]:
        # Places a and -a share the even part.
        first, middle, last = FILTER_FACTORS[place]
        even = multiply_add(b, g[2], _constant(last), b.fmul(g[0], _constant(first)))
        return [multiply_add(b, g[1], _constant(sign * middle), even) for sign in (1, -1)]

    return [g[0], *pair(1), *pair(3), g[2]]


def source_line(builder: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """B' d: POINTS values from as many voxels."""
    b = builder
    if len(d) == 1:
        return d

    def plus(low: Value, factor: float, value: Value) -> Value:
        return multiply_add(b, value, _constant(factor), low)

    # The rows of places a and -a have the same even and odd parts, which are computed once: (x^2 - 2) and (x^2
    # - 1/2) times even and odd powers.
    even_low, odd_low = plus(d[4], -2.0, d[2]), plus(d[3], -2.0, d[1])
    even_high, odd_high = plus(d[4], -0.5, d[2]), plus(d[3], -0.5, d[1])
    return [
        # x^4 - 5/2 x^2 + 1 = (x^2 - 1/2)(x^2 - 2), which the places 0 and infinity share.
        b.fadd(d[0], plus(d[4], -2.5, d[2])),
        plus(even_low, LOW, odd_low),
        plus(even_low, -LOW, odd_low),
        plus(even_high, HIGH, odd_high),
        plus(even_high, -HIGH, odd_high),
        b.fadd(d[1], plus(d[5], -2.5, d[3])),
    ]


def target_line(builder: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """A' m: NEW outputs from POINTS products with filters times TARGET_SCALES."""
    b = builder
    if len(m) == 1:
        return m

    def plus(low: Value, factor: float, value: Value) -> Value:
        return multiply_add(b, value, _constant(factor), low)

    # Sums and differences of the two places of a pair; their factors are in TARGET_SCALES, so the middle
    # outputs need one multiply-add each.
    even_low, odd_low = b.fadd(m[1], m[2]), b.fsub(m[1], m[2])
    even_high, odd_high = b.fadd(m[3], m[4]), b.fsub(m[3], m[4])
    return [
        plus(plus(m[0], HIGH, even_low), LOW**2, even_high),
        plus(odd_low, LOW, odd_high),
        plus(even_high, LOW, even_low),
        plus(plus(m[5], LOW**2, odd_low), HIGH, odd_high),
    ]


def gradient_line(builder: ir.IRBuilder, y: list[Value]) -> list[Value]:
    """A y: POINTS values from NEW gradients."""
    b = builder
    if len(y) == 1:
        return y

    def pair(at: float) -> list[Value]:
        # A polynomial in at^2, even and odd powers apart: both places of a pair share them.
        even = multiply_add(b, y[2], _constant(at**2), y[0])
        odd = multiply_add(b, y[3], _constant(at**2), y[1])
        return [multiply_add(b, odd, _constant(sign * at), even) for sign in (1, -1)]

    return [y[0], *pair(LOW), *pair(HIGH), y[3]]


def _constant(value: float) -> Value:
    # Rounded to float32 here, so that LLVM sees the constant that the kernel computes with.
    return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)


def _rows(
    b: ir.IRBuilder,
    line: Line,
    rows: tuple[int, ...],
    columns: int,
    column: Callable[[int], list[Value]],
) -> list[Value]:
    """Return these rows of a plane whose columns `column` loads, transformed along both axes, one after the other."""
    # The first axis is transformed for all columns, but only these rows are kept; the others are made again, as
    # they would not fit the registers.
    made = (line(b, column(x)) for x in range(columns))
    kept = [[values[row] for row in rows] for values in made]
    return [value for row in zip(*kept, strict=True) for value in line(b, list(row))]


def _at(b: ir.IRBuilder, start: Value, number: int, step: Value | int) -> Value:
    bytes_ = word(number * step) if isinstance(step, int) else b.mul(step, word(number))
    return float_pointer(b, b.add(start, bytes_))


def _kept(b: ir.IRBuilder, value: Value) -> Value:
    """The same integer, out of which LLVM cannot take terms: it would hoist the address of each voxel from
    loops and keep all of them on the stack, where one addition of two registers is free.
    """
    # An empty assembler statement: its result is the same register, but opaque to LLVM.
    return b.asm(ir.FunctionType(WORD, [WORD]), "", "=r,0", [value], side_effect=False)


def _places(b: ir.IRBuilder, start: Value, step_row: Value, rows: Sequence[int]) -> list[Value]:
    return [_kept(b, b.add(start, b.mul(step_row, word(row)))) for row in rows]


def _along(b: ir.IRBuilder, step: Value, count: int) -> list[Value]:
    """Return the bytes to `count` vectors of a row; multiples of 1, 2 and 4 are part of addresses."""
    # By these three the others are shifts, which x86 has in its addressing modes.
    steps = [_kept(b, b.mul(step, word(number))) for number in (1, 3, 5)]
    made = [
        word(0),
        steps[0],
        b.shl(steps[0], word(1)),
        steps[1],
        b.shl(steps[0], word(2)),
        steps[2],
    ]
    return made[:count]


def _pair(form: Any, axes: tuple[int, int]) -> tuple[Axis, Axis]:
    """Two axes of a form's type: across the rows of a plane, and along them."""
    rows, columns = (axes_of(form)[axis] for axis in axes)
    return rows, columns


def asking_of(
    axes: tuple[int, int], *, new: bool = False, write: bool = False, level: int = 1
) -> Any:
    """The intrinsic `(form, source, step_row, step_column)` that asks for a plane's new columns.

    `axes`: those of the plane; `new`: of new rows alone, as outputs have; `write`: to be written; `level`: of the
    cache that they come to.
    """

    def ask(
        typingctx: Any, form: Any, source: Any, step_row: Any, step_column: Any
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, axes)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_row, step_column) = builder, args
            # New columns alone: the first two of a tile are those of its neighbour, which has just been read.
            along = _along(b, step_column, wide.new)
            rows = range(high.new if new else high.points)
            for row, by in product(_places(b, source, step_row, rows), along):
                prefetch(b, b.add(row, by), write=write, level=level)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 3), codegen

    return intrinsic(ask)


def asking_for_lines_of(*, write: bool = False) -> Any:
    """The intrinsic `(form, source, step_y)` that asks for a plane's new rows, of new voxels side by side along x."""

    def ask(typingctx: Any, form: Any, source: Any, step_y: Any) -> tuple[Signature, Any]:
        high, wide = _pair(form, (1, 2))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_y) = builder, args
            rows = near_rows(b, source, step_y, high.new)
            for row, by in product(rows, range(0, wide.new * VECTOR_BYTES, LINE_BYTES)):
                prefetch(b, b.add(row, word(by)), write=write, level=1)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 2), codegen

    return intrinsic(ask)


def source_plane_of(axes: tuple[int, int], dense: int = 0) -> Any:
    """The intrinsic `(form, source, step_row, step_column, target, step)`.

    A plane of voxels, as many as points, transformed along both `axes`, to vectors `step` bytes from each other.
    `dense`: those bytes, where they are known while code is made, of columns that lie side by side.
    """

    def source_plane(
        typingctx: Any,
        form: Any,
        source: Any,
        step_row: Any,
        step_column: Any,
        target: Any,
        step: Any,
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, axes)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_row, step_column, target, step) = builder, args
            if dense:
                rows, target = near_rows(b, source, step_row, high.points), _kept(b, target)
                along = [word(x * VECTOR_BYTES) for x in range(wide.points)]
                step = dense
            else:
                rows = _places(b, source, step_row, range(high.points))
                along = _along(b, step_column, wide.points)

            # Loaded again for each pair of rows: from the L1 cache, where registers would be spilt.
            def column(x: int) -> list[Value]:
                return [load_vector(b, float_pointer(b, b.add(row, along[x]))) for row in rows]

            for made in SOURCE_ROWS[high.taps]:
                places = [wide.points * row + x for row in made for x in range(wide.points)]
                values = _rows(b, source_line, made, wide.points, column)
                for number, value in zip(places, values, strict=True):
                    store_vector(b, value, _at(b, target, number, step))
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 5), codegen

    return intrinsic(source_plane)


WHOLE = -1
"""Column of a dense plane that is missing: none."""


def edge_plane_of(step: int) -> Any:
    """The intrinsic `(missing, form, top, source, step_y, bottom, target)`: voxels that lie side by side along x.

    A plane transformed along x and y, to vectors `step` bytes from each other, [x][y]. Its first and last row lie at
    `top` and `bottom`, which may be a row of zeros, those between from `source` on. `missing`: a column that is not
    read, as it is zero, or WHOLE; a constant. What is known while code is made is part of addresses: with 36 of them on
    the stack a plane takes twice as long.
    """

    def source_plane(
        typingctx: Any,
        missing: Any,
        form: Any,
        top: Any,
        source: Any,
        step_y: Any,
        bottom: Any,
        target: Any,
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, (1, 2))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, _, top, source, step_y, bottom, target) = builder, args
            between = near_rows(b, source, step_y, high.points - 2)
            rows, zero = [_kept(b, top), *between, _kept(b, bottom)], missing.literal_value

            def row(y: int) -> list[Value]:
                return [
                    ZERO_VECTOR if x == zero else load_vector(b, _at(b, rows[y], x, VECTOR_BYTES))
                    for x in range(wide.points)
                ]

            _dense_plane(b, source_line, (high, wide), row, len(rows), target, step)
            return context.get_dummy_value()

        return types.void(missing, form, *[types.int64] * 5), codegen

    return intrinsic(prefer_literal=True)(source_plane)


def dense_source_plane_of(step: int) -> Any:
    """The same without ends: `(form, source, step_y, target)`."""
    return _dense_plane_of(step, source_line, lambda axis: axis.points)


def dense_value_plane_of(step: int) -> Any:
    """The same of as many values as tiles have new voxels: A x of `both_gradients`."""
    return _dense_plane_of(step, gradient_line, lambda axis: axis.new)


def _dense_plane_of(step: int, line: Line, count: Callable[[Axis], int]) -> Any:
    def dense_plane(
        typingctx: Any, form: Any, source: Any, step_y: Any, target: Any
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, (1, 2))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_y, target) = builder, args
            rows = near_rows(b, source, step_y, count(high))

            def row(y: int) -> list[Value]:
                return [
                    load_vector(b, _at(b, rows[y], x, VECTOR_BYTES)) for x in range(count(wide))
                ]

            _dense_plane(b, line, (high, wide), row, count(high), target, step)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 3), codegen

    return intrinsic(dense_plane)


def _dense_plane(
    b: ir.IRBuilder,
    line: Line,
    axes: tuple[Axis, Axis],
    row: Callable[[int], list[Value]],
    count: int,
    target: Value,
    step: int,
) -> None:
    """Emit a plane of `count` rows, transformed by `line` along x and y, to vectors `step` bytes apart, [x][y]."""
    (high, wide), target = axes, _kept(b, target)
    for made in SOURCE_ROWS[wide.taps]:
        places = [high.points * x + y for x in made for y in range(high.points)]
        for number, value in zip(places, _rows(b, line, made, count, row), strict=True):
            store_vector(b, value, _at(b, target, number, step))


def stepped_plane_of(line: Line, count: Callable[[Axis], int]) -> Any:
    """The intrinsic `(form, source, step_y, target, step)`: a plane of vectors that lie side by side along x.

    Transformed by `line`, of so many values, along y and x to vectors `step` bytes from each other, [y][x]. Addresses
    advance by three points: 36 of them, known only then, would lie on the stack.
    """

    def stepped_plane(
        typingctx: Any, form: Any, source: Any, step_y: Any, target: Any, step: Any
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, (1, 2))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_y, target, step) = builder, args
            rows, step = near_rows(b, source, step_y, count(high)), _kept(b, step)
            further, number = _kept(b, b.mul(step, word(3))), 0

            def column(x: int) -> list[Value]:
                return [load_vector(b, _at(b, row, x, VECTOR_BYTES)) for row in rows]

            for made in SOURCE_ROWS[high.taps]:
                for value in _rows(b, line, made, count(wide), column):
                    if number and number % 3 == 0:
                        target = _kept(b, b.add(target, further))
                    store_vector(b, value, _at(b, target, number % 3, step))
                    number += 1
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 4), codegen

    return intrinsic(stepped_plane)


def near_rows(b: ir.IRBuilder, start: Value, step: Value, count: int) -> list[Value]:
    """Return the addresses of rows, each a register and a multiple of the step that x86 has in its addresses."""
    step = _kept(b, step)
    starts = [_kept(b, b.add(start, b.mul(step, word(row)))) for row in range(0, count, 3)]
    return [b.add(starts[row // 3], b.mul(step, word(row % 3))) for row in range(count)]


def slots_of(b: ir.IRBuilder, first: Value, count: int, ring: int) -> list[Value]:
    """Return the numbers of `count` slots of a ring of `ring`, from slot `first` on."""
    numbers = [b.add(first, word(number)) for number in range(count)]
    past = [b.icmp_signed(">=", number, word(ring)) for number in numbers]
    # A comparison and a selection: a division by POINTS for each slot would take longer than the transform.
    return [
        b.select(over, b.sub(number, word(ring)), number)
        for over, number in zip(past, numbers, strict=True)
    ]


@intrinsic
def source_depth(
    typingctx: Any, form: Any, source: Any, first: Any, slot: Any, target: Any, step: Any
) -> tuple[Signature, Any]:
    """Transform one value of each of a tile's planes along y in a ring, from slot `first` on, across the planes.

    `slot`, `step`: bytes from slot to slot and from point to point.
    """
    points = axes_of(form)[1].points

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, first, slot, target, step) = builder, args
        places = [b.add(source, b.mul(slot, n)) for n in slots_of(b, first, points, points)]
        values = [load_vector(b, float_pointer(b, place)) for place in places]
        for number, value in enumerate(source_line(b, values)):
            store_vector(b, value, _at(b, target, number, step))
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 5), codegen


@intrinsic
def target_depth(
    typingctx: Any, form: Any, source: Any, step: Any, target: Any, first: Any, slot: Any
) -> tuple[Signature, Any]:
    """Products of a tile's points along y, `step` bytes apart, to its new planes in a ring, from slot `first` on."""
    _, points, new = axes_of(form)[1]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, step, target, first, slot) = builder, args
        # All are read before any is written: the outputs take the place of the first rows.
        values = [load_vector(b, _at(b, source, number, step)) for number in range(points)]
        slots = slots_of(b, first, new, points)
        for number, value in zip(slots, target_line(b, values), strict=True):
            store_vector(b, value, float_pointer(b, b.add(target, b.mul(slot, number))))
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 5), codegen


def _added(b: ir.IRBuilder, sums: list[Value], places: list[Value]) -> list[Value]:
    """Return sums added to what lies at their places."""
    return [b.fadd(load_vector(b, place), it) for it, place in zip(sums, places, strict=True)]


def target_plane_of(
    at: Any, axes: tuple[int, int] = (0, 2), dense: int = 0, line: Line = target_line
) -> Any:
    """The intrinsic `(form, arguments, bias, values, values_row, source, step, target, step_row, step_column)`.

    New outputs along both `axes` of a plane of vectors `step` bytes from each other, in the order of filters' points
    (z, x, y), with the epilogue of `direct.epilogue`; `at`: the kernel's words, `bias`: address of a vector, `values`:
    of y, whose columns lie as far from each other as the target's. `line` transforms back along an axis.
    """

    def target_plane(
        typingctx: Any,
        form: Any,
        arguments: Any,
        bias: Any,
        values: Any,
        values_row: Any,
        source: Any,
        step: Any,
        target: Any,
        step_row: Any,
        step_column: Any,
    ) -> tuple[Signature, Any]:
        high, wide = _pair(form, axes)
        along_row, along_column = (wide.points, 1) if axes[0] == 0 else (1, high.points)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, arguments, bias, values, values_row, *others) = builder, args
            source, step, target, step_row, step_column = others

            def column(x: int) -> list[Value]:
                numbers = [along_row * row + along_column * x for row in range(high.points)]
                return [load_vector(b, _at(b, source, number, step)) for number in numbers]

            def field(name: str) -> Value:
                return argument(b, arguments, getattr(at, name))

            along = _along(b, step_column, wide.new)
            if dense:
                along = [word(x * VECTOR_BYTES) for x in range(wide.new)]
                step, source = word(dense), _kept(b, source)
            together = TARGET_ROWS[high.taps]
            for made in together:

                def places(start: Value, step: Value, made: tuple[int, ...] = made) -> list[Value]:
                    rows = _places(b, start, step, made)
                    return [float_pointer(b, b.add(row, by)) for row in rows for by in along]

                where = places(target, step_row)
                sums = _rows(b, line, made, wide.points, column)
                adding = b.icmp_signed("!=", field("accumulate"), word(0))
                done = finished(
                    b,
                    field,
                    when(b, adding, sums, partial(_added, b, sums, where)),
                    # The bias is the same for all outputs of a block: loaded where it is used.
                    lambda: [load_vector(b, float_pointer(b, bias))] * wide.new * len(together[0]),
                    lambda: [load_vector(b, place) for place in places(values, values_row)],
                )
                for value, place in zip(done, where, strict=True):
                    store_vector(b, value, place)
            return context.get_dummy_value()

        return types.void(form, arguments, *[types.int64] * 8), codegen

    return intrinsic(target_plane)
