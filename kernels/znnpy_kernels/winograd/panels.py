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
    together                    blocks of inputs at a time, `most_terms` inputs at most; one if tiles are
                                `FEW_TILES` or less
    scratch, scratch_worker     worker w owns `panels_floats` from w * scratch_worker on: tiles
                                [plane][x][block][y][tile], sums [vector][plane][x][y][tile], filters
                                whose lanes lay apart, planes of filters [z][y][x][vector] where these have several
                                taps along z, two columns

Tasks of disjoint planes or vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd.few_tiles import FEW_TILES, add_plane
from znnpy_kernels.winograd.filters import TILE
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.panel_filters import (
    PAIR,
    PANELS,
    ahead_of,
    ask,
    ask_piece,
    columns_of,
    depths_of,
    exchange,
    filters_of,
    next_piece,
    row_bytes,
    row_of,
    taps_of,
    width_of,
)
from znnpy_kernels.winograd.planes import compiled_plane
from znnpy_kernels.winograd.products import (
    ROWS,
    compiled_odd_bytes,
    grown_products,
    odd_bytes,
)
from znnpy_kernels.winograd.stages import seen_rows, to_points, to_rows


def panels_floats(taps: Triple, depths: int, blocks: int, tiles: int, together: int) -> int:
    """Floats of scratch of each worker for so many planes of points, vectors of outputs, and tiles of all images."""
    form = FORMS[taps]
    face = form.points_x * form.points_y
    points = odd_bytes(tiles)
    loose = taps[0] * taps[1] * taps[2] * together * TILE
    # Before axes x and y, and two columns behind them.
    rows = (depths * taps[1] * taps[2] if taps[0] > 1 else 0) + 2 * form.points_y
    sums = depths * face * (together + blocks) * points
    return int(sums + loose + rows * row_bytes(taps[0])) // 4


@inlined
def _scratch_behind(form: Any, args: Any, loose: int) -> Any:
    """Return where filters are transformed: behind those whose lanes lay apart."""
    return loose + taps_of(form) * args[PANELS.together] * TILE


@inlined
def seen_points(
    form: Any, args: Any, column: int, columns: int, first: int, count: int, target: int
) -> None:
    """Tiles of `count` blocks of all images from block `first` on, along y, for some columns from `column` on."""
    at = PANELS
    rows, tiles, images = args[at.rows], args[at.tiles], args[at.images]
    total, step = rows * tiles, compiled_odd_bytes(seen_rows(form, rows) * tiles)
    point = compiled_odd_bytes(total * images)
    for x in range(columns):
        for block in range(count):
            number = (first + block) * compiled_plane(form) + column + x
            into = target + (x * count + block) * form.points_y * point
            for image in range(images):
                source = args[at.source] + image * args[at.source_image] + number * step
                own = into + image * total * VECTOR_BYTES
                to_points(form, source, tiles, rows, tiles, (1, tiles), own, point)


@inlined
def _added(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, points: int, sums: int, loose: int
) -> None:
    """Add the products of a block of inputs and few tiles to the sums of a pair, filter by filter."""
    at, width = PANELS, width_of(args, pair)
    low, high = args[at.depth0], args[at.depth1]
    tiles = args[at.rows] * args[at.tiles] * args[at.images]
    # Bytes of a plane of points of tiles or sums.
    step = form.points_x * form.points_y * compiled_odd_bytes(tiles)
    source, count, tap = filters_of(form, exchanged, args, pair, begin, 0, loose)
    for depth in range(high - low):
        ahead = ahead_of(form, exchanged, args, pair, begin + LANES, (depth, high - low))
        for vector in range(width):
            into = sums + (vector * (high - low) + depth) * step
            for number in range(count):
                here = source + (number * width + vector) * VECTOR_BYTES
                there = points + depth * step + 4 * number
                add_plane(form, low + depth, here, tap, tiles, there, into)
                if vector == 0:
                    ask(ahead, width, number)


@inlined
def _multiplied(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, points: int, sums: int, loose: int
) -> None:
    """Add the products of some blocks of inputs and all tiles to the sums of a pair."""
    at, width = PANELS, width_of(args, pair)
    low, high = args[at.depth0], args[at.depth1]
    terms = min(args[at.inputs] - begin, args[at.together] * LANES)
    tiles = args[at.rows] * args[at.tiles] * args[at.images]
    step = form.points_x * form.points_y * compiled_odd_bytes(tiles)
    made, face = _scratch_behind(form, args, loose), form.taps_x * form.taps_y * row_of(form)
    filters = made
    if form.taps_z > 1:
        filters = made + (high - low) * face
        for block in range(cover(terms, LANES)):
            source, count, tap = filters_of(form, exchanged, args, pair, begin, block, loose)
            into = made + block * LANES * width * VECTOR_BYTES
            depths_of(form, low, high, source, tap, count * width, into)
    # Filters come from memory, whose order the hardware does not foresee; a share with each call, as requests in bursts
    # would keep all others waiting.
    calls = form.points_x * form.points_y * cover(tiles, ROWS[width - 1])
    piece = next_piece(form, exchanged, args, pair, begin, calls * (high - low))
    for depth in range(high - low):
        seen, into = points + depth * cover(terms, LANES) * step, sums + depth * step
        own = made + depth * face if form.taps_z > 1 else loose
        _plane(
            form,
            exchanged,
            args,
            pair,
            begin,
            terms,
            own,
            filters,
            seen,
            into,
            piece,
            depth * calls,
        )


@inlined
def _columns_made(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, unit: int, terms: int, made: int, filters: int
) -> None:  # fmt: skip
    """Columns of points of a unit: of a plane at `made`, or of taps as they lie, which may be those exchanged there."""
    width = width_of(args, pair)
    if form.taps_z > 1:
        columns_of(form, unit, made, 0, terms * width, filters)
    else:
        for block in range(cover(terms, LANES)):
            source, count, tap = filters_of(form, exchanged, args, pair, begin, block, made)
            into = filters + block * LANES * width * VECTOR_BYTES
            columns_of(form, unit, source, tap, count * width, into)


@inlined
def _plane(
    form: Any, exchanged: bool, args: Any, pair: int, begin: int, terms: int, made: int, filters: int, points: int,
    sums: int, piece: Any, call: int,
) -> None:  # fmt: skip
    """Products of a plane of points, in register blocks of tiles; what comes next is asked for meanwhile."""
    width = width_of(args, pair)
    tiles = args[PANELS.rows] * args[PANELS.tiles] * args[PANELS.images]
    point, high, blocks = compiled_odd_bytes(tiles), form.points_y, cover(terms, LANES)
    last = terms - (blocks - 1) * LANES
    # From one vector of a pair to the other.
    step = (args[PANELS.depth1] - args[PANELS.depth0]) * form.points_x * high * point
    parts = cover(tiles, ROWS[1] if width == PAIR else ROWS[0])
    for x in range(form.points_x):
        # Columns 1 and 2, 3 and 4 are made together.
        second = (x == 2 or x == 4) * high
        if second == 0:
            unit = cover(x, 2)
            _columns_made(form, exchanged, args, pair, begin, unit, terms, made, filters)
        for y in range(high):
            source, weights = (
                points + (x * blocks * high + y) * point,
                filters + (second + y) * row_of(form),
            )
            target = sums + (x * high + y) * point
            for some in range(parts):
                by, end = some * tiles // parts, (some + 1) * tiles // parts
                seen, into = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                block = high * point
                ask_piece(piece, call)
                call += 1
                # Constants, as code is made for each number of vectors.
                if width == PAIR:
                    grown_products(
                        PAIR, seen, block, weights, blocks, last, into, step, end - by, None
                    )
                else:
                    grown_products(
                        1, seen, block, weights, blocks, last, into, step, end - by, None
                    )


@inlined
def finished(form: Any, args: Any, first: int, columns: int, sums: int) -> None:
    """Sums of the task's columns, from column `first` on, to rows, along y."""
    at = PANELS
    rows, tiles, images = args[at.rows], args[at.tiles], args[at.images]
    total = rows * tiles
    point, behind = compiled_odd_bytes(total * images), compiled_odd_bytes(form.new_y * total)
    start = sums
    for block in range(args[at.block0], args[at.block1]):
        for column in range(first, first + columns):
            number = block * compiled_plane(form) + column
            for image in range(images):
                target = args[at.target] + image * args[at.target_image] + number * behind
                own = start + image * total * VECTOR_BYTES
                to_rows(form, own, point, tiles, rows, tiles, (1, tiles), target)
            start += form.points_y * point


def _panels(taps: Triple, exchanged: bool) -> Kernel:
    """Return the kernel of the second stage, for filters of so many taps, exchanged or as they lie."""
    form = FORMS[taps]

    @kernel(PANELS, name=f"winograd_panels{'_exchanged' * exchanged}{name_of(taps)}")
    def winograd_panels(args: Any, worker: int) -> None:
        """Some planes of points times those of filters. Words: see the module."""
        at = PANELS
        tiles = args[at.rows] * args[at.tiles] * args[at.images]
        # Of a vector and a plane of points.
        step = form.points_x * form.points_y * compiled_odd_bytes(tiles)
        first, last, together = args[at.block0], args[at.block1], args[at.together]
        depths = args[at.depth1] - args[at.depth0]
        points = args[at.scratch] + 4 * worker * args[at.scratch_worker]
        sums = points + depths * together * step
        loose = sums + depths * (last - first) * step
        for place in range(sums, loose, VECTOR_BYTES):
            store(place, splat(0.0))
        for begin in range(0, args[at.inputs], together * LANES):
            blocks = cover(min(args[at.inputs] - begin, together * LANES), LANES)
            for depth in range(depths):
                into = points + depth * blocks * step
                column = (args[at.depth0] + depth) * form.points_x
                seen_points(form, args, column, form.points_x, begin // LANES, blocks, into)
            for pair in range(first, last, PAIR):
                own = sums + (pair - first) * depths * step
                if exchanged:
                    exchange(form, args, pair, begin, blocks, loose)
                if tiles <= FEW_TILES:
                    _added(form, exchanged, args, pair, begin, points, own, loose)
                else:
                    _multiplied(form, exchanged, args, pair, begin, points, own, loose)
        finished(form, args, args[at.depth0] * form.points_x, depths * form.points_x, sums)

    return winograd_panels


PANELS_OF = {
    (taps, exchanged): _panels(taps, exchanged) for taps in FORMS for exchanged in (False, True)
}
"""Kernels by the taps of filters along z, y, x, and whether filters are exchanged."""
