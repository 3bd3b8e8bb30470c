"""Multiplies tiles that `packed_planes` has transformed along their planes, column by column.

A column is what tiles have at one frequency of their planes, along the axis that is left. Columns of
all tiles of a row are transformed, multiplied frequency by frequency as in `gemm`, and
transformed back, all within a worker's scratch, which a cache holds: whole spectra never reach memory.

    packed_products     y = x times filters, summed over channels; or the data gradient, from gradients
    packed_gradients    filter gradients = x times conj(dy), summed over tiles; and, where `target` is not 0,
                        the data gradient, which may take the place of dy

Argument words. Addresses in bytes; strides in floats; all else counts.

    x, x_images, x_points       first column of the first vector of the row; images; points along the
                                axis, of which the others are zeros
    y, y_images, y_points       the same of what products write; of dy
    target                      of what the data gradient writes, all points; or 0
    plane, vector               from point to point along the axis; from vector to vector
    points, columns             of a tile along the axis; of a plane
    column0, column1            of this task
    tiles                       of the row
    w, w_frequency, w_input, w_block    spectra of filters as in `gemm`, of the whole tile
    exchanged                   of products: 1 if the filters are those of the forward pass
    gradient, accumulate        spectra of filter gradients, with the strides of w; 1 adds to them
    scratch, scratch_worker     64-byte aligned; worker w owns `column_floats(...)` floats from
                                w * scratch_worker on

Tasks over disjoint columns may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import (
    SPARE_BYTES,
    End,
    Lines,
    cut_backward_lines,
    cut_forward_lines,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.spectral.exchanged_filters import backward_floats
from znnpy_kernels.spectral.gemm import (
    image_cuts,
    multiply_frequency,
    pace,
    product_cuts,
    sum_frequency,
)
from znnpy_kernels.spectral.product_words import Product
from znnpy_kernels.spectral.tile_transforms import COMPLEX_BYTES, prepare

AT = words(
    "x x_images x_points y y_images y_points target plane vector points columns column0 column1 "
    "tiles w w_frequency w_input w_block exchanged gradient accumulate scratch scratch_worker",
)


def _row_floats(tiles: int, images: int) -> int:
    # An odd number of vectors, as in `parts_of`.
    return 2 * LANES * (-(-tiles * images // LANES) | 1)


def column_floats(points: int, tiles: int, x_images: int, y_images: int) -> int:
    """Floats of scratch that each worker needs for columns of rows of two tensors."""
    rows = _row_floats(tiles, x_images) + _row_floats(tiles, y_images)
    # Spare words of transforms, rooms of both tensors, and exchanged filters of whichever side has more.
    return SPARE_BYTES // 4 + points * rows + backward_floats(max(x_images, y_images))


@inlined
def parts_of(tiles: int, images: int) -> Any:
    """Floats from real to imaginary parts of a row: odd vectors, lest frequencies share a cache set."""
    # A power of two of bytes between frequencies would put all of a column on one set.
    return (cover(tiles * images, LANES) | 1) * LANES


@inlined
def columns_down(
    args: Any, column: int, half: int, images: int, points: int, room: int, spare: int
) -> None:
    """Transform one column of all vectors into a room [frequency][re, im][vector][lane].

    Meanwhile the next one is asked for.
    """
    source, packed, ahead = _column_ends(args, column, half, images, room)
    lines = _column(args, source, packed, ahead, images, points, spare)
    cut_forward_lines(args[AT.points], lines, 1.0)


@inlined
def columns_back(
    args: Any, column: int, half: int, images: int, points: int, room: int, spare: int
) -> None:
    """Transform one column of all vectors back; meanwhile the next one is asked for."""
    target, packed, ahead = _column_ends(args, column, half, images, room)
    lines = _column(args, packed, target, ahead, images, points, spare)
    cut_backward_lines(args[AT.points], lines, 1.0)


@inlined
def _column_ends(args: Any, column: int, half: int, images: int, room: int) -> Any:
    """A column where it lies half transformed, in its room, and the next one."""
    place, step, vector = half + column * COMPLEX_BYTES, 4 * args[AT.plane], 4 * args[AT.vector]
    packed = End(room, 8 * parts_of(args[AT.tiles], images), VECTOR_BYTES, 0)
    # The next column lies right behind, in every plane and vector.
    return End(place, step, vector, 0), packed, End(place + COMPLEX_BYTES, step, vector, 0)


@inlined
def _column(
    args: Any, source: End, target: End, ahead: End, images: int, points: int, spare: int
) -> Any:
    return Lines(
        source=source,
        target=target,
        ahead=ahead,
        lines=cover(args[AT.tiles] * images, LANES),
        # One group: all vectors of a row are lines of one column.
        groups=1,
        first=0,
        count=points,
        spare=spare,
        option=0,
        parts=4 * parts_of(args[AT.tiles], images),
        ahead_parts=VECTOR_BYTES,
    )


@inlined
def row_product(args: Any, x_images: Any, y_images: Any, images: Any, accumulate: Any) -> Product:
    """Products of one frequency of rows of `x_images` and `y_images` images; the rest as in `Product`."""
    blocks = cover(y_images, LANES)
    return Product(
        x_tile=x_images,
        x_block=LANES,
        x_parts=parts_of(args[AT.tiles], x_images),
        w_input=args[AT.w_input],
        w_block=args[AT.w_block],
        y_tile=y_images,
        y_block=LANES,
        y_parts=parts_of(args[AT.tiles], y_images),
        tiles=args[AT.tiles],
        inputs=x_images,
        blocks=blocks,
        lanes=y_images - (blocks - 1) * LANES,
        images=images,
        accumulate=accumulate,
    )


@inlined
def _multiplied(args: Any, product: Product, column: int, x: int, y: int, scratch: int) -> None:
    """Products of all frequencies of a column, from room to room; exchanged where it has `images`."""
    many, one, chunks = product_cuts(product)
    inputs = product.images if product.images else product.inputs
    # x and y are in the room, and a pace of 1 byte asks for a line that is there already.
    paces = (1, 1, *pace(inputs * args[AT.w_input], chunks), 1, 1)
    step = 4 * args[AT.columns] * args[AT.w_frequency]
    w = args[AT.w] + 4 * column * args[AT.w_frequency]
    for _ in range(args[AT.points]):
        # Only filters come from memory.
        ahead = x, w + step, y
        multiply_frequency(product, x, w, y, (many, one), paces, ahead, scratch)
        x, y, w = x + 8 * product.x_parts, y + 8 * product.y_parts, w + step


@inlined
def _summed(args: Any, product: Product, column: int, x: int, y: int) -> None:
    """Gradients of the filters at all frequencies of a column."""
    whole, last, chunks = image_cuts(product)
    paces = (1, 1, 1, 1, *pace(product.inputs * args[AT.w_input], chunks))
    step = 4 * args[AT.columns] * args[AT.w_frequency]
    w = args[AT.gradient] + 4 * column * args[AT.w_frequency]
    for _ in range(args[AT.points]):
        sum_frequency(product, x, w, y, (whole, last), paces, (x, y, w + step))
        x, y, w = x + 8 * product.x_parts, y + 8 * product.y_parts, w + step


@inlined
def rooms(args: Any, worker: int) -> Any:
    """Scratch, room of x, room of y, and the rest."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    x = scratch + SPARE_BYTES
    # One behind the other in this order, as `column_floats` counts them.
    y = x + args[AT.points] * 8 * parts_of(args[AT.tiles], args[AT.x_images])
    return scratch, x, y, y + args[AT.points] * 8 * parts_of(args[AT.tiles], args[AT.y_images])


@kernel(AT)
def packed_products(args: Any, worker: int) -> None:
    """Sums over channels of x times filters. Words: see the module."""
    scratch, x, y, rest = rooms(args, worker)
    prepare(scratch, 0)
    x_images, y_images = args[AT.x_images], args[AT.y_images]
    product = row_product(args, x_images, y_images, y_images if args[AT.exchanged] else 0, 0)
    for column in range(args[AT.column0], args[AT.column1]):
        columns_down(args, column, args[AT.x], x_images, args[AT.x_points], x, scratch)
        _multiplied(args, product, column, x, y, rest)
        columns_back(args, column, args[AT.y], y_images, args[AT.y_points], y, scratch)


@kernel(AT)
def packed_gradients(args: Any, worker: int) -> None:
    """Sums over tiles of x times conj(dy), and the data gradient. Words: see the module."""
    scratch, x, y, rest = rooms(args, worker)
    prepare(scratch, 0)
    x_images, y_images = args[AT.x_images], args[AT.y_images]
    gradient = row_product(args, x_images, y_images, 0, args[AT.accumulate])
    # The data gradient: x and y exchange their roles, and the filters are read exchanged.
    back = row_product(args, y_images, x_images, x_images, 0)
    for column in range(args[AT.column0], args[AT.column1]):
        columns_down(args, column, args[AT.x], x_images, args[AT.x_points], x, scratch)
        columns_down(args, column, args[AT.y], y_images, args[AT.y_points], y, scratch)
        _summed(args, gradient, column, x, y)
        if args[AT.target]:
            # x has served the filter gradient: the data gradient takes its room, and its place in memory where
            # the caller says so.
            _multiplied(args, back, column, y, x, rest)
            columns_back(args, column, args[AT.target], x_images, args[AT.points], x, scratch)
