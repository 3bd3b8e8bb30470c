"""Products of Winograd's minimal filtering between planar channels: a point of LANES tiles is one vector.

Tiles times filters are summed over inputs, one float of the filters for a whole vector; tiles times gradients over
tiles. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    multiply_add,
    shuffled,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.winograd.forms import axes_of
from znnpy_kernels.winograd.line_transforms import slots_of, target_line
from znnpy_kernels.winograd.planar_lines import stepped

# Channels whose sums over tiles are in registers at once, one vector a pair: as many pairs as a vector has lanes.
OUTPUTS = 4
INPUTS = LANES // OUTPUTS
# Outputs whose products with all points of a line are in registers at once: 4 * 6 sums of 32 registers, 2 * 6 of 16.
TOGETHER = 4 if REGISTERS == 32 else 2


@intrinsic
def column_products(
    typingctx: Any,
    form: Any,
    count: Any,
    source: Any,
    inputs: Any,
    filters: Any,
    filters_input: Any,
    target: Any,
    first: Any,
    slot: Any,
) -> tuple[Signature, Any]:
    """Products of a column's points with the filters of `count` <= TOGETHER outputs, back along y.

    `source`: vectors [input][point]. `filters`: of the first output, a float each [point][input], `filters_input`
    bytes from input to input. `target`: of the first output, the others behind it, in a ring of rows from slot
    `first` on, `slot` bytes from each other.
    """
    _, points, new = axes_of(form)[1]

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, count, source, inputs, filters, step, target, first, slot) = builder, args

        def some(outputs: int) -> None:
            sums = _products(b, points, outputs, source, inputs, filters, step)
            slots = [b.add(target, b.mul(slot, it)) for it in slots_of(b, first, new, points)]
            for output in range(outputs):
                for place, value in zip(slots, target_line(b, sums[output::outputs]), strict=True):
                    here = b.add(place, word(VECTOR_BYTES * output))
                    store_vector(b, value, float_pointer(b, here))

        by_count(b, count, range(1, TOGETHER + 1), some)
        return context.get_dummy_value()

    return types.void(form, *[types.int64] * 8), codegen


def _products(
    b: ir.IRBuilder,
    points: int,
    outputs: int,
    source: Value,
    inputs: Value,
    filters: Value,
    step: Value,
) -> list[Value]:
    """Sums over inputs, [point][output]."""
    each = b.mul(inputs, step)

    def term(_: Value, carried: list[Value]) -> list[Value]:
        place, filters, *sums = carried
        found: list[Value] = []
        for point in range(points):
            values = load_vector(b, float_pointer(b, b.add(place, word(VECTOR_BYTES * point))))
            row = stepped(b, filters, each, point)
            for output in range(outputs):
                factor = load_broadcast(b, float_pointer(b, b.add(row, word(4 * output))))
                found.append(multiply_add(b, values, factor, sums[len(found)]))
        return [b.add(place, word(points * VECTOR_BYTES)), b.add(filters, step), *found]

    zeros = [ZERO_VECTOR] * (points * outputs)
    return counted_loop(b, inputs, [source, filters, *zeros], term)[2:]


@intrinsic
def add_pairs(
    typingctx: Any,
    source: Any,
    gradient: Any,
    channel: Any,
    groups: Any,
    group: Any,
    target: Any,
) -> tuple[Signature, Any]:
    """Add the products of one point of INPUTS by OUTPUTS channels, over the tiles of some groups, to a vector.

    Lane i OUTPUTS + o has the sum of input i and output o. `source`, `gradient`: of the first channel, `channel`
    bytes from channel to channel and `group` from group to group.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (source, gradient, channel, groups, group, target) = builder, args

        def loaded(start: Value, count: int) -> list[Value]:
            places = (
                float_pointer(b, stepped(b, start, channel, number)) for number in range(count)
            )
            return [load_vector(b, place) for place in places]

        def term(_: Value, carried: list[Value]) -> list[Value]:
            source, gradient, *sums = carried
            gradients = loaded(gradient, OUTPUTS)
            pairs = [(value, other) for value in loaded(source, INPUTS) for other in gradients]
            added = [multiply_add(b, *pair, sum_) for pair, sum_ in zip(pairs, sums, strict=True)]
            return [b.add(source, group), b.add(gradient, group), *added]

        zeros = [ZERO_VECTOR] * (INPUTS * OUTPUTS)
        _, _, *sums = counted_loop(b, groups, [source, gradient, *zeros], term)
        place = float_pointer(b, target)
        store_vector(b, b.fadd(load_vector(b, place), _totals(b, sums)), place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


def _totals(b: ir.IRBuilder, vectors: list[Value]) -> Value:
    """A vector whose lane n is the sum of the lanes of vector n of LANES."""
    half = LANES // 2
    while half:
        # Lanes whose bit `half` is 0 keep the first of two vectors, the others the second.
        low = [lane if not lane & half else lane - half + LANES for lane in range(LANES)]
        high = [lane + half if not lane & half else lane + LANES for lane in range(LANES)]
        vectors = [
            b.fadd(shuffled(b, one, other, low), shuffled(b, one, other, high))
            for one, other in zip(vectors[:half], vectors[half:], strict=True)
        ]
        half //= 2
    return vectors[0]
