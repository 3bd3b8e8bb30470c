"""The second of Winograd's stages (`stages`) of shallow images: up to `MOST_PLANES` planes, of one tile each.

    winograd_shallow             some columns of points of some outputs: tiles transformed along y, multiplied with
                                 filters, which only caches see, and back
    winograd_shallow_exchanged   the same for the data gradient: filters flipped, inputs and outputs exchanged

Of filters of 3 x 3 x 3 that are as large as all images and more, y and x are transformed; along z taps meet planes as
they lie, where they do not meet padding (docs/design/winograd.md, *Shallow images*). So a filter has 108 points in
place of 216, which 10 planes of 4 use in place of 12, and the other two stages are those of filters of 1 x 3 x 3.

A pair of vectors of outputs and a block of inputs at a time: of `TERMS` inputs the taps become columns of points along
x, in the L1 cache, one or two at once; along y points are made in registers, of a place and its opposite together,
where they are multiplied with all planes, whose sums are in registers meanwhile.

Argument words are those of `panels`, but for two; rows are 1.

    tiles                       planes of an image
    depth0, depth1              columns of points of this task
    scratch, scratch_worker     worker w owns `shallow_floats` from w * scratch_worker on: tiles of a block
                                [x][y][tile], sums [vector][x][y][tile], filters whose lanes lay apart, a column

Tasks of disjoint columns or vectors may run concurrently.
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
    Value,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    prefetch,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.filters import TILE
from znnpy_kernels.winograd.forms import FORMS, POINTS, TAPS
from znnpy_kernels.winograd.line_transforms import FILTER_FACTORS, HIGH, LINE_BYTES, _constant
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
# Points along an axis that are made together, of the same sums: those of a place and its opposite.
UNITS = ((0,), (1, 2), (3, 4), (5,))
HIGH_PAIR = UNITS[2]
# At +-LOW the double of a polynomial, at +-HIGH itself, are sums of its taps, if the middle one is multiplied by this.
ODD = HIGH
# Of points: voxels are multiplied by them in place of filters, which are many more.
_FIRST = [factors[0] for factors in FILTER_FACTORS]
SCALES = (
    1.0,
    *(_FIRST[place] / 2 for place in UNITS[1]),
    *(_FIRST[place] for place in UNITS[2]),
    1.0,
)


def shallow_floats(columns: int, blocks: int, tiles: int) -> int:
    """Floats of scratch of each worker for so many columns of points, vectors of outputs, and planes of all images."""
    points = columns * POINTS * odd_bytes(tiles)
    return ((1 + blocks) * points + TAPS**3 * TILE + POINTS * TAPS * ROW) // 4


@intrinsic(prefer_literal=True)
def _unit(typingctx: Any, number: Any, source: Any, tap: Any, target: Any) -> tuple[Signature, Any]:
    """The columns of a unit of a vector of filters, transformed along x: [column][tap along y, z], ROW bytes apart.

    What lies between the others along y is multiplied by ODD: `_pair_multiplied` adds it as it is. `tap`: bytes from
    tap to tap.
    """
    unit = number.literal_value

    def emit(b: ir.IRBuilder, source: Value, tap: Value, target: Value) -> None:
        def load(number: int) -> Value:
            return load_vector(b, float_pointer(b, b.add(source, b.mul(tap, word(number)))))

        for z in range(TAPS):
            for y in range(TAPS):
                first = TAPS * (TAPS * z + y)
                if len(UNITS[unit]) == 1:
                    # The places 0 and infinity are taps as they lie.
                    made = [load(first + (TAPS - 1 if unit else 0))]
                else:
                    line = [load(first + x) for x in range(TAPS)]
                    line[1] = b.fmul(line[1], _constant(ODD))
                    made = _opposites(b, line, high=UNITS[unit] == HIGH_PAIR)
                for column, value in enumerate(made):
                    place = b.add(target, word((TAPS * (TAPS * column + y) + z) * ROW))
                    scaled = b.fmul(value, _constant(ODD)) if y == 1 else value
                    store_vector(b, scaled, float_pointer(b, place))

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


def _opposites(b: ir.IRBuilder, line: list[Value], *, high: bool) -> list[Value]:
    """Values at a pair of places of taps, the middle one times ODD, each as if it had been divided by its scale."""
    first, odd, last = line
    # Sums alone: there are units of the CPU for these beside those for multiply-adds.
    even = b.fadd(b.fadd(first, last), last if high else first)
    return [b.fadd(even, odd), b.fsub(even, odd)]


@inlined
def _columns_of(unit: int, source: int, tap: int, vectors: int, target: int) -> None:
    """The columns of a unit of vectors that lie side by side: [column][tap along y, z][vector]."""
    for number in range(vectors):
        here, there = source + number * VECTOR_BYTES, target + number * VECTOR_BYTES
        # Constants, as code is made for each unit.
        if unit == 0:
            _unit(0, here, tap, there)
        elif unit == 1:
            _unit(1, here, tap, there)
        elif unit == 2:
            _unit(2, here, tap, there)
        else:
            _unit(3, here, tap, there)


def _sums_of(emit: Callable[[ir.IRBuilder, int, list[Value]], None]) -> Any:
    """The codegen of an intrinsic whose last argument, a number of planes, is a constant of the code."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        words = list(args[1:-1])
        counts = range(1, MOST_PLANES + 1)
        by_count(builder, args[-1], counts, lambda count: emit(builder, count, words))
        return context.get_dummy_value()

    return codegen


def _grown(
    b: ir.IRBuilder,
    planes: int,
    points: list[tuple[Value, Value]],
    filters: list[Value],
    terms: Value,
    weights_of: Callable[[Value], list[list[Value]]],
) -> None:
    """Add the products of planes with filters to sums, input by input, and ask for a line with each.

    `points`: of each sum of a plane where the planes that it takes lie, and the sum. `filters`: where they lie, floats
    from input to input, and the first of the lines; `weights_of`: vectors of an input by tap along z and sum.
    """
    sources, targets = zip(*points, strict=True)
    shared = sources[0] is sources[-1]
    begins = sources[:1] if shared else sources
    places = [moved(b, start, plane * LANES) for plane in range(planes) for start in targets]
    first, step, asked = filters

    def term(index: Value, carried: list[Value]) -> list[Value]:
        scalars, (filters, *sums) = carried[: len(begins)], carried[len(begins) :]
        # One at a time: many requests at once would keep all others waiting for the caches behind.
        prefetch(b, b.add(asked, b.mul(index, word(LINE_BYTES))), write=False, level=2)
        weights = weights_of(filters)
        for seen in range(planes):
            factors = [load_broadcast(b, moved(b, it, seen * LANES)) for it in scalars]
            for tap in range(TAPS):
                made = seen + 1 - tap
                if 0 <= made < planes:
                    for j, weight in enumerate(weights[tap], made * len(points)):
                        factor = factors[0 if shared else j % len(points)]
                        sums[j] = multiply_add(b, weight, factor, sums[j])
        return [*(moved(b, it, 1) for it in scalars), moved(b, filters, step), *sums]

    before = [load_vector(b, place) for place in places]
    sums = counted_loop(b, terms, [*begins, float_pointer(b, first), *before], term)
    for value, place in zip(sums[len(begins) + 1 :], places, strict=True):
        store_vector(b, value, place)


@intrinsic(prefer_literal=True)
def _multiplied(
    typingctx: Any,
    vectors: Any,
    source: Any,
    filters: Any,
    terms: Any,
    target: Any,
    target_block: Any,
    asked: Any,
    planes: Any,
) -> tuple[Signature, Any]:
    """Add the products of one point of `planes` planes with `vectors` vectors of filters to sums, input by input.

    Planes [plane][input], filters [tap along z][input][vector], sums [plane][lane], `target_block` bytes from vector
    to vector. `asked`: the first of as many lines as inputs, which will be read later.
    """
    wide = vectors.literal_value

    def emit(b: ir.IRBuilder, planes: int, words: list[Value]) -> None:
        source, filters, terms, target, block, asked = words
        start = float_pointer(b, source)
        targets = [float_pointer(b, b.add(target, b.mul(block, word(j)))) for j in range(wide)]

        def weights_of(filters: Value) -> list[list[Value]]:
            return [
                [load_vector(b, moved(b, filters, tap * ROW // 4 + j * LANES)) for j in range(wide)]
                for tap in range(TAPS)
            ]

        points, own = [(start, target) for target in targets], [filters, word(wide * LANES), asked]
        _grown(b, planes, points, own, terms, weights_of)

    return types.void(vectors, *[types.int64] * 7), _sums_of(emit)


@intrinsic(prefer_literal=True)
def _pair_multiplied(
    typingctx: Any,
    pair: Any,
    source: Any,
    point: Any,
    filters: Any,
    step: Any,
    terms: Any,
    target: Any,
    asked: Any,
    planes: Any,
) -> tuple[Signature, Any]:
    """The same for a vector of filters and a pair of points along y, `point` bytes from each other, made here.

    Filters [tap along y, z][input], `step` bytes from input to input.
    """
    high = UNITS[pair.literal_value] == HIGH_PAIR

    def emit(b: ir.IRBuilder, planes: int, words: list[Value]) -> None:
        source, point, filters, step, terms, target, asked = words
        points = [
            (float_pointer(b, source), float_pointer(b, target)),
            (float_pointer(b, b.add(source, point)), float_pointer(b, b.add(target, point))),
        ]

        def weights_of(filters: Value) -> list[list[Value]]:
            def line(z: int) -> list[Value]:
                rows = [(TAPS * y + z) * ROW // 4 for y in range(TAPS)]
                return [load_vector(b, moved(b, filters, row)) for row in rows]

            return [_opposites(b, line(z), high=high) for z in range(TAPS)]

        _grown(b, planes, points, [filters, b.sdiv(step, word(4)), asked], terms, weights_of)

    return types.void(pair, *[types.int64] * 8), _sums_of(emit)


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
    # Filters come from memory, whose order the hardware does not foresee: a part of them with each call.
    asked, bytes_ = _next_piece(exchanged, args, pair, begin)
    calls = columns * cover(count, TERMS) * images * (2 + 2 * width)
    lines = cover(bytes_, calls * LINE_BYTES)
    low, end = args[at.depth0], args[at.depth1]
    x = low
    while x < end:
        # Columns of a unit are made together, of which a task may take one.
        unit = (x + 1) // PAIR
        behind = min(end, PAIR * unit + 1)
        for first in range(0, count, TERMS):
            terms = min(TERMS, count - first)
            here = source + first * width * VECTOR_BYTES
            _columns_of(unit, here, tap, terms * width, column)
            for one in range(x, behind):
                # Of a pair the second one.
                weights = column + (one > 0 and one % PAIR == 0) * TAPS * TAPS * ROW
                number = (one - low) * POINTS * point
                seen, into = points + number + 4 * first, sums + number
                early = asked, lines
                _column_multiplied(args, width, weights, terms, seen, into, point, block, early)
                asked += images * (2 + 2 * width) * lines * LINE_BYTES
        x = behind


@inlined
def _requested(early: Any, call: int, terms: int) -> Any:
    """Return the first of the lines that a call asks for, with each term one; ask for those of them that are more."""
    first = early[0] + call * early[1] * LINE_BYTES
    for line in range(terms, early[1]):
        ask_far(first + line * LINE_BYTES)
    return first


@inlined
def _column_multiplied(
    args: Any, width: int, weights: int, terms: int, points: int, sums: int, point: int,
    block: int, early: Any,
) -> None:  # fmt: skip
    """Add the products of a column of points of some inputs to the sums of `width` vectors, `block` bytes apart.

    `early`: where lines lie that are asked for meanwhile, and how many of them a call.
    """
    planes = args[PANELS.tiles]
    step, call = width * VECTOR_BYTES, 0
    for image in range(args[PANELS.images]):
        seen, into = points + image * planes * VECTOR_BYTES, sums + image * planes * VECTOR_BYTES
        for y in range(0, POINTS, POINTS - 1):
            # Taps along y as they lie, the first and the last one.
            own, by = weights + y // (TAPS - 1) * TAPS * ROW, y * point
            asked = _requested(early, call, terms)
            # Constants, as code is made for each number of vectors.
            if width == PAIR:
                _multiplied(PAIR, seen + by, own, terms, into + by, block, asked, planes)
            else:
                _multiplied(1, seen + by, own, terms, into + by, block, asked, planes)
            call += 1
        for vector in range(width):
            own, there = weights + vector * VECTOR_BYTES, into + vector * block
            asked, by = _requested(early, call, terms), point
            _pair_multiplied(1, seen + by, point, own, step, terms, there + by, asked, planes)
            asked, by = _requested(early, call + 1, terms), 3 * point
            _pair_multiplied(2, seen + by, point, own, step, terms, there + by, asked, planes)
            call += 2


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
