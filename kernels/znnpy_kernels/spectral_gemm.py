"""Complex products of tiled spectral convolution: one small matrix product for each frequency.

    spectral_products    Y[f][tile][block] = sum over images i of X[f][tile][i] * W[f][i][block]
    spectral_gradients   W[f][i][block] = sum over tiles of X[f][tile][i] * conj(Y[f][tile][block])
    backward_products    Y[f][tile][block] = sum over images i of
                         X[f][tile][i] * conj(W[f][image of block][i])

The first does not conjugate: transforms give conjugate spectra of filters where correlations need them.
The third is the data gradient's, from the forward pass's filters as they lie: it transposes and
conjugates them as it goes, once for all tiles of a frequency.

Argument words: addresses in bytes, strides in floats, all else counts.

    x, x_frequency, x_tile, x_block     spectra of images; image i is lane i % LANES of block i // LANES
    w, w_frequency, w_input, w_block    spectra of filters, by image and block; written by gradients
    y, y_frequency, y_tile, y_block     spectra of outputs, or of output gradients; written by products
    frequencies, tiles, inputs, blocks  real counts; `blocks` counts vectors of output images
    x_parts, y_parts                    from the real part of a number to its imaginary part
    lanes                               output images of the last vector: products do not write the lanes
                                        beyond, gradients write zeros
    accumulate                          gradients alone: 1 adds to what stands there, 0 overwrites

`backward_products` reads `w` with the strides of the forward pass, whose outputs are its `inputs`:
w_input leads from image to image of y, w_block from vector to vector of the terms; and three words more:

    images                              of y, from its first block on: real count; lanes beyond get 0
    scratch, scratch_worker             64-byte aligned; worker w owns `backward_floats(inputs)` floats
                                        from w * scratch_worker on

Tiles of x and y may lie closer than whole vectors, with all real parts of a frequency before all
imaginary ones: see `packed_tiles`.

Output vectors are the outer loop, so that one frequency's filters of two vectors stay in the L1
cache while tiles stream past. Meanwhile the next frequency is asked for; where its numbers do not lie
dense, part of them comes late. Each sum is taken in the order of its index, whatever is cut. Tasks
that write disjoint frequencies, tiles or blocks may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.spectral_blocks import CHUNK, LINE, PAIR, ROWS, register_block
from znnpy_kernels.tiles import load_tile, scratch_tile, transpose_negated, transpose_tile

FIELDS = (
    "x",
    "x_frequency",
    "x_tile",
    "x_block",
    "w",
    "w_frequency",
    "w_input",
    "w_block",
    "y",
    "y_frequency",
    "y_tile",
    "y_block",
    "frequencies",
    "tiles",
    "inputs",
    "blocks",
    "x_parts",
    "y_parts",
    "lanes",
)
GRADIENT_FIELDS = (*FIELDS, "accumulate")
BACKWARD_FIELDS = (*FIELDS, "images", "scratch", "scratch_worker")


def backward_floats(inputs: int) -> int:
    """Floats of scratch that each worker needs for `backward_products` of so many terms."""
    return -(-inputs // LANES) * LANES * 2 * PAIR


@inlined
def _cover(whole: int, part: int) -> int:
    return (whole + part - 1) // part


@inlined
def _floats(tiles: int, tile: int, parts: int) -> Any:
    """Of one frequency of tiles: they lie one by one, or all real parts before all imaginary ones."""
    return max(tiles * tile, 2 * parts)


@inlined
def _cut(count: int, most: int) -> Any:
    """Parts of at most `most`; rows of the smallest; how many, the first ones, have one more."""
    parts = _cover(count, most)
    return parts, count // max(1, parts), count % max(1, parts)


@inlined
def pace(floats: int, chunks: int) -> Any:
    """Of what is asked for in so many chunks: bytes a chunk, bytes from request to request."""
    pace = max(1, _cover(4 * floats, chunks))
    return pace, _cover(pace, _cover(pace, LINE))


@inlined
def _lanes(args: Any, end: int) -> Any:
    """Lanes that hold images in the last of the vectors before `end`."""
    return args[18] if end == args[15] else LANES


@inlined
def _tiles(
    vectors: int, args: Any, x: int, w: Any, y: int, lanes: int, cut: Any, paces: Any, ahead: Any
) -> Any:
    """Products of one frequency with `vectors` output vectors, for all tiles.

    `lanes` of the last vector are written; `w`: address, steps from term to term, from vector to
    vector, and to imaginary parts.
    """
    tile = 0
    for part in range(cut[0]):
        rows = cut[1] + (1 if part < cut[2] else 0)
        scalars = x + 4 * tile * args[2], args[2], 1, args[3] - LANES, args[16]
        target = y + 4 * tile * args[10], args[10], args[11], args[17], lanes
        ahead = register_block(vectors, 0, scalars, w, target, (args[14], 0), paces, ahead, rows)
        tile += rows
    return ahead


@inlined
def _images(
    vectors: int, args: Any, x: int, w: int, y: int, lanes: int, cuts: Any, paces: Any, ahead: Any
) -> Any:
    """Sums over tiles, of one frequency with `vectors` vectors, for all images.

    `lanes` of the last vector are kept; `cuts` of the images of a whole block and of the last one.
    """
    image, blocks = 0, _cover(args[14], LANES)
    for block in range(blocks):
        parts, fewest, more = cuts[0] if block + 1 < blocks else cuts[1]
        scalars = x + 4 * block * args[3]
        for part in range(parts):
            rows = fewest + (1 if part < more else 0)
            target = w + 4 * image * args[6], args[6], args[7], LANES, lanes
            ahead = register_block(
                vectors, 1, (scalars, 1, args[2], 0, args[16]),
                (y, args[10], args[11], args[17]), target, (args[13], args[19]), paces, ahead, rows,
            )  # fmt: skip
            scalars, image = scalars + 4 * rows, image + rows
    return ahead


@inlined
def product_cuts(args: Any) -> Any:
    """Cuts of the tiles for two vectors and for one; chunks of all register blocks of a frequency."""
    two, one = _cut(args[13], ROWS[1]), _cut(args[13], ROWS[0])
    blocks = args[15] // 2 * two[0] + args[15] % 2 * one[0]
    return two, one, blocks * _cover(args[14], CHUNK)


@inlined
def multiply_frequency(
    args: Any, x: int, w: int, y: int, cuts: Any, paces: Any, ahead: Any
) -> None:
    """Products of one frequency; `cuts` of the tiles for two vectors and for one."""
    for pair in range(args[15] // 2):
        filters = w + 8 * pair * args[7], args[6], args[7], LANES
        outputs, lanes = y + 8 * pair * args[11], _lanes(args, 2 * pair + 2)
        ahead = _tiles(2, args, x, filters, outputs, lanes, cuts[0], paces, ahead)
    if args[15] % 2:
        last = args[15] - 1
        filters = w + 4 * last * args[7], args[6], args[7], LANES
        outputs = y + 4 * last * args[11]
        _tiles(1, args, x, filters, outputs, args[18], cuts[1], paces, ahead)


@kernel(*FIELDS)
def spectral_products(args: Any, worker: int) -> None:
    """Spectra of images times those of filters, summed over images."""
    two, one, chunks = product_cuts(args)
    paces = (
        *pace(_floats(args[13], args[2], args[16]), chunks),
        *pace(args[14] * args[6], chunks),
        *pace(_floats(args[13], args[10], args[17]), chunks),
    )
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        ahead = x + 4 * args[1], w + 4 * args[5], y + 4 * args[9]
        multiply_frequency(args, x, w, y, (two, one), paces, ahead)


@inlined
def _exchanged(vectors: int, args: Any, w: int, first: int, scratch: int) -> Any:
    """Scratch [term][vector][PAIR]: conjugate filters of all terms and the images from `first` on.

    Gives address and steps as `_tiles` takes them.
    """
    row, step = 4 * args[6], 4 * PAIR * vectors
    rest = scratch_tile()
    for vector in range(vectors):
        image = first + vector * LANES
        held = min(LANES, args[19] - image)
        for block in range(_cover(args[14], LANES)):
            source = w + image * row + 4 * block * args[7]
            target = scratch + block * LANES * step + 4 * PAIR * vector
            if held == LANES:
                transpose_tile(source, row, target, step)
                transpose_negated(source + 4 * LANES, row, target + 4 * LANES, step)
            else:
                load_tile(source, row, held, LANES, rest)
                transpose_tile(rest, 4 * LANES, target, step)
                load_tile(source + 4 * LANES, row, held, LANES, rest)
                transpose_negated(rest, 4 * LANES, target + 4 * LANES, step)
    return scratch, vectors * PAIR, PAIR, LANES


@inlined
def multiply_exchanged(
    args: Any, x: int, w: int, y: int, cuts: Any, paces: Any, ahead: Any, scratch: int
) -> None:
    """The same with the forward pass's filters, of which args[19] images are wanted."""
    for pair in range(args[15] // 2):
        filters = _exchanged(2, args, w, 2 * pair * LANES, scratch)
        outputs, lanes = y + 8 * pair * args[11], _lanes(args, 2 * pair + 2)
        ahead = _tiles(2, args, x, filters, outputs, lanes, cuts[0], paces, ahead)
    if args[15] % 2:
        last = args[15] - 1
        filters = _exchanged(1, args, w, last * LANES, scratch)
        outputs = y + 4 * last * args[11]
        _tiles(1, args, x, filters, outputs, args[18], cuts[1], paces, ahead)


@kernel(*BACKWARD_FIELDS)
def backward_products(args: Any, worker: int) -> None:
    """Spectra of gradients times exchanged, conjugate ones of filters, summed over outputs."""
    scratch = args[20] + 4 * worker * args[21]
    two, one, chunks = product_cuts(args)
    paces = (
        *pace(_floats(args[13], args[2], args[16]), chunks),
        *pace(args[19] * args[6], chunks),
        *pace(_floats(args[13], args[10], args[17]), chunks),
    )
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        ahead = x + 4 * args[1], w + 4 * args[5], y + 4 * args[9]
        multiply_exchanged(args, x, w, y, (two, one), paces, ahead, scratch)


@inlined
def image_cuts(args: Any) -> Any:
    """Cuts of the images of a whole block and of the last one, for two vectors of outputs and for one;
    chunks of all register blocks of a frequency."""
    (two, two_parts), (one, one_parts) = _image_cuts(args, ROWS[1]), _image_cuts(args, ROWS[0])
    blocks = args[15] // 2 * two_parts + args[15] % 2 * one_parts
    return two, one, blocks * _cover(args[13], CHUNK)


@inlined
def _image_cuts(args: Any, most: int) -> Any:
    """Cuts of the images of a whole block and of the last one; parts of all blocks."""
    blocks = _cover(args[14], LANES)
    whole, last = _cut(LANES, most), _cut(args[14] - (blocks - 1) * LANES, most)
    return (whole, last), (blocks - 1) * whole[0] + last[0]


@inlined
def sum_frequency(args: Any, x: int, w: int, y: int, cuts: Any, paces: Any, ahead: Any) -> None:
    """Gradients of the filters of one frequency; `cuts` of the images for two vectors and for one."""
    for pair in range(args[15] // 2):
        filters, outputs = w + 8 * pair * args[7], y + 8 * pair * args[11]
        lanes = _lanes(args, 2 * pair + 2)
        ahead = _images(2, args, x, filters, outputs, lanes, cuts[0], paces, ahead)
    if args[15] % 2:
        last = args[15] - 1
        filters, outputs = w + 4 * last * args[7], y + 4 * last * args[11]
        _images(1, args, x, filters, outputs, args[18], cuts[1], paces, ahead)


@kernel(*GRADIENT_FIELDS)
def spectral_gradients(args: Any, worker: int) -> None:
    """Spectra of images times conjugate ones of output gradients, summed over tiles."""
    two, one, chunks = image_cuts(args)
    paces = (
        *pace(_floats(args[13], args[2], args[16]), chunks),
        *pace(_floats(args[13], args[10], args[17]), chunks),
        *pace(args[14] * args[6], chunks),
    )
    for f in range(args[12]):
        x, w, y = args[0] + 4 * f * args[1], args[4] + 4 * f * args[5], args[8] + 4 * f * args[9]
        ahead = x + 4 * args[1], y + 4 * args[9], w + 4 * args[5]
        sum_frequency(args, x, w, y, (two, one), paces, ahead)
