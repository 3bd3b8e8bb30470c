"""Transforms of the filter gradient's planes and columns: of voxels, of gradients, and back to taps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import Value, load_vector, multiply_add, store_vector, word
from znnpy_kernels.winograd.forms import Axis, axes_of
from znnpy_kernels.winograd.line_transforms import (
    Line,
    _at,
    _constant,
    filter_matrix,
    gradient_line,
    source_line,
)


def filter_line(builder: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """G' m: TAPS taps from POINTS sums; G has the same magnitudes at a place and its opposite."""
    if len(m) == 1:
        return m
    # So a pair of places needs one product, of the sum or of the difference by the tap's parity.
    b, matrix = builder, filter_matrix()
    low, high = (
        [b.fadd(m[1], m[2]), b.fsub(m[1], m[2])],
        [b.fadd(m[3], m[4]), b.fsub(m[3], m[4])],
    )

    def tap(number: int) -> Value:
        first = b.fmul(low[number % 2], _constant(matrix[1, number]))
        return multiply_add(b, high[number % 2], _constant(matrix[3, number]), first)

    return [b.fadd(m[0], tap(0)), tap(1), b.fadd(m[5], tap(2))]


Count = Callable[[Axis], int]
"""Of values that a line is made of."""


def _depth_of(line: Line, count: Count) -> Any:
    """The intrinsic `(form, source, step, target, target_step)`: the vectors of a column along z, transformed."""

    def depth(
        typingctx: Any, form: Any, source: Any, step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        values = count(axes_of(form)[0])

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step, target, target_step) = builder, args
            column = [load_vector(b, _at(b, source, z, step)) for z in range(values)]
            for z, value in enumerate(line(b, column)):
                store_vector(b, value, _at(b, target, z, target_step))
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 4), codegen

    return intrinsic(depth)


def _plane_of(line: Line, count: Count) -> Any:
    """The intrinsic `(form, source, step_y, step_x, target, target_step)`: a plane of vectors, transformed."""

    def plane(
        typingctx: Any,
        form: Any,
        source: Any,
        step_y: Any,
        step_x: Any,
        target: Any,
        target_step: Any,
    ) -> tuple[Signature, Any]:
        _, high, wide = (count(axis) for axis in axes_of(form))

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_y, step_x, target, target_step) = builder, args
            rows = [b.add(source, b.mul(step_y, word(y))) for y in range(high)]
            columns = [
                line(b, [load_vector(b, _at(b, row, x, step_x)) for row in rows])
                for x in range(wide)
            ]
            made = [value for row in zip(*columns, strict=True) for value in line(b, list(row))]
            for number, value in enumerate(made):
                store_vector(b, value, _at(b, target, number, target_step))
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 5), codegen

    return intrinsic(plane)


def _points(axis: Axis) -> int:
    return axis.points


def _new(axis: Axis) -> int:
    return axis.new


source_depth = _depth_of(source_line, _points)
gradient_plane, gradient_depth = _plane_of(gradient_line, _new), _depth_of(gradient_line, _new)
filter_plane, filter_depth = _plane_of(filter_line, _points), _depth_of(filter_line, _points)
