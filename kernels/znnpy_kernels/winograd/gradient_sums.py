"""Weight gradients by Winograd's minimal filtering, second stage: sums over all tiles at once, and their taps.

`gradient_points` has made the points of all tiles of source and gradient. A task takes some blocks of inputs and of
outputs. A row of points after the other, and block by block within: the sums of a column go through the L1 cache, where
they are transformed back along z and x; at the end along y. So of 216 sums a pair of channels 54 leave it, and
nothing is cleared or read again, as each sum is over all tiles (docs/design/winograd.md, *Filter gradient*).

Argument words. Addresses in bytes, 64-byte aligned; counts.

    source, gradient            points of the first block of inputs, and of outputs, by `gradient_points`
    tiles                       in each point
    inputs, blocks              channels of the source; vectors of output channels
    target, adds                packed filter gradients of these; 1: added to those that lie there, 0: overwritten
    scratch, scratch_worker     worker w owns `sums_floats` from w * scratch_worker on: sums of a column [z][pair],
                                a row [x][z][pair], rows of all blocks [block][pair of vectors][y][z][x][pair]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.gradient_lines import (
    add_filter_height,
    ask_to_write,
    filter_depth,
    filter_height,
    filter_width,
)
from znnpy_kernels.winograd.gradient_points import compiled_block_bytes
from znnpy_kernels.winograd.gradient_products import IMAGES, sum_products
from znnpy_kernels.winograd.line_transforms import LINE_BYTES
from znnpy_kernels.winograd.products import compiled_odd_bytes

AT = words("source gradient tiles inputs blocks target adds scratch scratch_worker")
# Vectors of sums of a block of inputs and two of outputs.
PAIRS = 2 * LANES


def sums_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for tasks of so many channels."""
    form, rows, pairs = FORMS[taps], -(-inputs // LANES), -(-outputs // (2 * LANES))
    column, row = form.points_z, form.points_x * form.taps_z
    plane = form.points_y * form.taps_z * form.taps_x
    return int(column + row + plane * rows * pairs) * PAIRS * VECTOR_BYTES // 4


@inlined
def _products_of_vectors(
    tiles: int, source: int, gradient: int, block: int, vectors: int, images: int, sums: int
) -> None:
    """Sums of a point of `vectors` vectors of gradients, `block` bytes apart, with `images` images."""
    # Two vectors of gradients share a broadcast voxel, as in `multiply`.
    parts = cover(images, IMAGES[1]) if vectors == 2 else cover(images, IMAGES[0])
    first, row = 0, vectors * VECTOR_BYTES
    for part in range(parts):
        many = images * (part + 1) // parts - first
        here, into = source + 4 * first, sums + first * row
        if vectors == 2:
            sum_products(2, here, gradient, block, tiles, into, row, many, None)
        else:
            sum_products(1, here, gradient, block, tiles, into, row, many, None)
        first += many


@inlined
def _point(
    form: Any, tiles: int, place: Any, source: int, gradient: int, block: int, vectors: int,
    images: int, sums: int,
) -> None:  # fmt: skip
    """Sums of a point z, y, x of the points of a block of inputs, and of a pair of outputs."""
    z, y, x = place
    behind = ((y * form.points_x + x) * form.points_z + z) * compiled_odd_bytes(tiles)
    _products_of_vectors(tiles, source + behind, gradient + behind, block, vectors, images, sums)


class Lines(NamedTuple):
    """Intrinsics that transform sums back to taps, along z, x and y, and the last one added to what is there."""

    depth: Any
    width: Any
    height: Any
    add_height: Any


def sums_of(point: Any, lines: Lines, source_block_bytes: Any, gradient_block_bytes: Any) -> Any:
    """The inlined `(form, args, scratch)`: filter gradients between some blocks of channels, from points.

    `point`: its sums, as `_point`; `source_block_bytes`, `gradient_block_bytes`: `(form, tiles)`, from block to block.
    """
    depth, width, height, add_height = lines

    @inlined
    def row_of_points(
        form: Any, tiles: int, y: int, source: int, gradient: int, block: int, vectors: int,
        images: int, scratch: int, target: int, asked: int, lines: int,
    ) -> None:  # fmt: skip
        """Sums of a row of points, transformed back along z and x: [z][x][pair].

        With each column `lines` lines are asked for, to be written later, from `asked` on.
        """
        pairs = vectors * images
        step, row = pairs * VECTOR_BYTES, scratch + form.points_z * PAIRS * VECTOR_BYTES
        for x in range(form.points_x):
            ask_to_write(asked + x * lines * LINE_BYTES, lines)
            into = row + x * form.taps_z * step
            sums = into if form.points_z == 1 else scratch
            for z in range(form.points_z):
                here = sums + z * step
                point(form, tiles, (z, y, x), source, gradient, block, vectors, images, here)
            if form.points_z > 1:
                for pair in range(pairs):
                    here, there = scratch + pair * VECTOR_BYTES, into + pair * VECTOR_BYTES
                    depth(form, here, step, there, step)
        for z in range(form.taps_z):
            for pair in range(pairs):
                here = row + z * step + pair * VECTOR_BYTES
                into = target + z * form.taps_x * step + pair * VECTOR_BYTES
                width(form, here, form.taps_z * step, into, step)

    @inlined
    def taps_of_rows(
        form: Any, args: Any, rows: int, block: int, pair: int, vectors: int, images: int
    ) -> None:
        """Transform the rows of a block of inputs and a pair of vectors back along y, to packed filter gradients."""
        taps_of_plane = form.taps_y * form.taps_x
        taps = form.taps_z * taps_of_plane
        width, pairs = vectors * VECTOR_BYTES, vectors * images
        step, tap = pairs * VECTOR_BYTES, images * width
        # Pieces lie by pairs of vectors, then by blocks of inputs; a pair of a single vector is the last one.
        target = args[AT.target] + taps * args[AT.inputs] * pair * 2 * VECTOR_BYTES
        target += taps * block * LANES * width
        for z in range(form.taps_z):
            for x in range(form.taps_x):
                here = rows + (z * form.taps_x + x) * step
                into = target + (z * taps_of_plane + x) * tap
                for one in range(0, pairs * VECTOR_BYTES, VECTOR_BYTES):
                    line = form.taps_z * form.taps_x * step
                    if args[AT.adds]:
                        add_height(form, here + one, line, into + one, form.taps_x * tap)
                    else:
                        height(form, here + one, line, into + one, form.taps_x * tap)

    @inlined
    def sums(form: Any, args: Any, scratch: int) -> None:
        inputs, blocks, tiles = args[AT.inputs], args[AT.blocks], args[AT.tiles]
        of_source, of_gradient = source_block_bytes(form, tiles), gradient_block_bytes(form, tiles)
        plane = form.taps_z * form.taps_x * VECTOR_BYTES
        rows = scratch + (form.points_z + form.points_x * form.taps_z) * PAIRS * VECTOR_BYTES
        many, room = cover(inputs, LANES), form.points_y * plane * PAIRS
        # Half of the rows ask for the lines of the target, which stores at the end would wait for.
        half = form.points_y // 2
        columns = (form.points_y - half) * form.points_x * many * cover(blocks, 2)
        bytes_ = form.taps_y * plane * inputs * blocks
        lines, asked = cover(bytes_, columns * LINE_BYTES), args[AT.target]
        # A row of points of all blocks stays in the L2 cache.
        for y in range(form.points_y):
            for pair in range(cover(blocks, 2)):
                vectors = min(2, blocks - 2 * pair)
                gradient = args[AT.gradient] + 2 * pair * of_gradient
                for block in range(many):
                    images = min(LANES, inputs - block * LANES)
                    source = args[AT.source] + block * of_source
                    into = rows + (pair * many + block) * room + y * plane * vectors * images
                    early = lines if y >= half else 0
                    row_of_points(
                        form, tiles, y, source, gradient, of_gradient, vectors, images, scratch, into,
                        asked, early,
                    )  # fmt: skip
                    asked += form.points_x * early * LINE_BYTES
        for pair in range(cover(blocks, 2)):
            vectors = min(2, blocks - 2 * pair)
            for block in range(many):
                images = min(LANES, inputs - block * LANES)
                here = rows + (pair * many + block) * room
                taps_of_rows(form, args, here, block, pair, vectors, images)

    return sums


_LINES = Lines(filter_depth, filter_width, filter_height, add_filter_height)
_sums = sums_of(_point, _LINES, compiled_block_bytes, compiled_block_bytes)


def _winograd_gradient_sums(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_gradient_sums{name_of(taps)}")
    def winograd_gradient_sums(args: Any, worker: int) -> None:
        """Filter gradients between some blocks of channels, from points. Words: see the module."""
        _sums(form, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_gradient_sums


WINOGRAD_GRADIENT_SUMS = {taps: _winograd_gradient_sums(taps) for taps in FORMS}
"""By the taps of filters along z, y, x."""
