"""Products of tiles that `packed_planes` has left half transformed, column by column.

A column is what tiles have at one frequency of their planes, along the axis that is left. Columns of
all tiles of a row are transformed, multiplied frequency by frequency as in `spectral_gemm`, and
transformed back, all within a worker's scratch, which a cache holds: whole spectra never reach memory.

    packed_products     y = x times filters, summed over images; or the data gradient, from gradients
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
    w, w_frequency, w_input, w_block    spectra of filters as in `spectral_gemm`, of the whole tile
    exchanged                   of products: 1 if the filters are those of the forward pass
    gradient, accumulate        spectra of filter gradients, with the strides of w; 1 adds to them
    scratch, scratch_worker     64-byte aligned; worker w owns `column_floats(...)` floats from
                                w * scratch_worker on

Tasks over disjoint columns may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.fft_codelets import (
    SPARE_BYTES,
    VECTOR_BYTES,
    cut_backward_lines,
    cut_forward_lines,
)
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.spectral_gemm import (
    backward_floats,
    image_cuts,
    multiply_exchanged,
    multiply_frequency,
    pace,
    product_cuts,
    sum_frequency,
)
from znnpy_kernels.tile_transforms import COMPLEX_BYTES, prepare

FIELDS = (
    "x", "x_images", "x_points", "y", "y_images", "y_points", "target", "plane", "vector",
    "points", "columns", "column0", "column1", "tiles", "w", "w_frequency", "w_input", "w_block",
    "exchanged", "gradient", "accumulate", "scratch", "scratch_worker",
)  # fmt: skip


def _cover(whole: int, part: int) -> int:
    return (whole + part - 1) // part


_covered = inlined(_cover)


def _row_floats(tiles: int, images: int) -> int:
    return 2 * LANES * (_cover(tiles * images, LANES) | 1)


def column_floats(points: int, tiles: int, x_images: int, y_images: int) -> int:
    """Floats of scratch that each worker needs for columns of rows of two tensors."""
    rows = _row_floats(tiles, x_images) + _row_floats(tiles, y_images)
    return SPARE_BYTES // 4 + points * rows + backward_floats(max(x_images, y_images))


@inlined
def parts_of(tiles: int, images: int) -> Any:
    """Floats from real to imaginary parts of a row: odd vectors, lest frequencies share a cache set."""
    return (_covered(tiles * images, LANES) | 1) * LANES


@inlined
def columns_down(
    args: Any, column: int, half: int, images: int, points: int, room: int, spare: int
) -> None:
    """One column of all vectors, transformed into a room [frequency][re, im][vector][lane].

    Meanwhile the next one is asked for.
    """
    source, parts = half + column * COMPLEX_BYTES, 4 * parts_of(args[13], images)
    step, vector = 4 * args[7], 4 * args[8]
    cut_forward_lines(
        args[9],
        (
            source, step, vector, 0, room, 2 * parts, VECTOR_BYTES, 0,
            source + COMPLEX_BYTES, step, vector, 0,
            _covered(args[13] * images, LANES), 1, 0, points, spare, 0, parts, VECTOR_BYTES,
        ),
        1.0,
    )  # fmt: skip


@inlined
def columns_back(
    args: Any, column: int, half: int, images: int, points: int, room: int, spare: int
) -> None:
    """The same back; meanwhile the next one is asked for."""
    target, parts = half + column * COMPLEX_BYTES, 4 * parts_of(args[13], images)
    step, vector = 4 * args[7], 4 * args[8]
    cut_backward_lines(
        args[9],
        (
            room, 2 * parts, VECTOR_BYTES, 0, target, step, vector, 0,
            target + COMPLEX_BYTES, step, vector, 0,
            _covered(args[13] * images, LANES), 1, 0, points, spare, 0, parts, VECTOR_BYTES,
        ),
        1.0,
    )  # fmt: skip


@inlined
def _words(args: Any, terms: int, images: int, last: int) -> Any:
    """Words of `spectral_gemm` for rows of `terms` and `images` images, and its last one."""
    blocks = _covered(images, LANES)
    return (
        0, 0, terms, LANES, 0, 0, args[16], args[17], 0, 0, images, LANES, 0, args[13], terms, blocks,
        parts_of(args[13], terms), parts_of(args[13], images), images - (blocks - 1) * LANES, last,
    )  # fmt: skip


@inlined
def _multiplied(args: Any, words: Any, column: int, x: int, y: int, scratch: int) -> None:
    """Products of all frequencies of a column, from room to room; words[19]: images exchanged, or 0."""
    two, one, chunks = product_cuts(words)
    inputs = words[19] if words[19] else words[14]
    paces = (1, 1, *pace(inputs * args[16], chunks), 1, 1)
    step = 4 * args[10] * args[15]
    w = args[14] + 4 * column * args[15]
    for _ in range(args[9]):
        ahead = x, w + step, y
        if words[19]:
            multiply_exchanged(words, x, w, y, (two, one), paces, ahead, scratch)
        else:
            multiply_frequency(words, x, w, y, (two, one), paces, ahead)
        x, y, w = x + 8 * words[16], y + 8 * words[17], w + step


@inlined
def _summed(args: Any, words: Any, column: int, x: int, y: int) -> None:
    """Gradients of the filters at all frequencies of a column."""
    two, one, chunks = image_cuts(words)
    paces = (1, 1, 1, 1, *pace(words[14] * args[16], chunks))
    step = 4 * args[10] * args[15]
    w = args[19] + 4 * column * args[15]
    for _ in range(args[9]):
        sum_frequency(words, x, w, y, (two, one), paces, (x, y, w + step))
        x, y, w = x + 8 * words[16], y + 8 * words[17], w + step


@inlined
def rooms(args: Any, worker: int) -> Any:
    """Scratch, room of x, room of y, and the rest."""
    scratch = args[21] + 4 * worker * args[22]
    x = scratch + SPARE_BYTES
    y = x + args[9] * 8 * parts_of(args[13], args[1])
    return scratch, x, y, y + args[9] * 8 * parts_of(args[13], args[4])


@kernel(*FIELDS)
def packed_products(args: Any, worker: int) -> None:
    """Sums over images of x times filters. Words: see the module."""
    scratch, x, y, rest = rooms(args, worker)
    prepare(scratch, 0)
    words = _words(args, args[1], args[4], args[4] if args[18] else 0)
    for column in range(args[11], args[12]):
        columns_down(args, column, args[0], args[1], args[2], x, scratch)
        _multiplied(args, words, column, x, y, rest)
        columns_back(args, column, args[3], args[4], args[5], y, scratch)


@kernel(*FIELDS)
def packed_gradients(args: Any, worker: int) -> None:
    """Sums over tiles of x times conj(dy), and the data gradient. Words: see the module."""
    scratch, x, y, rest = rooms(args, worker)
    prepare(scratch, 0)
    words = _words(args, args[1], args[4], args[20])
    back = _words(args, args[4], args[1], args[1])
    for column in range(args[11], args[12]):
        columns_down(args, column, args[0], args[1], args[2], x, scratch)
        columns_down(args, column, args[3], args[4], args[5], y, scratch)
        _summed(args, words, column, x, y)
        if args[6]:
            _multiplied(args, back, column, y, x, rest)
            columns_back(args, column, args[6], args[1], args[9], x, scratch)
