"""The second of Winograd's stages (`stages`) with filters that are transformed on the way, instead of being read.

    winograd_panels             some planes of points of some outputs: tiles transformed along y, multiplied with
                                filters, which only caches see, and back
    winograd_panels_exchanged   the same for the data gradient, with filters flipped, inputs and outputs exchanged

A pair of vectors of outputs and some blocks of inputs at a time: their filters are transformed for one plane of points (`filters`),
multiplied with the tiles of these blocks, and added to sums of all outputs of the task. Tiles are transformed along y
once for all of them. Sums are taken in the order of the inputs, as in `forward`, bit by bit.

Argument words. Addresses in bytes, 64-byte aligned; counts.

    source, source_image        what waits of the first image, of all blocks; bytes from image to image
    target, target_image        the same behind this stage
    images, tiles, rows         of all images the same: tiles along z and x that begin inside; along y
    inputs, outputs             channels of the source, and of the target
    filters                     packed filters of the layer, from the first input and output on
    depth0, depth1              planes of points of this task
    block0, block1              vectors of outputs of this task, an even one first
    together                    blocks of inputs at a time
    scratch, scratch_worker     worker w owns `panels_floats` from w * scratch_worker on: filters [point][input][vector],
                                tiles [column][block][point][tile], sums [pair][column][vector][point][tile], filters whose lanes lay apart

Tasks of disjoint planes or vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd.filters import TILE, gathered, points_of_plane
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
def _filter_points(
    form: Any,
    exchanged: bool,
    args: Any,
    depth: int,
    pair: int,
    inputs: Any,
    loose: int,
    target: int,
) -> None:
    """Filters of a pair of vectors of outputs and of inputs first..last, for one plane of points."""
    at = PANELS
    taps, width = (
        form.taps_z * form.taps_y * form.taps_x,
        min(PAIR, cover(args[at.outputs], LANES) - pair),
    )
    point = compiled_odd_bytes((inputs[1] - inputs[0]) * width)
    into = target
    for first in range(inputs[0], inputs[1], LANES):
        count = min(LANES, inputs[1] - first)
        if exchanged:
            here, tap = loose + (first - inputs[0]) // LANES * taps * TILE, TILE
        else:
            before = pair * args[at.inputs] + first * width
            here, tap = (
                args[at.filters] + taps * before * VECTOR_BYTES,
                count * width * VECTOR_BYTES,
            )
        points_of_plane(form, depth, here, tap, count * width, into, point)
        into += count * width * VECTOR_BYTES


@inlined
def _exchanged(form: Any, args: Any, pair: int, inputs: Any, loose: int) -> None:
    """Filters of the layer's outputs first..last, flipped, with vectors of its inputs: [block][tap][output][vector]."""
    at = PANELS
    taps, lanes = (
        form.taps_z * form.taps_y * form.taps_x,
        min(PAIR * LANES, args[at.outputs] - pair * LANES),
    )
    vectors = cover(lanes, LANES)
    for first in range(inputs[0], inputs[1], LANES):
        count, group = min(LANES, inputs[1] - first), first // (PAIR * LANES) * PAIR
        # Of the layer: lanes of its group of outputs.
        width = min(PAIR, cover(args[at.inputs], LANES) - group) * LANES
        for vector in range(vectors):
            channels = min(LANES, lanes - vector * LANES)
            before = group * LANES * args[at.outputs] + (pair + vector) * LANES * width
            source = args[at.filters] + 4 * (taps * before + first - group * LANES)
            into = loose + (first - inputs[0]) // LANES * taps * TILE + vector * VECTOR_BYTES
            gathered(
                taps,
                source,
                channels,
                channels * 4 * width,
                4 * width,
                count,
                into,
                vectors * VECTOR_BYTES,
            )


@inlined
def _multiplied(
    form: Any, terms: int, width: int, tiles: int, filters: int, points: int, sums: int
) -> None:
    """Add the products of a plane of points to the sums of one pair."""
    blocks, point = cover(terms, LANES), compiled_odd_bytes(tiles)
    last, step = terms - (blocks - 1) * LANES, compiled_odd_bytes(terms * width)
    high = form.points_y
    parts = cover(tiles, ROWS[1] if width == PAIR else ROWS[0])
    for x in range(form.points_x):
        for y in range(high):
            source, target = (
                points + (x * blocks * high + y) * point,
                sums + (x * width * high + y) * point,
            )
            for part in range(parts):
                by, end = part * tiles // parts, (part + 1) * tiles // parts
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                weights = filters + (x * high + y) * step
                # A constant, as code is made for each number of vectors.
                if width == PAIR:
                    grown_products(
                        PAIR,
                        here,
                        high * point,
                        weights,
                        blocks,
                        last,
                        there,
                        high * point,
                        end - by,
                    )
                else:
                    grown_products(
                        1, here, high * point, weights, blocks, last, there, high * point, end - by
                    )


@inlined
def _finished(form: Any, args: Any, sums: int, step: int) -> None:
    """Sums of the task to rows, along y."""
    at = PANELS
    rows, tiles, images = args[at.rows], args[at.tiles], args[at.images]
    total, high, wide = rows * tiles, form.points_y, form.points_x
    point, behind = compiled_odd_bytes(total * images), compiled_odd_bytes(form.new_y * total)
    first, last, depths = args[at.block0], args[at.block1], args[at.depth1] - args[at.depth0]
    for block in range(first, last):
        pair = first + (block - first) // PAIR * PAIR
        width = min(PAIR, last - pair)
        for column in range(depths * wide):
            number = block * compiled_plane(form) + args[at.depth0] * wide + column
            start = (
                sums
                + (pair - first) * depths * step
                + (column * width + block - pair) * high * point
            )
            for image in range(images):
                target = args[at.target] + image * args[at.target_image] + number * behind
                to_rows(form, start + image * total * VECTOR_BYTES, point, tiles, total, target)


def _panels(taps: Triple, exchanged: bool) -> Kernel:
    """Return the kernel of the second stage, for filters of so many taps, exchanged or as they lie."""
    form = FORMS[taps]

    @kernel(PANELS, name=f"winograd_panels{'_exchanged' * exchanged}{name_of(taps)}")
    def winograd_panels(args: Any, worker: int) -> None:
        """Some planes of points times those of filters. Words: see the module."""
        at = PANELS
        tiles = args[at.rows] * args[at.tiles] * args[at.images]
        point, face = compiled_odd_bytes(tiles), form.points_x * form.points_y
        first, last, together = args[at.block0], args[at.block1], args[at.together]
        depths, step = (
            args[at.depth1] - args[at.depth0],
            face * point,
        )  # of the sums of a vector and plane
        filters = args[at.scratch] + 4 * worker * args[at.scratch_worker]
        points = filters + face * compiled_odd_bytes(together * LANES * min(PAIR, last - first))
        sums = points + depths * together * step
        loose = sums + depths * (last - first) * step
        for place in range(sums, loose, VECTOR_BYTES):
            store(place, splat(0.0))
        for begin in range(0, args[at.inputs], together * LANES):
            inputs = begin, min(args[at.inputs], begin + together * LANES)
            terms, blocks = inputs[1] - begin, cover(inputs[1] - begin, LANES)
            for depth in range(depths):
                into = points + depth * blocks * step
                _seen_points(form, args, args[at.depth0] + depth, begin // LANES, blocks, into)
            for pair in range(first, last, PAIR):
                width = min(PAIR, last - pair)
                own = sums + (pair - first) * depths * step
                if exchanged:
                    _exchanged(form, args, pair, inputs, loose)
                for depth in range(depths):
                    number, seen = args[at.depth0] + depth, points + depth * blocks * step
                    _filter_points(form, exchanged, args, number, pair, inputs, loose, filters)
                    _multiplied(
                        form, terms, width, tiles, filters, seen, own + depth * width * step
                    )
        _finished(form, args, sums, step)

    return winograd_panels


PANELS_OF = {
    (taps, exchanged): _panels(taps, exchanged) for taps in FORMS for exchanged in (False, True)
}
"""Kernels by the taps of filters along z, y, x, and whether filters are exchanged."""
