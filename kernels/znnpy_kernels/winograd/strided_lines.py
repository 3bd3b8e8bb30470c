"""Transforms of Winograd's minimal filtering along axes of three taps with a stride of two: nine voxels, four outputs.

    y[i] = (g0 d[2 i] + g2 d[2 i + 2]) + g1 d[2 i + 1]

Voxels of even numbers meet two taps that lie next to each other among them: F(4, 2) at the places 0, +-BOTH, infinity
and LAST, five products for eight (Winograd 1980). Those of odd numbers meet one tap: four products, as any four of the
places tell four outputs. So these products are added to those of the first four places: nine products instead of
twelve, five sums instead of nine. Along two and three axes 81 products for 144, and 729 for 1728.

Data gradients have the same phases: voxels that an odd number of taps comes to meet one tap, those between meet two,

    dx[2 m + 1] = g1 dy[m],     dx[2 m + 2] = g2 dy[m] + g0 dy[m + 1]

counted with the padding: five gradients, five points, nine products and sums, eight voxels. The four places but
infinity tell four gradients as well, by the same powers that tell voxels: so both phases share points. Weight gradients
are the transpose: nine voxels become points as they do forward, four gradients become five, and sums three taps.

Vectors hold LANES channels. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.simd.codegen import (
    VECTOR,
    Value,
    argument,
    float_pointer,
    load_vector,
    multiply_add,
    prefetch,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.filters import Factors
from znnpy_kernels.winograd.forms import NEW, TAPS, Axis, Triple, form_of
from znnpy_kernels.winograd.gradient_lines import line_of
from znnpy_kernels.winograd.line_transforms import LINE_BYTES, near_rows

# The last place only voxels of even numbers have. With these rounding is about the least: powers are near 1.
BOTH, LAST = 0.75, 2.0
POINTS = NEW + 1
ALONE = POINTS - 1
"""The number of the last place."""
SEEN = 2 * NEW + 1
"""Voxels of a tile along an axis, and what they become: POINTS of even numbers, then NEW of odd ones."""
INNER = POINTS
"""Among the points of filters, the tap that meets voxels of odd numbers; before it those of the places."""
_AXES = {TAPS: Axis(TAPS, POINTS, NEW), 1: Axis(1, 1, 1)}
STRIDED_FORMS: dict[Triple, Any] = {
    taps: form_of(f"Strided{'x'.join(map(str, taps))}", tuple(_AXES[it] for it in taps))
    for taps in ((TAPS, TAPS, TAPS), (1, TAPS, TAPS))
}
"""By the taps of filters along z, y, x."""


def _factors() -> Factors:
    """Factors of the taps for each point: of each place, by its distances to the others, and of the middle tap."""
    places = (0.0, BOTH, -BOTH, LAST)
    low, plus, minus, last = (
        (1.0 / prod(place - it for it in places if it != place), place) for place in places
    )
    rows = [(scale, 0.0, scale * place) for scale, place in (low, plus, minus)]
    rows += [(0.0, 0.0, 1.0), (last[0], 0.0, last[0] * last[1]), (0.0, 1.0, 0.0)]
    return tuple(tuple(float(np.float32(it)) for it in row) for row in rows)


STRIDED_FACTORS = _factors()
BACK_FACTORS: Factors = (
    *((1.0, 0.0, place) for place in (0.0, BOTH, -BOTH)),
    (0.0, 0.0, 1.0),
    (1.0, 0.0, LAST),
    (0.0, 1.0, 0.0),
)
"""The same of flipped taps for data gradients, whose points have the scale of each place: both phases read them."""


def _constant(value: float) -> Value:
    return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)


def filter_line(b: ir.IRBuilder, g: list[Value]) -> list[Value]:
    """Points of a line of three taps: those of the places, and the middle tap."""
    if len(g) == 1:
        return g

    def both(number: int) -> Value:
        first, _, last = STRIDED_FACTORS[number]
        return multiply_add(b, g[2], _constant(last), b.fmul(g[0], _constant(first)))

    low = b.fmul(g[0], _constant(STRIDED_FACTORS[0][0]))
    return [low, both(1), both(2), g[2], both(ALONE), g[1]]


def back_filter_line(b: ir.IRBuilder, g: list[Value]) -> list[Value]:
    """Points of a line of three flipped taps for data gradients: those of the places, and the middle tap."""
    if len(g) == 1:
        return g

    def both(place: float) -> Value:
        return multiply_add(b, g[2], _constant(place), g[0])

    return [g[0], both(BOTH), both(-BOTH), g[2], both(LAST), g[1]]


def filter_gradient_line(b: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """Three taps from sums at the points: the transpose of `filter_line`."""
    if len(m) == 1:
        return m
    low, plus, minus, infinity, last, middle = m

    def tap(number: int, value: Value) -> Value:
        for sums, point in ((plus, 1), (minus, 2), (last, ALONE)):
            value = multiply_add(b, sums, _constant(STRIDED_FACTORS[point][number]), value)
        return value

    return [tap(0, b.fmul(low, _constant(STRIDED_FACTORS[0][0]))), middle, tap(2, infinity)]


def gradient_line(b: ir.IRBuilder, y: list[Value]) -> list[Value]:
    """POINTS values from NEW gradients: the transpose of `target_line`."""
    if len(y) == 1:
        return y

    def halves(place: float) -> tuple[Value, Value]:
        even, odd = (multiply_add(b, y[n + 2], _constant(place**2), y[n]) for n in (0, 1))
        return even, odd

    (even, odd), (low, high) = halves(BOTH), halves(LAST)
    plus, minus = (multiply_add(b, odd, _constant(it), even) for it in (BOTH, -BOTH))
    return [y[0], plus, minus, y[3], multiply_add(b, high, _constant(LAST), low)]


def _plus(b: ir.IRBuilder, low: Value, factor: float, value: Value) -> Value:
    return multiply_add(b, value, _constant(factor), low)


def _at_places(b: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """POINTS values from as many that lie next to each other."""
    # Coefficients of the products of (x - place) over all other places: three share (x^2 - BOTH^2).
    two, three, four = (_plus(b, d[n + 2], -(BOTH**2), d[n]) for n in range(3))
    return [
        _plus(b, three, -LAST, two),
        _plus(b, _plus(b, d[3], -BOTH * LAST, d[1]), BOTH - LAST, d[2]),
        _plus(b, _plus(b, d[3], BOTH * LAST, d[1]), -BOTH - LAST, d[2]),
        _plus(b, four, -LAST, three),
        three,
    ]


def source_line(b: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """SEEN values from as many voxels: of all places those of even numbers, then of all but the last those of odd."""
    outer, odd = _at_places(b, d[0::2]), d[1::2]
    # What places give outputs that are these voxels: the inverse of `target_line` without the last place.
    half = b.fmul(odd[2], _constant(0.5 / BOTH**2))
    inner = [
        _plus(b, odd[0], -1 / BOTH**2, odd[2]),
        _plus(b, half, 0.5 / BOTH, odd[1]),
        _plus(b, half, -0.5 / BOTH, odd[1]),
        _plus(b, odd[3], -(BOTH**2), odd[1]),
    ]
    return outer + inner


def target_line(b: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """NEW outputs from POINTS sums of products."""
    if len(m) == 1:
        return m
    low, plus, minus, infinity, last = m
    *lower, high = _from_places(b, [low, plus, minus, last])
    return [*lower, b.fadd(high, infinity)]


def _from_places(b: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """NEW outputs from sums at the places but infinity."""
    low, plus, minus, last = m
    even, odd = b.fadd(plus, minus), b.fsub(plus, minus)

    def powers(power: int, both: Value) -> Value:
        scaled = b.fmul(both, _constant(BOTH**power))
        return multiply_add(b, last, _constant(LAST**power), scaled)

    return [b.fadd(b.fadd(low, even), last), powers(1, odd), powers(2, even), powers(3, odd)]


def back_source_line(b: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """POINTS values from as many gradients: `_at_places`, times the scale of each place."""
    made = _at_places(b, d)
    for point in (0, 1, 2, ALONE):
        made[point] = b.fmul(made[point], _constant(STRIDED_FACTORS[point][0]))
    return made


def back_target_line(b: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """2 * NEW voxels from SEEN sums: POINTS of those that meet two taps, and four of those before them."""
    one, two = _from_places(b, m[POINTS:]), target_line(b, m[:POINTS])
    return [value for pair in zip(one, two, strict=True) for value in pair]


def _steps(b: ir.IRBuilder, start: Value, step: Value, count: int) -> list[Value]:
    return [b.add(start, b.mul(step, word(number))) for number in range(count)]


def _line_of(line: Any, count: int, *, far: bool = False, early: bool = False) -> Any:
    """The intrinsic `(source, source_step, target, target_step)`: a line of `count` vectors transformed.

    All are read before any is written. `far`: the target's step is not known while code is made.
    `early`: the voxels of the next tile, behind those of this one along x, are asked for.
    """

    def transform(
        typingctx: Any, source: Any, source_step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, source_step, target, target_step) = builder, args

            seen = _steps(b, source, source_step, count)
            for by in range(count * VECTOR_BYTES, (2 * count - 1) * VECTOR_BYTES, LINE_BYTES):
                if early:
                    prefetch(b, b.add(source, word(by)), write=False, level=1)
            made = line(b, [load_vector(b, float_pointer(b, it)) for it in seen])
            into = (near_rows if far else _steps)(b, target, target_step, len(made))
            for value, place in zip(made, into, strict=True):
                store_vector(b, value, float_pointer(b, place))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return intrinsic(transform)


filter_depth, filter_height, filter_width = (
    line_of(filter_gradient_line, lambda axis: axis.points, axis) for axis in range(3)
)
add_filter_height = line_of(filter_gradient_line, lambda axis: axis.points, 1, adds=True)
along_source, along_target = _line_of(source_line, SEEN), _line_of(target_line, POINTS)
voxels_along_x = _line_of(source_line, SEEN, early=True)
source_to_points = _line_of(source_line, SEEN, far=True)
along_back_source = _line_of(back_source_line, POINTS)
gradients_along_x = _line_of(back_source_line, POINTS, early=True)
back_source_to_points = _line_of(back_source_line, POINTS, far=True)
along_back_target = _line_of(back_target_line, SEEN)
along_gradient = _line_of(gradient_line, NEW)
summed_gradients_along_x = _line_of(gradient_line, NEW, early=True)
gradient_to_points = _line_of(gradient_line, NEW, far=True)


def row_of(at: Any) -> Any:
    """The intrinsic `(arguments, values, source, step, target)`: 2 * NEW voxels that lie side by side along x.

    From SEEN sums `step` bytes apart, with the epilogue of `direct.epilogue`; `at`: the kernel's words, `values`: of y.
    Lines of the next tile's are asked for.
    """

    def row(
        typingctx: Any, arguments: Any, values: Any, source: Any, step: Any, target: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (arguments, values, source, step, target) = builder, args

            def field(name: str) -> Value:
                return argument(b, arguments, getattr(at, name))

            def side_by_side(start: Value) -> list[Value]:
                steps = range(0, 2 * NEW * VECTOR_BYTES, VECTOR_BYTES)
                return [float_pointer(b, b.add(start, word(by))) for by in steps]

            seen = [load_vector(b, float_pointer(b, it)) for it in near_rows(b, source, step, SEEN)]
            for by in range(0, 2 * NEW * VECTOR_BYTES, LINE_BYTES):
                ahead = word(2 * NEW * VECTOR_BYTES + by)
                prefetch(b, b.add(target, ahead), write=True, level=1)
                prefetch(b, b.add(values, ahead), write=False, level=1)
            made = finished(
                b,
                field,
                back_target_line(b, seen),
                lambda: [load_vector(b, float_pointer(b, field("bias")))] * (2 * NEW),
                lambda: [load_vector(b, place) for place in side_by_side(values)],
            )
            for value, place in zip(made, side_by_side(target), strict=True):
                store_vector(b, value, place)
            return context.get_dummy_value()

        return types.void(arguments, *[types.int64] * 4), codegen

    return intrinsic(row)
