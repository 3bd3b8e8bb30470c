"""Transforms of Winograd's minimal filtering along axes of three taps with a stride of two: nine voxels, four outputs.

    y[i] = (g0 d[2 i] + g2 d[2 i + 2]) + g1 d[2 i + 1]

Voxels of even numbers meet two taps that lie next to each other among them: F(4, 2) at the places 0, +-BOTH, infinity
and LAST, five products for eight (Winograd 1980). Those of odd numbers meet one tap: four products, as any four of the
places tell four outputs. So these products are added to those of the first four places: nine products instead of
twelve, five sums instead of nine. Along two and three axes 81 products for 144, and 729 for 1728.

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

from znnpy_kernels.simd.codegen import (
    VECTOR,
    Value,
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
from znnpy_kernels.winograd.line_transforms import LINE_BYTES, near_rows

# The last place only voxels of even numbers have. With these rounding is about the least: powers are near 1.
BOTH, LAST = 0.75, 2.0
POINTS = NEW + 1
ALONE = POINTS - 1
"""The number of the last place."""
SEEN = 2 * NEW + 1
"""Voxels of a tile along an axis, and what they become: two for each place but the last, of even and of odd numbers."""
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


def source_line(b: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """SEEN values from as many voxels: of each place those of even and of odd numbers."""
    even, odd = d[0::2], d[1::2]

    def plus(low: Value, factor: float, value: Value) -> Value:
        return multiply_add(b, value, _constant(factor), low)

    # Coefficients of the products of (x - place) over all other places: three share (x^2 - BOTH^2).
    two, three, four = (plus(even[n + 2], -(BOTH**2), even[n]) for n in range(3))
    outer = [
        plus(three, -LAST, two),
        plus(plus(even[3], -BOTH * LAST, even[1]), BOTH - LAST, even[2]),
        plus(plus(even[3], BOTH * LAST, even[1]), -BOTH - LAST, even[2]),
        plus(four, -LAST, three),
        three,
    ]
    # What places give outputs that are these voxels: the inverse of `target_line` without the last place.
    half = b.fmul(odd[2], _constant(0.5 / BOTH**2))
    inner = [
        plus(odd[0], -1 / BOTH**2, odd[2]),
        plus(half, 0.5 / BOTH, odd[1]),
        plus(half, -0.5 / BOTH, odd[1]),
        plus(odd[3], -(BOTH**2), odd[1]),
    ]
    pairs = zip(outer, inner, strict=False)
    return [value for pair in pairs for value in pair] + outer[ALONE:]


def target_line(b: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """NEW outputs from POINTS sums of products."""
    if len(m) == 1:
        return m
    low, plus, minus, infinity, last = m
    even, odd = b.fadd(plus, minus), b.fsub(plus, minus)

    def powers(power: int, both: Value) -> Value:
        scaled = b.fmul(both, _constant(BOTH**power))
        return multiply_add(b, last, _constant(LAST**power), scaled)

    return [
        b.fadd(b.fadd(low, even), last),
        powers(1, odd),
        powers(2, even),
        b.fadd(powers(3, odd), infinity),
    ]


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
            for by in range(SEEN * VECTOR_BYTES, (2 * SEEN - 1) * VECTOR_BYTES, LINE_BYTES):
                if early:
                    prefetch(b, b.add(source, word(by)), write=False, level=1)
            made = line(b, [load_vector(b, float_pointer(b, it)) for it in seen])
            into = (near_rows if far else _steps)(b, target, target_step, len(made))
            for value, place in zip(made, into, strict=True):
                store_vector(b, value, float_pointer(b, place))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return intrinsic(transform)


along_source, along_target = _line_of(source_line, SEEN), _line_of(target_line, POINTS)
voxels_along_x = _line_of(source_line, SEEN, early=True)
source_to_points = _line_of(source_line, SEEN, far=True)
