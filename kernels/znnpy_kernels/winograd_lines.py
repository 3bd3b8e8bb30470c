"""Transforms of Winograd's minimal filtering along lines: six voxels give four outputs of three taps.

    Y = A' [(G g) * (B' d)]     (Winograd 1980; Lavin and Gray 2016, arXiv 1509.09308)

The polynomials are evaluated at 0, +-sqrt(1/2), +-sqrt(2) and infinity: with a * b = 1 numbers neither
grow nor shrink much, and three transformed axes lose about as many bits as a transform by FFT.
Along z, y and x one after the other it is the same for cubes: POINTS^3 products for NEW^3 outputs.

Vectors hold LANES images. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct_epilogue import finished
from znnpy_kernels.lanes import LANES
from znnpy_kernels.simd import (
    VECTOR,
    Value,
    float_pointer,
    load_vector,
    multiply_add,
    prefetch,
    store_vector,
    word,
)

TAPS, NEW = 3, 4
POINTS = TAPS + NEW - 1
LOW, HIGH = sqrt(0.5), sqrt(2.0)
VECTOR_BYTES = 4 * LANES
PLANE = POINTS * POINTS


def filter_matrix() -> Any:
    """G as float64 (POINTS, TAPS): powers of each place, divided by its distances to the others."""
    places = (0.0, LOW, -LOW, HIGH, -HIGH)
    rows = [
        [place**tap / np.prod([place - other for other in places if other != place])
         for tap in range(TAPS)]
        for place in places
    ]  # fmt: skip
    return np.array([*rows, [0.0, 0.0, 1.0]])


def source_line(builder: ir.IRBuilder, d: list[Value]) -> list[Value]:
    """B' d: POINTS values from as many voxels."""
    b = builder

    def plus(low: Value, factor: float, value: Value) -> Value:
        return multiply_add(b, value, _constant(factor), low)

    even_low, odd_low = plus(d[4], -2.0, d[2]), plus(d[3], -2.0, d[1])
    even_high, odd_high = plus(d[4], -0.5, d[2]), plus(d[3], -0.5, d[1])
    return [
        b.fadd(d[0], plus(d[4], -2.5, d[2])),
        plus(even_low, LOW, odd_low),
        plus(even_low, -LOW, odd_low),
        plus(even_high, HIGH, odd_high),
        plus(even_high, -HIGH, odd_high),
        b.fadd(d[1], plus(d[5], -2.5, d[3])),
    ]


def target_line(builder: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """A' m: NEW outputs from POINTS products."""
    b = builder

    def scaled(low: Value, first: float, high: Value, second: float) -> Value:
        return multiply_add(b, high, _constant(second), b.fmul(low, _constant(first)))

    even_low, odd_low = b.fadd(m[1], m[2]), b.fsub(m[1], m[2])
    even_high, odd_high = b.fadd(m[3], m[4]), b.fsub(m[3], m[4])
    last = scaled(odd_low, LOW**3, odd_high, HIGH**3)
    return [
        b.fadd(m[0], b.fadd(even_low, even_high)),
        scaled(odd_low, LOW, odd_high, HIGH),
        scaled(even_low, LOW**2, even_high, HIGH**2),
        b.fadd(last, m[5]),
    ]


def _constant(value: float) -> Value:
    return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)


def _plane(b: ir.IRBuilder, rows: list[list[Value]], line: Callable[..., Any]) -> list[Value]:
    """Both axes of a plane [y][x], y first; all values in a row."""
    columns = [line(b, list(column)) for column in zip(*rows, strict=True)]
    return [value for row in zip(*columns, strict=True) for value in line(b, list(row))]


def _at(b: ir.IRBuilder, start: Value, number: int, step: Value | int) -> Value:
    bytes_ = word(number * step) if isinstance(step, int) else b.mul(step, word(number))
    return float_pointer(b, b.add(start, bytes_))


def _asking(count: int, *, write: bool) -> Any:
    """The intrinsic `(source, step_y, step_x)` that asks for count x count vectors, into the L1 cache."""

    def ask(typingctx: Any, source: Any, step_y: Any, step_x: Any) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step_y, step_x) = builder, args
            for y, x in product(range(count), repeat=2):
                along = b.add(b.mul(step_y, word(y)), b.mul(step_x, word(x)))
                prefetch(b, b.add(source, along), write=write, level=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), codegen

    return intrinsic(ask)


ask_to_read, ask_to_write = _asking(POINTS, write=False), _asking(NEW, write=True)


@intrinsic
def source_plane(
    typingctx: Any, source: Any, step_y: Any, step_x: Any, target: Any
) -> tuple[Signature, Any]:
    """POINTS x POINTS voxels, transformed along y and x, to [y][x] vectors at `target`."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step_y, step_x, target) = builder, args
        rows = []
        for y in range(POINTS):
            row = b.add(source, b.mul(step_y, word(y)))
            rows.append([load_vector(b, _at(b, row, x, step_x)) for x in range(POINTS)])
        for number, value in enumerate(_plane(b, rows, source_line)):
            store_vector(b, value, _at(b, target, number, VECTOR_BYTES))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def source_depth(typingctx: Any, source: Any, target: Any, step: Any) -> tuple[Signature, Any]:
    """One column of planes transformed along z, to `step` bytes from each other."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, target, step) = builder, args
        column = [load_vector(b, _at(b, source, PLANE * z, VECTOR_BYTES)) for z in range(POINTS)]
        for z, value in enumerate(source_line(b, column)):
            store_vector(b, value, _at(b, target, z, step))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


@intrinsic
def target_depth(typingctx: Any, source: Any, step: Any, target: Any) -> tuple[Signature, Any]:
    """One column of products, `step` bytes from each other, to NEW planes."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, step, target) = builder, args
        column = [load_vector(b, _at(b, source, z, step)) for z in range(POINTS)]
        for z, value in enumerate(target_line(b, column)):
            store_vector(b, value, _at(b, target, PLANE * z, VECTOR_BYTES))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def target_plane_of(fields: tuple[str, ...]) -> Any:
    """The intrinsic `(arguments, bias, source, target, step_y, step_x)` of a kernel with these words.

    NEW x NEW outputs of a plane at `source`, with the epilogue of `direct_epilogue`; `bias`: address
    of a vector.
    """

    def target_plane(
        typingctx: Any,
        arguments: Any,
        bias: Any,
        source: Any,
        target: Any,
        step_y: Any,
        step_x: Any,
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (arguments, bias, source, target, step_y, step_x) = builder, args
            values = [
                [
                    load_vector(b, _at(b, source, POINTS * y + x, VECTOR_BYTES))
                    for x in range(POINTS)
                ]
                for y in range(POINTS)
            ]
            outputs = _plane(b, values, target_line)
            places = []
            for y in range(NEW):
                row = b.add(target, b.mul(step_y, word(y)))
                places += [_at(b, row, x, step_x) for x in range(NEW)]

            def field(name: str) -> Value:
                index = fields.index(name)
                return b.load(b.gep(arguments, [word(index)]))

            done = finished(
                b,
                field,
                outputs,
                lambda: [load_vector(b, float_pointer(b, bias))] * len(outputs),
                lambda: outputs,
            )
            for value, place in zip(done, places, strict=True):
                store_vector(b, value, place)
            return context.get_dummy_value()

        return types.void(arguments, *[types.int64] * 5), codegen

    return intrinsic(target_plane)
