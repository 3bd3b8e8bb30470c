"""The second of Winograd's stages (`stages`) of shallow images: up to `MOST_PLANES` planes, of one tile each.

    winograd_shallow             some columns of points of some outputs: tiles transformed along y, multiplied with
                                 filters, which only caches see, and back
    winograd_shallow_exchanged   the same for the data gradient: filters flipped, inputs and outputs exchanged

Of filters of 3 x 3 x 3 that are as large as all images and more, y and x are transformed; along z taps meet planes as
they lie, where they do not meet padding (docs/design/winograd.md, *Shallow images*). So a filter has 108 points in
place of 216, which 10 planes of 4 use in place of 12, and the other two stages are those of filters of 1 x 3 x 3.

A pair of vectors of outputs and a block of inputs at a time: of `TERMS` inputs a column of points is made of the taps
as they lie, in the L1 cache, and multiplied with all planes, whose sums are in registers meanwhile.

Argument words are those of `panels`, but for two; rows are 1.

    tiles                       planes of an image
    depth0, depth1              columns of points of this task
    scratch, scratch_worker     worker w owns `shallow_floats` from w * scratch_worker on: tiles of a block
                                [x][y][tile], sums [vector][x][y][tile], filters whose lanes lay apart, a column

Tasks of disjoint columns or vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
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
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.filters import TILE
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS
from znnpy_kernels.winograd.line_transforms import FILTER_FACTORS, HIGH, LINE_BYTES, LOW, _constant
from znnpy_kernels.winograd.panel_filters import (
    PAIR,
    PANELS,
    ask_far,
    exchange,
    filters_of,
    width_of,
)
from znnpy_kernels.winograd.panels import finished, seen_points
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes

# Sums of two vectors of outputs for as many planes, their filters and a voxel fit 16 registers.
MOST_PLANES = 4
# Inputs of which a column of points is in the L1 cache, 9 KB, beside their taps.
TERMS = max(1, 256 // VECTOR_BYTES)
ROW = (TERMS * PAIR | 1) * VECTOR_BYTES  # of a point and a tap along z
FLAT, CUBE = (1, 3, 3), (3, 3, 3)
# Of points: voxels are multiplied by them in place of filters, which are many more.
_FIRST = [factors[0] for factors in FILTER_FACTORS]
SCALES = (1.0, *_FIRST[1:-1], 1.0)


def shallow_floats(columns: int, blocks: int, tiles: int) -> int:
    """Floats of scratch of each worker for so many columns of points, vectors of outputs, and planes of all images."""
    points = columns * POINTS * odd_bytes(tiles)
    return ((1 + blocks) * points + TAPS**3 * TILE + POINTS * TAPS * ROW) // 4


def _bare_line(b: ir.IRBuilder, g: list[Value]) -> list[Value]:
    """POINTS values from TAPS taps, each as if it had been divided by its scale: a polynomial's value at its place."""

    def pair(at: float) -> list[Value]:
        even = multiply_add(b, g[2], _constant(at**2), g[0])
        return [multiply_add(b, g[1], _constant(sign * at), even) for sign in (1, -1)]

    return [g[0], *pair(LOW), *pair(HIGH), g[2]]


@intrinsic(prefer_literal=True)
def _column(
    typingctx: Any, number: Any, source: Any, tap: Any, target: Any
) -> tuple[Signature, Any]:
    """Column `number` of the points of a vector of filters, [y][tap along z], ROW bytes apart.

    `tap`: bytes from tap to tap.
    """
    x = number.literal_value

    def emit(b: ir.IRBuilder, source: Value, tap: Value, target: Value) -> None:
        def taps(z: int, y: int) -> list[Value]:
            start = [b.mul(tap, word(TAPS * (TAPS * z + y) + one)) for one in range(TAPS)]
            return [load_vector(b, float_pointer(b, b.add(source, by))) for by in start]

        for z in range(TAPS):
            # What other columns would need is left out when code is optimised.
            row = [_bare_line(b, taps(z, y))[x] for y in range(TAPS)]
            for y, value in enumerate(_bare_line(b, row)):
                place = b.add(target, word((TAPS * y + z) * ROW))
                store_vector(b, value, float_pointer(b, place))

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, (_, source, tap, target) = builder, args
        # Of whole blocks and pairs, as almost all are: constant offsets, or LLVM keeps 27 of them on the stack.
        usual = b.icmp_signed("==", tap, word(TILE))
        with b.if_else(usual) as (then, other):
            with then:
                emit(b, source, word(TILE), target)
            with other:
                emit(b, source, tap, target)
        return context.get_dummy_value()

    return types.void(number, *[types.int64] * 3), codegen


@inlined
def _column_of(x: int, source: int, tap: int, vectors: int, target: int) -> None:
    """Column `x` of the points of vectors that lie side by side: [y][tap along z][vector]."""
    for number in range(vectors):
        here, there = source + number * VECTOR_BYTES, target + number * VECTOR_BYTES
        # Constants, as code is made for each column.
        if x == 0:
            _column(0, here, tap, there)
        elif x == 1:
            _column(1, here, tap, there)
        elif x == 2:
            _column(2, here, tap, there)
        elif x == 3:
            _column(3, here, tap, there)
        elif x == 4:
            _column(4, here, tap, there)
        else:
            _column(5, here, tap, there)


@intrinsic(prefer_literal=True)
def _multiplied(
    typingctx: Any,
    vectors: Any,
    source: Any,
    filters: Any,
    terms: Any,
    target: Any,
    target_block: Any,
    planes: Any,
) -> tuple[Signature, Any]:
    """Add the products of one point of `planes` planes with `vectors` vectors of filters to sums, input by input.

    Planes [plane][input], filters [tap along z][input][vector], sums [plane][lane], `target_block` bytes from vector
    to vector.
    """
    wide = vectors.literal_value

    def emit(b: ir.IRBuilder, planes: int, words: list[Value]) -> None:
        source, filters, terms, target, block = words
        starts = [float_pointer(b, b.add(target, b.mul(block, word(j)))) for j in range(wide)]
        places = [moved(b, start, plane * LANES) for plane in range(planes) for start in starts]

        def term(_: Value, carried: list[Value]) -> list[Value]:
            scalars, filters, *sums = carried
            weights = [
                [load_vector(b, moved(b, filters, tap * ROW // 4 + j * LANES)) for j in range(wide)]
                for tap in range(TAPS)
            ]
            for seen in range(planes):
                factor = load_broadcast(b, moved(b, scalars, seen * LANES))
                for tap in range(TAPS):
                    made = seen + 1 - tap
                    if 0 <= made < planes:
                        for j, weight in enumerate(weights[tap], made * wide):
                            sums[j] = multiply_add(b, weight, factor, sums[j])
            return [moved(b, scalars, 1), moved(b, filters, wide * LANES), *sums]

        before = [load_vector(b, place) for place in places]
        carried = [float_pointer(b, source), float_pointer(b, filters), *before]
        _, _, *sums = counted_loop(b, terms, carried, term)
        for value, place in zip(sums, places, strict=True):
            store_vector(b, value, place)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        words = list(args[1:-1])
        counts = range(1, MOST_PLANES + 1)
        by_count(builder, args[-1], counts, lambda count: emit(builder, count, words))
        return context.get_dummy_value()

    return types.void(vectors, *[types.int64] * 6), codegen


@inlined
def _scaled(args: Any, points: int) -> None:
    """Multiply the points of a block by the scales of their places along y and x."""
    columns = args[PANELS.depth1] - args[PANELS.depth0]
    tiles = args[PANELS.tiles] * args[PANELS.images]
    step = compiled_odd_bytes(tiles)
    for x in range(columns):
        for y in range(POINTS):
            scale = splat(SCALES[y] * SCALES[args[PANELS.depth0] + x])
            start = points + (x * POINTS + y) * step
            for place in range(start, start + tiles * VECTOR_BYTES, VECTOR_BYTES):
                store(place, load(place) * scale)


@inlined
def _next_piece(exchanged: bool, args: Any, pair: int, begin: int) -> Any:
    """Return where the filters of a pair and the next inputs lie, and their bytes.

    Exchanged ones are in a piece of the layer for each vector of the pair, with those of two blocks of inputs: one
    piece is asked for in each of these.
    """
    at, width = PANELS, width_of(args, pair)
    if not exchanged:
        first = begin + LANES
        count = max(0, min(LANES, args[at.inputs] - first))
        before = pair * args[at.inputs] + first * width
        return args[
            at.filters
        ] + TAPS**3 * before * VECTOR_BYTES, TAPS**3 * count * width * VECTOR_BYTES
    group, vector = begin // (PAIR * LANES) + 1, begin // LANES % PAIR
    first, block = group * PAIR * LANES, pair + vector
    wide = max(0, min(PAIR, cover(args[at.inputs] - first, LANES))) * VECTOR_BYTES
    count = min(LANES, args[at.outputs] - block * LANES) if vector < width else 0
    before = first * 4 * args[at.outputs] + block * LANES * wide
    return args[at.filters] + TAPS**3 * before, TAPS**3 * count * wide


@inlined
def _added(
    cube: Any, exchanged: bool, args: Any, pair: int, begin: int, points: int, sums: int, loose: int
) -> None:
    """Add the products of a block of inputs to the sums of a pair."""
    at, width = PANELS, width_of(args, pair)
    planes, images = args[at.tiles], args[at.images]
    point, columns = compiled_odd_bytes(planes * images), args[at.depth1] - args[at.depth0]
    column, block = loose + TAPS**3 * TILE, columns * POINTS * point
    source, count, tap = filters_of(cube, exchanged, args, pair, begin, 0, loose)
    start, bytes_ = _next_piece(exchanged, args, pair, begin)
    lines = cover(bytes_, columns * LINE_BYTES)
    for x in range(columns):
        # Filters come from memory, whose order the hardware does not foresee.
        for line in range(x * lines, (x + 1) * lines):
            ask_far(start + line * LINE_BYTES)
        for first in range(0, count, TERMS):
            terms = min(TERMS, count - first)
            here = source + first * width * VECTOR_BYTES
            _column_of(args[at.depth0] + x, here, tap, terms * width, column)
            for y in range(POINTS):
                number = (x * POINTS + y) * point
                seen, into = points + number + 4 * first, sums + number
                weights = column + y * TAPS * ROW
                for image in range(images):
                    by = image * planes * VECTOR_BYTES
                    # Constants, as code is made for each number of vectors.
                    if width == PAIR:
                        _multiplied(PAIR, seen + by, weights, terms, into + by, block, planes)
                    else:
                        _multiplied(1, seen + by, weights, terms, into + by, block, planes)


def _shallow(exchanged: bool) -> Kernel:
    """Return the kernel of the second stage, for filters exchanged or as they lie."""
    flat, cube = FORMS[FLAT], FORMS[CUBE]

    @kernel(PANELS, name=f"winograd_shallow{'_exchanged' * exchanged}")
    def winograd_shallow(args: Any, worker: int) -> None:
        """Some columns of points times those of filters. Words: see the module."""
        at = PANELS
        first, last, low = args[at.block0], args[at.block1], args[at.depth0]
        columns = args[at.depth1] - low
        # Of a vector.
        step = columns * POINTS * compiled_odd_bytes(args[at.tiles] * args[at.images])
        points = args[at.scratch] + 4 * worker * args[at.scratch_worker]
        sums = points + step
        loose = sums + (last - first) * step
        for place in range(sums, loose, VECTOR_BYTES):
            store(place, splat(0.0))
        for begin in range(0, args[at.inputs], LANES):
            seen_points(flat, args, low, columns, begin // LANES, 1, points)
            _scaled(args, points)
            for pair in range(first, last, PAIR):
                if exchanged:
                    exchange(cube, args, pair, begin, 1, loose)
                own = sums + (pair - first) * step
                _added(cube, exchanged, args, pair, begin, points, own, loose)
        finished(flat, args, low, columns, sums)

    return winograd_shallow


SHALLOW = {exchanged: _shallow(exchanged) for exchanged in (False, True)}
"""Kernels by whether filters are exchanged."""
