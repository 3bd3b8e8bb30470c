"""Complex products of tiled spectral convolution: one small matrix product for each frequency.

    spectral_products    Y[f][tile][block] = sum over channels i of X[f][tile][i] * W[f][i][block]
    spectral_gradients   W[f][i][block] = sum over tiles of X[f][tile][i] * conj(Y[f][tile][block])
    backward_products    Y[f][tile][block] = sum over channels i of
                         X[f][tile][i] * conj(W[f][image of block][i])

The first does not conjugate: transforms give conjugate spectra of filters where correlations need them.
The third is the data gradient's, from the forward pass's filters as they lie: it transposes and
conjugates them as it goes, once for all tiles of a frequency.

Argument words: addresses in bytes, strides in floats, all else counts.

    x, x_frequency, x_tile, x_block     spectra of channels; channel i is lane i % LANES of block i // LANES
    w, w_frequency, w_input, w_block    spectra of filters, by image and block; written by gradients
    y, y_frequency, y_tile, y_block     spectra of outputs, or of output gradients; written by products
    frequencies, tiles, inputs, blocks  real counts; `blocks` counts vectors of output channels
    first, size_y, size_x       number of the first frequency; rows of a tile and points of a row, if frequencies that
                                are `mirrored` are left out; size_x 0: none is
    x_parts, y_parts                    from the real part of a number to its imaginary part
    lanes                               output channels of the last vector: products do not write the lanes
                                        beyond, gradients write zeros
    accumulate                          gradients alone: 1 adds to what stands there, 0 overwrites

`backward_products` reads `w` with the strides of the forward pass, whose outputs are its `inputs`:
w_input leads from channel to channel of y, w_block from vector to vector of the terms; and three words more:

    images                              of y, from its first block on: real count; lanes beyond get 0
    scratch, scratch_worker             64-byte aligned; worker w owns `backward_floats(inputs)` floats
                                        from w * scratch_worker on

Tiles of x and y may lie closer than whole vectors, with all real parts of a frequency before all
imaginary ones: see `packed_tiles`.

Output vectors are the outer loop, so that one frequency's filters of one or two vectors stay in the L1
cache while tiles stream past. Meanwhile the next frequency is asked for; where its numbers do not lie
dense, part of them comes late. Each sum is taken in the order of its index, whatever is cut. Tasks
that write disjoint frequencies, tiles or blocks may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.exchanged_filters import filters_from
from znnpy_kernels.spectral.mirrored import is_mirrored
from znnpy_kernels.spectral.product_words import Product, cut, lanes_before
from znnpy_kernels.spectral.register_blocks import CHUNK, LINE, ROWS, VECTORS, register_block

AT = words(
    "x x_frequency x_tile x_block w w_frequency w_input w_block y y_frequency y_tile y_block "
    "frequencies first size_y size_x tiles inputs blocks x_parts y_parts lanes",
)
GRADIENT = words(AT, "accumulate")
BACKWARD = words(AT, "images scratch scratch_worker")


@inlined
def _floats(tiles: int, tile: int, parts: int) -> Any:
    """Return the floats of one frequency of tiles, which lie one by one or as all real, then all imaginary parts."""
    return max(tiles * tile, 2 * parts)


@inlined
def pace(floats: int, chunks: int) -> Any:
    """Return, for floats that are asked for in so many chunks, bytes a chunk and bytes from request to request."""
    # Spread evenly over the chunks; several requests a chunk where a line is not enough.
    pace = max(1, cover(4 * floats, chunks))
    return pace, cover(pace, cover(pace, LINE))


@inlined
def _tiles(
    vectors: int,
    product: Product,
    x: int,
    w: Any,
    y: int,
    lanes: int,
    parts: Any,
    paces: Any,
    ahead: Any,
) -> Any:
    """Products of one frequency with `vectors` output vectors, for all tiles.

    `lanes` of the last vector are written; `w`: address, steps from term to term, from vector to
    vector, and to imaginary parts.
    """
    # Rows are tiles here, terms are channels: within a block they lie side by side, hence a turn of 1 and a
    # jump to the next block.
    tile = 0
    for part in range(parts[0]):
        rows = parts[1] + (1 if part < parts[2] else 0)
        scalars = (
            x + 4 * tile * product.x_tile,
            product.x_tile,
            1,
            product.x_block - LANES,
            product.x_parts,
        )
        target = (
            y + 4 * tile * product.y_tile,
            product.y_tile,
            product.y_block,
            product.y_parts,
            lanes,
        )
        ahead = register_block(
            vectors, 0, scalars, w, target, (product.inputs, 0), paces, ahead, rows
        )
        tile += rows
    return ahead


@inlined
def _images(
    product: Product, x: int, w: int, y: int, lanes: int, cuts: Any, paces: Any, ahead: Any
) -> Any:
    """Sum over tiles, at one frequency with one vector of outputs, for all channels.

    `lanes` of the vector are kept; `cuts` of the channels of a whole block and of the last one.
    """
    # Rows are channels here, terms are tiles. One vector: many rows read what many tiles bring but seldom.
    image, blocks = 0, cover(product.inputs, LANES)
    for block in range(blocks):
        parts, fewest, more = cuts[0] if block + 1 < blocks else cuts[1]
        scalars = x + 4 * block * product.x_block
        for part in range(parts):
            rows = fewest + (1 if part < more else 0)
            target = (
                w + 4 * image * product.w_input,
                product.w_input,
                product.w_block,
                LANES,
                lanes,
            )
            outputs = y, product.y_tile, product.y_block, product.y_parts
            # From tile to tile there is no further step, so the jump is 0.
            inputs = scalars, 1, product.x_tile, 0, product.x_parts
            sums = product.tiles, product.accumulate
            ahead = register_block(1, 1, inputs, outputs, target, sums, paces, ahead, rows)
            scalars, image = scalars + 4 * rows, image + rows
    return ahead


@inlined
def product_cuts(product: Product) -> Any:
    """Cuts of the tiles for VECTORS and for one vector; how often a frequency asks for lines of the next one."""
    many, one = cut(product.tiles, ROWS[VECTORS - 1]), cut(product.tiles, ROWS[0])
    blocks = product.blocks // VECTORS * many[0] + product.blocks % VECTORS * one[0]
    return many, one, blocks * cover(product.inputs, CHUNK)


@inlined
def multiply_frequency(
    product: Product, x: int, w: int, y: int, cuts: Any, paces: Any, ahead: Any, scratch: int
) -> None:
    """Products of one frequency; `cuts` of the tiles for VECTORS and for one vector; scratch: of exchanged filters."""
    # VECTORS of outputs first: their filters stay in the L1 cache while all tiles stream past.
    for turn in range(product.blocks // VECTORS):
        first, end = turn * VECTORS, (turn + 1) * VECTORS
        filters = filters_from(VECTORS, product, w, first, scratch)
        outputs, lanes = y + 4 * first * product.y_block, lanes_before(product, end)
        ahead = _tiles(VECTORS, product, x, filters, outputs, lanes, cuts[0], paces, ahead)
    # One vector is left where pairs leave one.
    if product.blocks % VECTORS:
        last = product.blocks - 1
        filters = filters_from(1, product, w, last, scratch)
        outputs = y + 4 * last * product.y_block
        _tiles(1, product, x, filters, outputs, product.lanes, cuts[1], paces, ahead)


@inlined
def product_of(args: Any, images: Any, accumulate: Any) -> Product:
    """Return what the words that all kernels here have say of the products."""
    return Product(
        # By name: numba passes a named tuple as its values, in registers or as constants.
        x_tile=args[AT.x_tile],
        x_block=args[AT.x_block],
        x_parts=args[AT.x_parts],
        w_input=args[AT.w_input],
        w_block=args[AT.w_block],
        y_tile=args[AT.y_tile],
        y_block=args[AT.y_block],
        y_parts=args[AT.y_parts],
        tiles=args[AT.tiles],
        inputs=args[AT.inputs],
        blocks=args[AT.blocks],
        lanes=args[AT.lanes],
        images=images,
        accumulate=accumulate,
    )


@inlined
def places(args: Any, f: int) -> Any:
    """Return where x, w and y of one frequency lie."""
    x = args[AT.x] + 4 * f * args[AT.x_frequency]
    w = args[AT.w] + 4 * f * args[AT.w_frequency]
    return x, w, args[AT.y] + 4 * f * args[AT.y_frequency]


@inlined
def following(args: Any, f: int) -> Any:
    """Return which frequency of a task is multiplied next behind number f; any number behind its last one ends it."""
    f += 1
    if args[AT.size_x]:
        while is_mirrored(args[AT.first] + f, args[AT.size_y], args[AT.size_x]):
            f += 1
    return f


@inlined
def paces_of(product: Product, terms: Any, chunks: int) -> Any:
    """Paces of x, of w with so many terms, and of y."""
    x = pace(_floats(product.tiles, product.x_tile, product.x_parts), chunks)
    y = pace(_floats(product.tiles, product.y_tile, product.y_parts), chunks)
    return x, pace(terms * product.w_input, chunks), y


@kernel(AT)
def spectral_products(args: Any, worker: int) -> None:
    """Spectra of channels times those of filters, summed over channels."""
    product = product_of(args, 0, 0)
    many, one, chunks = product_cuts(product)
    x_pace, w_pace, y_pace = paces_of(product, product.inputs, chunks)
    paces = (*x_pace, *w_pace, *y_pace)
    f = following(args, -1)
    while f < args[AT.frequencies]:
        then = following(args, f)
        # Behind the last frequency nothing is read: a request for memory that does not exist is dropped by the
        # CPU.
        (x, w, y), ahead = places(args, f), places(args, then)
        multiply_frequency(product, x, w, y, (many, one), paces, ahead, 0)
        f = then


@kernel(BACKWARD)
def backward_products(args: Any, worker: int) -> None:
    """Spectra of gradients times exchanged, conjugate ones of filters, summed over outputs."""
    scratch = args[BACKWARD.scratch] + 4 * worker * args[BACKWARD.scratch_worker]
    product = product_of(args, args[BACKWARD.images], 0)
    many, one, chunks = product_cuts(product)
    x_pace, w_pace, y_pace = paces_of(product, product.images, chunks)
    paces = (*x_pace, *w_pace, *y_pace)
    f = following(args, -1)
    while f < args[AT.frequencies]:
        then = following(args, f)
        (x, w, y), ahead = places(args, f), places(args, then)
        multiply_frequency(product, x, w, y, (many, one), paces, ahead, scratch)
        f = then


@inlined
def image_cuts(product: Product) -> Any:
    """Cuts of the channels of a whole block and of the last one; how often a frequency asks for lines of the next."""
    blocks = cover(product.inputs, LANES)
    whole = cut(LANES, ROWS[0])
    last = cut(product.inputs - (blocks - 1) * LANES, ROWS[0])
    parts = (blocks - 1) * whole[0] + last[0]
    return whole, last, product.blocks * parts * cover(product.tiles, CHUNK)


@inlined
def sum_frequency(
    product: Product, x: int, w: int, y: int, cuts: Any, paces: Any, ahead: Any
) -> None:
    """Gradients of the filters of one frequency; `cuts` of the images of a whole block and of the last one."""
    for block in range(product.blocks):
        filters, outputs = w + 4 * block * product.w_block, y + 4 * block * product.y_block
        lanes = lanes_before(product, block + 1)
        ahead = _images(product, x, filters, outputs, lanes, cuts, paces, ahead)


@kernel(GRADIENT)
def spectral_gradients(args: Any, worker: int) -> None:
    """Spectra of channels times conjugate ones of output gradients, summed over tiles."""
    product = product_of(args, 0, args[GRADIENT.accumulate])
    whole, last, chunks = image_cuts(product)
    x_pace, w_pace, y_pace = paces_of(product, product.inputs, chunks)
    f = following(args, -1)
    while f < args[AT.frequencies]:
        then = following(args, f)
        (x, w, y), (next_x, next_w, next_y) = places(args, f), places(args, then)
        # The order of `register_block`'s streams: two that are read, then the one that is written.
        ahead = next_x, next_y, next_w
        sum_frequency(product, x, w, y, (whole, last), (*x_pace, *y_pace, *w_pace), ahead)
        f = then
