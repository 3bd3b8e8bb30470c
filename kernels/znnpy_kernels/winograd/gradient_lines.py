"""Transforms of Winograd's minimal filtering for filter gradients: six voxels, four gradients, three taps.

    dg = G' [(A dy) * (B' d)]       the transpose of `lines`, by the filter

Vectors hold LANES images. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import Value, load_vector, multiply_add, store_vector, word
from znnpy_kernels.winograd.lines import (
    HIGH,
    LOW,
    NEW,
    POINTS,
    _at,
    _constant,
    filter_matrix,
    source_line,
)

Line = Callable[[ir.IRBuilder, list[Value]], list[Value]]


def gradient_line(builder: ir.IRBuilder, y: list[Value]) -> list[Value]:
    """A y: POINTS values from NEW gradients."""
    b = builder

    def pair(at: float) -> list[Value]:
        even = multiply_add(b, y[2], _constant(at**2), y[0])
        odd = multiply_add(b, y[3], _constant(at**2), y[1])
        return [multiply_add(b, odd, _constant(sign * at), even) for sign in (1, -1)]

    return [y[0], *pair(LOW), *pair(HIGH), y[3]]


def filter_line(builder: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """G' m: TAPS taps from POINTS sums; G has the same magnitudes at a place and its opposite."""
    b, matrix = builder, filter_matrix()
    low, high = (
        [b.fadd(m[1], m[2]), b.fsub(m[1], m[2])],
        [b.fadd(m[3], m[4]), b.fsub(m[3], m[4])],
    )

    def tap(number: int) -> Value:
        first = b.fmul(low[number % 2], _constant(matrix[1, number]))
        return multiply_add(b, high[number % 2], _constant(matrix[3, number]), first)

    return [b.fadd(m[0], tap(0)), tap(1), b.fadd(m[5], tap(2))]


def _depth_of(line: Line, count: int) -> Any:
    """The intrinsic `(source, step, target, target_step)`: `count` vectors of a column, transformed."""

    def depth(
        typingctx: Any, source: Any, step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step, target, target_step) = builder, args
            column = [load_vector(b, _at(b, source, z, step)) for z in range(count)]
            for z, value in enumerate(line(b, column)):
                store_vector(b, value, _at(b, target, z, target_step))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return intrinsic(depth)


def _plane_of(line: Line, count: int) -> Any:
    """The intrinsic `(source, step_y, step_x, target, target_step)`: a plane of count x count vectors."""

    def plane(
        typingctx: Any, source: Any, step_y: Any, step_x: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step_y, step_x, target, target_step) = builder, args
            rows = [b.add(source, b.mul(step_y, word(y))) for y in range(count)]
            columns = [
                line(b, [load_vector(b, _at(b, row, x, step_x)) for row in rows])
                for x in range(count)
            ]
            made = [value for row in zip(*columns, strict=True) for value in line(b, list(row))]
            for number, value in enumerate(made):
                store_vector(b, value, _at(b, target, number, target_step))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return intrinsic(plane)


source_depth = _depth_of(source_line, POINTS)
gradient_plane, gradient_depth = _plane_of(gradient_line, NEW), _depth_of(gradient_line, NEW)
filter_plane, filter_depth = _plane_of(filter_line, POINTS), _depth_of(filter_line, POINTS)
