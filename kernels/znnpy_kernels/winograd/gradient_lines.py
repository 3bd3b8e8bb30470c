"""Transforms of the filter gradient's planes and columns: of voxels, of gradients, and back to taps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
    Value,
    counted_loop,
    float_pointer,
    load_vector,
    multiply_add,
    prefetch,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.winograd.forms import TAPS, Axis, axes_of
from znnpy_kernels.winograd.line_transforms import (
    LINE_BYTES,
    SOURCE_ROWS,
    Line,
    Rows,
    _at,
    _constant,
    _kept,
    _rows,
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

    def tap(number: int, one: Value | None) -> Value:
        factor, value = _constant(matrix[1, number]), low[number % 2]
        first = b.fmul(value, factor) if one is None else multiply_add(b, value, factor, one)
        return multiply_add(b, high[number % 2], _constant(matrix[3, number]), first)

    return [tap(0, m[0]), tap(1, None), tap(2, m[5])]


Count = Callable[[Axis], int]
"""Of values that a line is made of."""


def line_of(line: Line, count: Count, axis: int = 0, ahead: int = 0, *, adds: bool = False) -> Any:
    """The intrinsic `(form, source, step, target, target_step)`: vectors along an axis, z at first, transformed.

    `ahead`: bytes behind each target that are asked for, to be written next; 0: none are. `adds`: to what is there.
    """

    def along(
        typingctx: Any, form: Any, source: Any, step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        values = count(axes_of(form)[axis])

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step, target, target_step) = builder, args
            loaded = [load_vector(b, _at(b, source, one, step)) for one in range(values)]
            for one, value in enumerate(line(b, loaded)):
                place = b.add(target, b.mul(target_step, word(one)))
                into = float_pointer(b, place)
                store_vector(b, b.fadd(load_vector(b, into), value) if adds else value, into)
                if ahead:
                    prefetch(b, b.add(place, word(ahead)), write=True, level=1)
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 4), codegen

    return intrinsic(along)


def _plane_of(line: Line, count: Count, together: dict[int, Rows], dense: int = 0) -> Any:
    """The intrinsic `(form, source, step_y, step_x, target, target_step)`: a plane of vectors, transformed.

    `together`: rows that are made at once, by the taps along y. `dense`: bytes from vector to vector of the target,
    where they are known while code is made, of columns that lie side by side.
    """

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
        groups = together[axes_of(form)[1].taps]

        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (_, source, step_y, step_x, target, target_step) = builder, args
            rows = [b.add(source, b.mul(step_y, word(y))) for y in range(high)]
            if dense:
                step_x, target_step, target = VECTOR_BYTES, dense, _kept(b, target)

            def column(x: int) -> list[Value]:
                return [load_vector(b, _at(b, row, x, step_x)) for row in rows]

            number = 0
            for made in groups:
                for value in _rows(b, line, made, wide, column):
                    store_vector(b, value, _at(b, target, number, target_step))
                    number += 1
            return context.get_dummy_value()

        return types.void(form, *[types.int64] * 5), codegen

    return intrinsic(plane)


def _points(axis: Axis) -> int:
    return axis.points


def _new(axis: Axis) -> int:
    return axis.new


def gradient_plane_of(dense: int = 0) -> Any:
    """The intrinsic of a plane of gradients, transformed to points; see `_plane_of`."""
    # Points of six rows by pairs of the same sums, as those of voxels: all of them at once do not fit 16 registers.
    return _plane_of(gradient_line, _new, SOURCE_ROWS, dense)


gradient_plane = gradient_plane_of()
filter_plane = _plane_of(filter_line, _points, {TAPS: ((0, 1, 2),), 1: ((0,),)})
filter_depth, filter_height, filter_width = (line_of(filter_line, _points, n) for n in range(3))
add_filter_height, add_filter_width = (line_of(filter_line, _points, n, adds=True) for n in (1, 2))
# Of points that lie tile by tile, for which stores would wait: those of the next tile are asked for.
source_column = line_of(source_line, _points, ahead=VECTOR_BYTES)
gradient_column = line_of(gradient_line, _new, ahead=VECTOR_BYTES)


@intrinsic
def ask_to_write(typingctx: Any, address: Any, lines: Any) -> tuple[Signature, Any]:
    """Ask for so many cache lines from an address on, which are to be written."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        address, lines = args

        def line(number: Value, _: list[Value]) -> list[Value]:
            here = builder.add(address, builder.mul(number, word(LINE_BYTES)))
            prefetch(builder, here, write=True, level=1)
            return []

        counted_loop(builder, lines, [], line, maybe_empty=True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
