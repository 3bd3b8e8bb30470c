"""Weight gradients of shallow images, second stage: sums over all planes at once, and their taps (`shallow`).

`gradient_points` has made the points of all planes of source and gradient, as of filters of 1 x 3 x 3. For each of
these and each tap along z the products of the planes that it meets are summed in registers; a part of the inputs of a
block at a time is transformed back along y, column by column, then along x, in the L1 cache.

Argument words are those of `gradient_sums`, but for

    tiles, planes               planes of all images in each point; of one image, at most `MOST_PLANES`
    scratch, scratch_worker     worker w owns `shallow_sums_floats` from w * scratch_worker on: sums of a column
                                [tap along z][y][input][vector], of all columns [taps along z, y][x][input][vector]
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import gradient_sums
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS
from znnpy_kernels.winograd.gradient_lines import (
    add_filter_width,
    ask_to_write,
    filter_height,
    filter_width,
)
from znnpy_kernels.winograd.gradient_points import compiled_block_bytes
from znnpy_kernels.winograd.line_transforms import LINE_BYTES
from znnpy_kernels.winograd.panel_filters import PAIR
from znnpy_kernels.winograd.products import compiled_odd_bytes
from znnpy_kernels.winograd.shallow import FLAT, MOST_PLANES

AT = words(gradient_sums.AT, "planes")
# Inputs at a time: sums of all their columns, 14 KB, stay in the L1 cache.
TERMS = max(1, 128 // VECTOR_BYTES)
ROW = TERMS * PAIR * VECTOR_BYTES  # of a tap along z and a point
SUMS_FLOATS = (TAPS * POINTS + TAPS * TAPS * POINTS) * ROW // 4


@intrinsic(prefer_literal=True)
def _summed(
    typingctx: Any,
    vectors: Any,
    source: Any,
    gradient: Any,
    gradient_block: Any,
    images: Any,
    terms: Any,
    target: Any,
    planes: Any,
) -> tuple[Signature, Any]:
    """Sums of one point: `terms` inputs times `vectors` vectors of gradients, by tap along z, over all planes.

    Source [plane][input] and gradient [plane][lane] of an image after the other; to [tap along z][y][input][vector], of
    which this is one y.
    """
    wide = vectors.literal_value

    def emit(b: ir.IRBuilder, planes: int, words: list[Value]) -> None:
        source, gradient, block, images, terms, target = words

        def image(_: Value, carried: list[Value]) -> list[Value]:
            scalars, gradient, *sums = carried
            seen = [load_broadcast(b, moved(b, scalars, z * LANES)) for z in range(planes)]
            for z in range(planes):
                here = b.add(gradient, word(z * VECTOR_BYTES))
                for j in range(wide):
                    factor = load_vector(b, float_pointer(b, b.add(here, b.mul(block, word(j)))))
                    for tap in range(TAPS):
                        if 0 <= z + tap - 1 < planes:
                            number = tap * wide + j
                            sums[number] = multiply_add(b, factor, seen[z + tap - 1], sums[number])
            step = planes * LANES
            return [moved(b, scalars, step), b.add(gradient, word(4 * step)), *sums]

        def term(number: Value, carried: list[Value]) -> list[Value]:
            scalars, target = carried
            zeros = [ZERO_VECTOR] * (TAPS * wide)
            _, _, *sums = counted_loop(b, images, [scalars, gradient, *zeros], image)
            for tap in range(TAPS):
                for j in range(wide):
                    place = moved(b, target, (tap * POINTS * ROW + j * VECTOR_BYTES) // 4)
                    store_vector(b, sums[tap * wide + j], place)
            return [moved(b, scalars, 1), moved(b, target, wide * LANES)]

        counted_loop(b, terms, [float_pointer(b, source), float_pointer(b, target)], term)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        words = list(args[1:-1])
        counts = range(1, MOST_PLANES + 1)
        by_count(builder, args[-1], counts, lambda count: emit(builder, count, words))
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 7), codegen


@inlined
def _taps(
    form: Any, args: Any, source: int, gradient: int, vectors: int, terms: int, scratch: int,
    target: int, tap: int,
) -> None:  # fmt: skip
    """Gradients of the filters of `terms` inputs and a pair of vectors, `tap` bytes from tap to tap."""
    planes, tiles = args[AT.planes], args[AT.tiles]
    point, block = compiled_odd_bytes(tiles), compiled_block_bytes(form, tiles)
    images, pairs = tiles // planes, terms * vectors
    rows = scratch + TAPS * POINTS * ROW
    lines = cover(pairs * VECTOR_BYTES, LINE_BYTES)
    for x in range(POINTS):
        # Lines of the target, which stores at the end would wait for.
        for number in range(x * TAPS**3 // POINTS, (x + 1) * TAPS**3 // POINTS):
            ask_to_write(target + number * tap, lines)
        for y in range(POINTS):
            by, into = (y * POINTS + x) * point, scratch + y * ROW
            if vectors == PAIR:
                _summed(PAIR, source + by, gradient + by, block, images, terms, into, planes)
            else:
                _summed(1, source + by, gradient + by, block, images, terms, into, planes)
        for z in range(TAPS):
            here, into = scratch + z * POINTS * ROW, rows + (z * TAPS * POINTS + x) * ROW
            for pair in range(0, pairs * VECTOR_BYTES, VECTOR_BYTES):
                filter_height(form, here + pair, ROW, into + pair, POINTS * ROW)
    for line in range(TAPS * TAPS):
        here, into = rows + line * POINTS * ROW, target + line * TAPS * tap
        for pair in range(0, pairs * VECTOR_BYTES, VECTOR_BYTES):
            if args[AT.adds]:
                add_filter_width(form, here + pair, ROW, into + pair, tap)
            else:
                filter_width(form, here + pair, ROW, into + pair, tap)


_FORM = FORMS[FLAT]


@kernel(AT)
def winograd_shallow_sums(args: Any, worker: int) -> None:
    """Filter gradients between some blocks of channels, from points. Words: see the module."""
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    step = compiled_block_bytes(_FORM, args[AT.tiles])
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    target = args[AT.target]
    # Pieces lie by pairs of vectors, then by blocks of inputs; a pair of a single vector is the last one.
    for pair in range(0, blocks, PAIR):
        vectors = min(PAIR, blocks - pair)
        gradient = args[AT.gradient] + pair * step
        for block in range(cover(inputs, LANES)):
            source, count = args[AT.source] + block * step, min(LANES, inputs - block * LANES)
            tap = count * vectors * VECTOR_BYTES
            for first in range(0, count, TERMS):
                terms = min(TERMS, count - first)
                into = target + first * vectors * VECTOR_BYTES
                _taps(_FORM, args, source + 4 * first, gradient, vectors, terms, scratch, into, tap)
            target += TAPS**3 * tap
