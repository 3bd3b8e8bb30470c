"""Transforms of filters for Winograd's minimal filtering: three taps to six points (`lines`: G g).

Sums are taken in float64 and rounded once, after all three axes. A vector of LANES filters takes two
registers of float64. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import DOUBLE, FLOAT, Value, float_pointer, word
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.streaming import stream_vector
from znnpy_kernels.winograd.lines import TAPS, TARGET_SCALES, filter_matrix

DOUBLES_BYTES = 2 * VECTOR_BYTES  # of a vector of filters as float64
HALF = LANES // 2
_FLOATS, _DOUBLES = ir.VectorType(FLOAT, HALF), ir.VectorType(DOUBLE, HALF)
_MATRIX = TARGET_SCALES[:, None] * filter_matrix()


def points_line(builder: ir.IRBuilder, taps: list[Value]) -> list[Value]:
    """G g, scaled by place: POINTS values from TAPS taps, each sum in the order of its taps."""
    return [_sum(builder, taps, row) for row in _MATRIX.tolist()]


def _sum(b: ir.IRBuilder, taps: list[Value], factors: list[float]) -> Value:
    constants = [ir.Constant(_DOUBLES, [factor] * HALF) for factor in factors]
    found = zip(taps, constants, factors, strict=True)
    return reduce(b.fadd, [b.fmul(tap, constant) for tap, constant, factor in found if factor])


def _load(b: ir.IRBuilder, kind: ir.VectorType, start: Value, half: int) -> Value:
    """A register: half a vector of floats or doubles."""
    size = 4 if kind is _FLOATS else 8
    place = b.add(start, word(size * HALF * half))
    return b.load(b.inttoptr(place, kind.as_pointer()), align=size)


@intrinsic
def points_plane(
    typingctx: Any, source: Any, step_y: Any, step_x: Any, target: Any, step: Any
) -> tuple[Signature, Any]:
    """TAPS x TAPS vectors of floats, transformed along x and y, to vectors of doubles [x][y]."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step_y, step_x, target, step) = builder, args

        def row(y: int, half: int) -> list[Value]:
            start = b.add(source, b.mul(step_y, word(y)))
            starts = [b.add(start, b.mul(step_x, word(x))) for x in range(TAPS)]
            return [b.fpext(_load(b, _FLOATS, start, half), _DOUBLES) for start in starts]

        for half in range(2):
            rows = [points_line(b, row(y, half)) for y in range(TAPS)]
            columns = [points_line(b, list(column)) for column in zip(*rows, strict=True)]
            into = b.add(target, word(8 * HALF * half))
            for number, value in enumerate(point for column in columns for point in column):
                place = b.add(into, b.mul(step, word(number)))
                b.store(value, b.inttoptr(place, _DOUBLES.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def points_depth(
    typingctx: Any, source: Any, step_z: Any, target: Any, step: Any
) -> tuple[Signature, Any]:
    """TAPS vectors of doubles, transformed along z, to vectors of floats that pass by the caches."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step_z, target, step) = builder, args

        def points(half: int) -> list[Value]:
            starts = [b.add(source, b.mul(step_z, word(z))) for z in range(TAPS)]
            taps = [_load(b, _DOUBLES, start, half) for start in starts]
            return [b.fptrunc(point, _FLOATS) for point in points_line(b, taps)]

        for number, (low, high) in enumerate(zip(points(0), points(1), strict=True)):
            place = float_pointer(b, b.add(target, b.mul(step, word(number))))
            stream_vector(b, _joined(b, low, high), place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _joined(b: ir.IRBuilder, low: Value, high: Value) -> Value:
    """A vector of two halves."""
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    return b.shuffle_vector(low, high, lanes)
