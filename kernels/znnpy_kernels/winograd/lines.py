"""Filters of three taps along z and one along y and x, without padding along these: rows of tiles, one voxel wide.

A tile along x is a voxel, so tiles of a row lie side by side in the source, at their points and in the target, and what
is known of one is known of all: an address for each of six planes, and of four. Planes that lie outside are a row of
zeros, or one that nobody reads (docs/design/winograd.md, *Lines*). Rows come as they lie in memory; what the next
tiles need is asked for while these are transformed.

`winograd_lines_back`: data gradient and weight gradient in one task.

Argument words: those of `both_gradients`, with `before_y`, `before_x` 0.

Tasks may run concurrently if their tiles, and `weights`, are disjoint. Scratch of a worker, `lines_bytes`: a row of
zeros, one for what nobody reads, points of a group of tiles [block][point][tile] with a place before them for products,
points of values, sums [point][channel][block of the gradient].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
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
    prefetch,
    store_vector,
    when,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.winograd.both_gradients import AT, add_point, clear, taps_of
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.forms import FORMS, NEW, POINTS, TAPS
from znnpy_kernels.winograd.gradient_lines import filter_depth
from znnpy_kernels.winograd.line_transforms import gradient_line, source_line, target_line
from znnpy_kernels.winograd.planes import clear_bias_gradient
from znnpy_kernels.winograd.products import GROUP, multiply_blocks, odd_bytes
from znnpy_kernels.winograd.tiles import origin

TAPS_OF_LINES = (TAPS, 1, 1)
# Tiles at once where sums of a weight gradient are loaded and stored with each group: more of them take 2 to 4 % less.
WIDE = 2 * GROUP
POINT = odd_bytes(WIDE)  # bytes from point to point: known while code is made
BLOCK = (
    POINTS + 1
) * POINT  # from block to block: products of a point take the place of the point before
VALUES = POINTS * POINT  # the same of values
_FORM = FORMS[TAPS_OF_LINES]


# Bytes of the sums of all pairs of channels at all points that stay in an L1 or L2 cache beside all else.
SUMS_BYTES = 1 << 16
LINES = REGISTERS == 16
"""Whether lines take these kernels: with 16 lanes this has not been measured beside `forward`."""


def sums_bytes(inputs: int, outputs: int) -> int:
    """Bytes of the sums of a weight gradient between so many channels."""
    return POINTS * inputs * -(-outputs // LANES) * VECTOR_BYTES


def lines_floats(inputs: int, outputs: int, *, weights: bool) -> int:
    """Floats of scratch that each worker needs between so many channels."""
    rows, blocks = -(-inputs // LANES), -(-outputs // LANES)
    bytes_ = 2 * POINT + max(rows, blocks) * BLOCK
    if weights:
        bytes_ += blocks * VALUES + sums_bytes(outputs, inputs)
    return bytes_ // 4


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

    Of planes `step` bytes apart, of which first..end exist; `zeros` is a row of these. Asks for as many tiles behind.
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
            ahead = b.mul(tiles, word(VECTOR_BYTES))

            def tile(index: Value, _: list[Value]) -> list[Value]:
                by = b.mul(index, word(VECTOR_BYTES))
                places = [b.add(row, by) for row in rows]
                # The first two planes are those of the tile before along z, if that is in a cache.
                for place in places[count - NEW :]:
                    prefetch(b, b.add(place, ahead), write=False, level=2)
                values = line(b, [load_vector(b, float_pointer(b, place)) for place in places])
                to = b.add(target, by)
                for number, value in enumerate(values):
                    store_vector(b, value, float_pointer(b, b.add(to, word(number * POINT))))
                return []

            counted_loop(b, tiles, [], tile)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return points


_source_points, _value_points = _points_of(source_line, POINTS), _points_of(gradient_line, NEW)


@intrinsic
def _outputs(
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
        ahead = b.mul(tiles, word(VECTOR_BYTES))
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
                    prefetch(b, b.add(place, ahead), write=True, level=1)
                    if backward:
                        at = b.add(seen[number], by)
                        prefetch(b, b.add(at, ahead), write=False, level=2)
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


@inlined
def _filters(source: int, step: int, target: int, target_step: int) -> None:
    filter_depth(_FORM, source, step, target, target_step)


_to_taps = taps_of(_filters, TAPS)


@inlined
def _group(
    args: Any,
    z: int,
    y: int,
    x: int,
    count: int,
    zeros: int,
    points: int,
    weights: bool,
    values: int,
    sums: int,
) -> None:
    """Compute tiles of a row, `count` from x on."""
    step, before = 4 * args[AT.source_z] * args[AT.dilation_z], z - args[AT.before_z]
    dilation = args[AT.dilation_z]
    first = max(0, cover(-before, dilation))
    end = cover(args[AT.source_size_z] - before, dilation)
    here = (
        args[AT.source]
        + 4 * (before * args[AT.source_z] + y * args[AT.source_y])
        + x * VECTOR_BYTES
    )
    for block in range(cover(args[AT.inputs], LANES)):
        from_, into = here + 4 * block * args[AT.source_block], points + POINT + block * BLOCK
        _source_points(from_, step, first, end, zeros, into, count)
    made = min(NEW, cover(args[AT.target_size_z] - z, dilation))
    if weights:
        here = (
            args[AT.values] + 4 * (z * args[AT.values_z] + y * args[AT.values_y]) + x * VECTOR_BYTES
        )
        step = 4 * args[AT.values_z] * dilation
        for block in range(cover(args[AT.channels], LANES)):
            from_, into = here + 4 * block * args[AT.values_block], values + block * VALUES
            _value_points(from_, step, 0, made, zeros, into, count)
        point_sums = args[AT.channels] * cover(args[AT.inputs], LANES) * VECTOR_BYTES
        for number in range(POINTS):
            add_point(
                args, count, values + number * POINT, VALUES, points + (number + 1) * POINT, BLOCK,
                sums + number * point_sums,
            )  # fmt: skip
    inputs, outputs = args[AT.inputs], args[AT.blocks]
    skipped = compiled_point_bytes(inputs, outputs) - inputs * outputs * VECTOR_BYTES
    multiply_blocks(
        POINTS, inputs, outputs, count, args[AT.filters], points + POINT, POINT, BLOCK, -POINT, skipped, None
    )  # fmt: skip
    here = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y]) + x * VECTOR_BYTES
    seen = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y]) + x * VECTOR_BYTES
    for block in range(outputs):
        totals = args[AT.bias_gradient]
        _outputs(
            args, args[AT.bias] + block * VECTOR_BYTES, totals + block * VECTOR_BYTES if totals else 0,
            points + block * BLOCK, here + 4 * block * args[AT.target_block],
            4 * args[AT.target_z] * dilation, made, zeros + POINT,
            seen + 4 * block * args[AT.output_block], 4 * args[AT.output_z] * dilation, zeros, count,
        )  # fmt: skip


@inlined
def _lines(args: Any, scratch: int, weights: bool) -> None:
    clear_bias_gradient(args)
    zeros, points = scratch, scratch + 2 * POINT
    values = points + max(cover(args[AT.inputs], LANES), args[AT.blocks]) * BLOCK
    sums = values + args[AT.blocks] * VALUES
    clear(zeros, POINT // VECTOR_BYTES)
    if weights:
        clear(sums, POINTS * args[AT.channels] * cover(args[AT.inputs], LANES))
    width = args[AT.target_size_x]
    groups = cover(width, WIDE if weights else GROUP)
    for tile in range(args[AT.z0], args[AT.z1]):
        z = origin(tile, args[AT.dilation_z], NEW)
        if z < args[AT.target_size_z]:
            for y in range(args[AT.y0], args[AT.y1]):
                for group in range(groups):
                    x, end = group * width // groups, (group + 1) * width // groups
                    _group(args, z, y, x, end - x, zeros, points, weights, values, sums)
    if weights:
        _to_taps(args, sums)


def _lines_kernel(name: str, weights: bool) -> Kernel:
    @kernel(AT, name=name)
    def lines(args: Any, worker: int) -> None:
        """Correlation of channels with lines of taps, and the weight gradient in passing. Words: see the module."""
        _lines(args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker], weights)

    return lines


winograd_lines = _lines_kernel("winograd_lines", False)
winograd_lines_back = _lines_kernel("winograd_lines_back", True)
