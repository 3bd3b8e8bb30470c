"""Transforms of rows of tiles that are one voxel wide, as `lines` go through them: to points, and back to outputs.

What is known of one tile of a row is known of all, so there is an address for each plane, and none is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
    DOUBLE,
    FLOAT,
    VECTOR,
    ZERO_VECTOR,
    Value,
    argument,
    broadcast,
    counted_loop,
    either,
    float_pointer,
    load_vector,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.both_gradients import AT
from znnpy_kernels.winograd.forms import NEW, POINTS
from znnpy_kernels.winograd.line_transforms import gradient_line, source_line, target_line
from znnpy_kernels.winograd.products import GROUP, odd_bytes

# Tiles at once: filters are read, and sums of a weight gradient loaded and stored, with each group.
WIDE = 2 * GROUP
POINT = odd_bytes(WIDE)  # bytes from point to point: known while code is made


def _rows_of(
    b: ir.IRBuilder, start: Value, step: Value, inside: Any, count: int, none: Value
) -> list[Value]:
    """Addresses of `count` rows, of which those outside of a range of numbers are `none`."""
    first, end = inside
    found = []
    for number in range(count):
        lies = b.and_(
            b.icmp_signed("<=", first, word(number)), b.icmp_signed("<", word(number), end)
        )
        found.append(b.select(lies, b.add(start, b.mul(step, word(number))), none))
    return found


def _points_of(line: Callable[..., Any], count: int) -> Any:
    """The intrinsic `(source, step, first, end, zeros, target, tiles)`: lines of a row of tiles to their points.

    Of planes `step` bytes apart, of which first..end exist; `zeros` is a row of these.
    """

    @intrinsic
    def points(
        typingctx: Any,
        source: Any,
        step: Any,
        first: Any,
        end: Any,
        zeros: Any,
        target: Any,
        tiles: Any,
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step, first, end, zeros, target, tiles) = builder, args
            rows = _rows_of(b, source, step, (first, end), count, zeros)

            def tile(index: Value, _: list[Value]) -> list[Value]:
                by = b.mul(index, word(VECTOR_BYTES))
                places = [float_pointer(b, b.add(row, by)) for row in rows]
                values = line(b, [load_vector(b, place) for place in places])
                to = b.add(target, by)
                for number, value in enumerate(values):
                    store_vector(b, value, float_pointer(b, b.add(to, word(number * POINT))))
                return []

            counted_loop(b, tiles, [], tile)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return points


source_points, value_points = _points_of(source_line, POINTS), _points_of(gradient_line, NEW)


@intrinsic
def finish_outputs(
    typingctx: Any, arguments: Any, bias: Any, sums: Any, source: Any, target: Any, step: Any, count: Any,
    unread: Any, values: Any, values_step: Any, zeros: Any, tiles: Any,
) -> tuple[Signature, Any]:  # fmt: skip
    """Products of a row of tiles to outputs with the epilogue of `direct.epilogue`, of which `count` planes exist."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b = builder
        (
            arguments,
            bias,
            sums,
            source,
            target,
            step,
            count,
            unread,
            values,
            by_values,
            zeros,
            tiles,
        ) = args

        def field(name: str) -> Value:
            return argument(b, arguments, getattr(AT, name))

        inside = word(0), count
        targets = _rows_of(b, target, step, inside, NEW, unread)
        seen = _rows_of(b, values, by_values, inside, NEW, zeros)
        slope, slopes = b.bitcast(field("slope"), DOUBLE), field("slopes")
        learned = b.icmp_signed("!=", slopes, word(0))
        flat = b.and_(b.not_(learned), b.fcmp_ordered("==", slope, ir.Constant(DOUBLE, 0.0)))
        given = broadcast(b, b.fptrunc(slope, FLOAT))
        (factor,) = when(b, learned, [given], lambda: [load_vector(b, float_pointer(b, slopes))])
        (constant,) = when(
            b, b.icmp_signed("!=", field("bias"), word(0)), [ZERO_VECTOR],
            lambda: [load_vector(b, float_pointer(b, bias))],
        )  # fmt: skip

        def loop(backward: bool, cut: bool) -> list[Value]:
            def tile(index: Value, totals: list[Value]) -> list[Value]:
                by = b.mul(index, word(VECTOR_BYTES))
                here = b.add(source, by)
                made = target_line(
                    b,
                    [
                        load_vector(b, float_pointer(b, b.add(here, word(number * POINT))))
                        for number in range(POINTS)
                    ],
                )
                found = []
                for number, value in enumerate(made):
                    place = b.add(targets[number], by)
                    if backward:
                        at = b.add(seen[number], by)
                        reference = load_vector(b, float_pointer(b, at))
                    else:
                        value = b.fadd(value, constant)
                        reference = value
                    low = ZERO_VECTOR if cut else b.fmul(value, factor)
                    below = b.fcmp_ordered("<=", reference, ir.Constant(VECTOR, [0.0] * LANES))
                    value = b.select(below, low, value)
                    store_vector(b, value, float_pointer(b, place))
                    found.append(value)
                return (
                    [b.fadd(*pair) for pair in zip(totals, found, strict=True)] if backward else []
                )

            return counted_loop(b, tiles, [ZERO_VECTOR] * NEW if backward else [], tile)

        def backward() -> list[Value]:
            totals = either(b, flat, lambda: loop(True, True), lambda: loop(True, False))

            def added() -> list[Value]:
                place = float_pointer(b, sums)
                total = load_vector(b, place)
                for number, value in enumerate(totals):
                    lies = b.icmp_signed("<", word(number), count)
                    total = b.fadd(total, b.select(lies, value, ZERO_VECTOR))
                store_vector(b, total, place)
                return []

            when(b, b.icmp_signed("!=", sums, word(0)), [], added)
            return []

        def forward() -> list[Value]:
            either(b, flat, lambda: loop(False, True), lambda: loop(False, False))
            return []

        either(b, b.icmp_signed("!=", field("output"), word(0)), backward, forward)
        return context.get_dummy_value()

    return types.void(arguments, *[types.int64] * 11), codegen
