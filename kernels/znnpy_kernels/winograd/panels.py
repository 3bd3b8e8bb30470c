"""The second of Winograd's stages (`stages`) with filters that are transformed on the way, instead of being read.

    winograd_panels             some planes of points of some outputs: tiles transformed along y, multiplied with
                                filters, which only caches see, and back
    winograd_panels_exchanged   the same for the data gradient: filters flipped, inputs and outputs exchanged

A pair of vectors of outputs and some blocks of inputs at a time: their filters are transformed for one plane of points
(`filters`), multiplied with the tiles of these blocks, and added to sums of all outputs of the task. Tiles are
transformed along y once for all of them. Sums are taken in the order of the inputs, as in `forward`, bit by bit.

Argument words. Addresses in bytes, 64-byte aligned; counts.

    source, source_image        what waits of the first image, of all blocks; bytes from image to image
    target, target_image        the same behind this stage
    images, tiles, rows         of all images the same: tiles along z and x that begin inside; along y
    inputs, outputs             channels of the source, and of the target
    filters                     packed filters of the layer, from the first input and output on
    depth0, depth1              planes of points of this task
    block0, block1              vectors of outputs of this task, an even one first
    together                    blocks of inputs at a time; one if tiles are `FEW_TILES` or less
    scratch, scratch_worker     worker w owns `panels_floats` from w * scratch_worker on: filters
                                [point][input][vector], tiles [plane][x][block][y][tile], sums
                                [vector][plane][x][y][tile], filters whose lanes lay apart

Tasks of disjoint planes or vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import prefetch, splat, store
from znnpy_kernels.winograd.filters import FEW_TILES, TILE, add_plane, gathered, points_of_plane
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.planes import compiled_plane
from znnpy_kernels.winograd.products import (
    ROWS,
    compiled_odd_bytes,
    grown_products,
    odd_bytes,
)
from znnpy_kernels.winograd.stages import seen_rows, to_points, to_rows

PANELS = words(
    "source source_image target target_image images tiles rows inputs outputs filters "
    "depth0 depth1 block0 block1 together scratch scratch_worker"
)
PAIR = 2  # vectors of outputs whose filters lie side by side


def panels_floats(taps: Triple, depths: int, blocks: int, tiles: int, together: int) -> int:
    """Floats of scratch of each worker for so many planes of points, vectors of outputs, and tiles of all images."""
    form = FORMS[taps]
    face = form.points_x * form.points_y
    filters = face * odd_bytes(together * LANES * min(PAIR, blocks))
    points = odd_bytes(tiles)
    loose = taps[0] * taps[1] * taps[2] * together * TILE
    return int(filters + depths * face * (together + blocks) * points + loose) // 4


@inlined
def _seen_points(form: Any, args: Any, depth: int, first: int, count: int, target: int) -> None:
    """Tiles of `count` blocks of all images from block `first` on, along y, for one plane of points."""
    at = PANELS
    rows, tiles, images = args[at.rows], args[at.tiles], args[at.images]
    total, step = rows * tiles, compiled_odd_bytes(seen_rows(form, rows) * tiles)
    point = compiled_odd_bytes(total * images)
    for x in range(form.points_x):
        for block in range(count):
            number = (first + block) * compiled_plane(form) + depth * form.points_x + x
            into = target + (x * count + block) * form.points_y * point
            for image in range(images):
                source = args[at.source] + image * args[at.source_image] + number * step
                to_points(form, source, tiles, total, into + image * total * VECTOR_BYTES, point)


@inlined
def _width(args: Any, pair: int) -> Any:
    """Vectors of outputs of the pair that begins with vector `pair`."""
    return min(PAIR, args[PANELS.block1] - pair)


@inlined
def _taps(form: Any) -> Any:
    return form.taps_z * form.taps_y * form.taps_x


@inlined
def _filters(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, block: int, loose: int
) -> Any:
    """Return where the filters of a pair and of a block of inputs lie, the inputs, and bytes from tap to tap."""
    first, width = begin + block * LANES, _width(args, pair)
    count = min(LANES, args[PANELS.inputs] - first)
    if exchanged:
        return loose + block * _taps(form) * TILE, count, TILE
    before = pair * args[PANELS.inputs] + first * width
    source = args[PANELS.filters] + _taps(form) * before * VECTOR_BYTES
    return source, count, count * width * VECTOR_BYTES


@inlined
def _exchanged_row(form: Any, args: Any, channel: int, first: int) -> Any:
    """Return where the layer's filters from input `channel` to output `first` lie, and bytes from input to input."""
    at, group = PANELS, first // (PAIR * LANES) * PAIR * LANES
    # Of the layer: lanes of its group of outputs.
    width = min(PAIR, cover(args[at.inputs] - group, LANES)) * LANES
    before = _taps(form) * (group * args[at.outputs] + channel * width)
    return args[at.filters] + 4 * (before + first - group), 4 * width


@inlined
def _exchanged(form: Any, args: Any, pair: int, begin: int, blocks: int, loose: int) -> None:
    """Filters of some blocks of the layer's outputs, flipped, with vectors of inputs: [block][tap][output][vector]."""
    at = PANELS
    taps, vectors = _taps(form), _width(args, pair)
    for block in range(blocks):
        first = begin + block * LANES
        count = min(LANES, args[at.inputs] - first)
        for vector in range(vectors):
            channel = (pair + vector) * LANES
            inputs = min(LANES, args[at.outputs] - channel)
            source, row = _exchanged_row(form, args, channel, first)
            into, step = loose + block * taps * TILE + vector * VECTOR_BYTES, vectors * VECTOR_BYTES
            gathered(taps, source, inputs, inputs * row, row, count, into, step)


@inlined
def _ahead(form: Any, exchanged: bool, args: Any, pair: int, begin: int, part: Any) -> Any:
    """What to ask for, of the filters of a pair and the inputs from `begin` on, in one of so many `part`s.

    Return where the first row lies, bytes to that of the next vector and to the next row, and rows an input.
    """
    at, width = PANELS, _width(args, pair)
    if begin >= args[at.inputs]:
        return args[at.filters], 0, 0, 0
    rows = cover(_taps(form), part[1])
    if exchanged:
        source, row = _exchanged_row(form, args, pair * LANES, begin)
        step = _taps(form) * LANES * row
    else:
        row, step = width * VECTOR_BYTES, VECTOR_BYTES
        source = args[at.filters] + _taps(form) * (
            pair * args[at.inputs] * VECTOR_BYTES + begin * row
        )
    return source + part[0] * rows * LANES * row, step, row, rows


@inlined
def _ask(ahead: Any, width: int, number: int) -> None:
    """Ask for the rows that go with one input."""
    first, step, row, rows = ahead
    for vector in range(width):
        for line in range(number * rows, (number + 1) * rows):
            prefetch(first + vector * step + line * row)


@inlined
def _added(
    form: Any,
    width: int,
    tiles: int,
    depth: int,
    filters: Any,
    points: int,
    sums: int,
    step: int,
    ahead: Any,
) -> None:
    """Add the products of a plane of points of few tiles to the sums of a pair, `step` apart, filter by filter."""
    source, count, tap = filters
    for vector in range(width):
        for number in range(count):
            here = source + (number * width + vector) * VECTOR_BYTES
            add_plane(form, depth, here, tap, tiles, points + 4 * number, sums + vector * step)
            if vector == 0:
                _ask(ahead, width, number)


@inlined
def _made(
    form: Any, width: int, depth: int, filters: Any, target: int, point: int, ahead: Any
) -> None:
    """Write a plane of points of the filters of a pair, input by input."""
    source, count, tap = filters
    for number in range(count):
        before = number * width * VECTOR_BYTES
        points_of_plane(form, depth, source + before, tap, width, target + before, point)
        _ask(ahead, width, number)


@inlined
def _multiplied(
    form: Any, terms: int, width: int, tiles: int, filters: int, points: int, sums: int, step: int
) -> None:
    """Add the products of a plane of points to the sums of a pair, `step` apart, in register blocks of tiles."""
    blocks, point, high = cover(terms, LANES), compiled_odd_bytes(tiles), form.points_y
    last, block = terms - (blocks - 1) * LANES, high * point
    parts = cover(tiles, ROWS[1] if width == PAIR else ROWS[0])
    for x in range(form.points_x):
        for y in range(high):
            source = points + (x * blocks * high + y) * point
            target = sums + (x * high + y) * point
            weights = filters + (x * high + y) * compiled_odd_bytes(terms * width)
            for part in range(parts):
                by, end = part * tiles // parts, (part + 1) * tiles // parts
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                # Constants, as code is made for each number of vectors.
                if width == PAIR:
                    grown_products(PAIR, here, block, weights, blocks, last, there, step, end - by)
                else:
                    grown_products(1, here, block, weights, blocks, last, there, step, end - by)


@inlined
def _finished(form: Any, args: Any, sums: int) -> None:
    """Sums of the task to rows, along y."""
    at = PANELS
    rows, tiles, images = args[at.rows], args[at.tiles], args[at.images]
    total, wide, depths = rows * tiles, form.points_x, args[at.depth1] - args[at.depth0]
    point, behind = compiled_odd_bytes(total * images), compiled_odd_bytes(form.new_y * total)
    start = sums
    for block in range(args[at.block0], args[at.block1]):
        for column in range(depths * wide):
            number = block * compiled_plane(form) + args[at.depth0] * wide + column
            for image in range(images):
                target = args[at.target] + image * args[at.target_image] + number * behind
                to_rows(form, start + image * total * VECTOR_BYTES, point, tiles, total, target)
            start += form.points_y * point


def _panels(taps: Triple, exchanged: bool) -> Kernel:
    """Return the kernel of the second stage, for filters of so many taps, exchanged or as they lie."""
    form = FORMS[taps]

    @kernel(PANELS, name=f"winograd_panels{'_exchanged' * exchanged}{name_of(taps)}")
    def winograd_panels(args: Any, worker: int) -> None:
        """Some planes of points times those of filters. Words: see the module."""
        at = PANELS
        tiles = args[at.rows] * args[at.tiles] * args[at.images]
        face = form.points_x * form.points_y
        # Of a vector and a plane of points.
        step = face * compiled_odd_bytes(tiles)
        first, last, together = args[at.block0], args[at.block1], args[at.together]
        depths = args[at.depth1] - args[at.depth0]
        made = args[at.scratch] + 4 * worker * args[at.scratch_worker]
        points = made + face * compiled_odd_bytes(together * LANES * min(PAIR, last - first))
        sums = points + depths * together * step
        loose = sums + depths * (last - first) * step
        for place in range(sums, loose, VECTOR_BYTES):
            store(place, splat(0.0))
        for begin in range(0, args[at.inputs], together * LANES):
            terms = min(args[at.inputs] - begin, together * LANES)
            blocks = cover(terms, LANES)
            for depth in range(depths):
                into = points + depth * blocks * step
                _seen_points(form, args, args[at.depth0] + depth, begin // LANES, blocks, into)
            for pair in range(first, last, PAIR):
                width, own = _width(args, pair), sums + (pair - first) * depths * step
                if exchanged:
                    _exchanged(form, args, pair, begin, blocks, loose)
                for depth in range(depths):
                    number, seen = args[at.depth0] + depth, points + depth * blocks * step
                    here, between = own + depth * step, depths * step
                    for block in range(blocks):
                        filters = _filters(form, exchanged, args, pair, begin, block, loose)
                        # Filters come from memory, whose order the hardware does not foresee.
                        next_one = begin + (together + block) * LANES
                        ahead = _ahead(form, exchanged, args, pair, next_one, (depth, depths))
                        if tiles <= FEW_TILES:
                            _added(form, width, tiles, number, filters, seen, here, between, ahead)
                        else:
                            into = made + block * LANES * width * VECTOR_BYTES
                            point = compiled_odd_bytes(terms * width)
                            _made(form, width, number, filters, into, point, ahead)
                    if tiles > FEW_TILES:
                        _multiplied(form, terms, width, tiles, made, seen, here, between)
        _finished(form, args, sums)

    return winograd_panels


PANELS_OF = {
    (taps, exchanged): _panels(taps, exchanged) for taps in FORMS for exchanged in (False, True)
}
"""Kernels by the taps of filters along z, y, x, and whether filters are exchanged."""
