"""The products of `gemm` by three real products in place of four (`gauss_blocks`).

    gauss_products      as `spectral_products`
    gauss_gradients     as `spectral_gradients`
    gauss_backward      as `backward_products`

Argument words are those there; of outputs there are two vectors at least, of inputs at most MOST_INPUTS.

Sums of real and imaginary parts are made of all numbers of a frequency, and sums and differences of two or three
vectors of filters (or of output gradients), in room on the stack: as many operations as one or two of the terms that
all rows, and all vectors, then save a quarter of. With few terms or rows that does not pay.

Terms are summed up to TERMS at once, of gradients TILES, so that what they are multiplied with stays in the L1 cache,
one range after the other, in an order that sizes alone decide. Tasks may run concurrently as there.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.stack import stack_room
from znnpy_kernels.simd.vectors import below, load, load_masked, store
from znnpy_kernels.spectral.exchanged_filters import filters_from
from znnpy_kernels.spectral.gauss_blocks import MOST_VECTORS, SUMS, gauss_block
from znnpy_kernels.spectral.gemm import (
    AT,
    BACKWARD,
    GRADIENT,
    following,
    paces_of,
    places,
    product_of,
)
from znnpy_kernels.spectral.product_words import Product, cut, lanes_before

APART = REGISTERS == 16
"""Whether products go this way. With 32 registers, where one loop holds three sums of each product, it was not
measured."""
LEAST = 20
"""Fewer tiles, or channels, are multiplied four times."""
TERMS = 64
"""Terms at once: their factors, of three vectors, are 12 KiB with 8 lanes."""
TILES = 32
"""Terms of gradients, whose numbers are gathered too: of 64, and 40 channels, all would leave the L1 cache."""
MOST_INPUTS = 256
_NUMBERS = TERMS * MOST_INPUTS  # in room for what is made of numbers
_FACTORS = TERMS * MOST_VECTORS * LANES
_ROOM = _NUMBERS + 2 * _FACTORS + SUMS * LANES


def takes(tiles: int, inputs: int, blocks: int) -> bool:
    """Return whether so many tiles, inputs and vectors of outputs are multiplied by the kernels here."""
    return APART and min(tiles, inputs) >= LEAST and inputs <= MOST_INPUTS and blocks > 1


@inlined
def _rooms() -> Any:
    """Return room for what is made of numbers, for factors, and for sums that wait."""
    numbers = stack_room(_ROOM)
    factors = numbers + 4 * _NUMBERS
    return numbers, factors, factors + 8 * _FACTORS


@inlined
def _pitch(product: Product) -> Any:
    """Return floats from tile to tile of what is made of numbers."""
    return cover(product.inputs, LANES) * LANES


@inlined
def _parts(count: int, blocks: int) -> Any:
    """Register blocks of `count` rows and `blocks` vectors: two at once, of an odd number the last three."""
    odd = blocks % 2
    return (blocks // 2 - odd) * cover(count, SUMS // 2) + odd * cover(count, SUMS // 3)


@inlined
def _product_chunks(product: Product) -> Any:
    """How often `_multiply_frequency` asks for lines."""
    most, parts, tile = _NUMBERS // _pitch(product), 0, 0
    groups = cover(product.tiles, most)
    for group in range(groups):
        count = cover(product.tiles - tile, groups - group)
        parts += _parts(count, product.blocks)
        tile += count
    return parts * cover(product.inputs, LANES)


@inlined
def _gradient_chunks(product: Product) -> Any:
    """How often `_sum_frequency` asks for lines."""
    most, turns, tile = _most_tiles(product), 0, 0
    groups = cover(product.tiles, most)
    for group in range(groups):
        count = cover(product.tiles - tile, groups - group)
        turns += cover(count, LANES)
        tile += count
    return turns * _parts(product.inputs, product.blocks)


@inlined
def _most_tiles(product: Product) -> Any:
    """Return of how many tiles numbers and their sums have room."""
    return min(TILES, _NUMBERS // (3 * _pitch(product)))


@inlined
def _gather(product: Product, x: int, tiles: int, room: int, apart: int) -> None:
    """Write sums of real and imaginary parts, [tile][channel], and if `apart` is not 0 these, as many floats apart."""
    pitch, whole = 4 * _pitch(product), product.inputs // LANES
    rest = below(product.inputs - whole * LANES)
    for tile in range(tiles):
        for block in range(cover(product.inputs, LANES)):
            place = x + 4 * (tile * product.x_tile + block * product.x_block)
            target = room + tile * pitch + VECTOR_BYTES * block
            # Behind the last channel may be another tile's, or nothing.
            if block < whole:
                real, imaginary = load(place), load(place + 4 * product.x_parts)
            else:
                real = load_masked(place, rest)
                imaginary = load_masked(place + 4 * product.x_parts, rest)
            store(target, real + imaginary)
            if apart:
                store(target + 4 * apart, real)
                store(target + 8 * apart, imaginary)


@inlined
def _factors(vectors: int, filters: Any, terms: int, room: int) -> None:
    """Write -(c + d), and _FACTORS floats behind d - c, of filters c + di, [term][vector][lane].

    `filters`: address, steps from term to term, from vector to vector, and to imaginary parts.
    """
    place, along, step, parts = filters
    for term in range(terms):
        for vector in range(vectors):
            here = place + 4 * (term * along + vector * step)
            real, imaginary = load(here), load(here + 4 * parts)
            target = room + VECTOR_BYTES * (term * vectors + vector)
            store(target, -(real + imaginary))
            store(target + 4 * _FACTORS, imaginary - real)


@inlined
def _multiply(
    vectors: int,
    product: Product,
    x: int,
    tiles: int,
    filters: Any,
    target: Any,
    rooms: Any,
    paces: Any,
    ahead: Any,
) -> Any:
    """Multiply `tiles` tiles with `vectors` vectors of filters; target: address and lanes of the last vector."""
    numbers, factors, waiting = rooms
    place, along, step, parts = filters
    pitch, term = _pitch(product), 0
    ranges = cover(product.inputs, TERMS)
    count, fewest, more = cut(tiles, SUMS // vectors)
    for number in range(ranges):
        # Whole blocks, but for the last one.
        blocks = cover(cover(product.inputs - term, ranges - number), LANES)
        terms = min(product.inputs - term, blocks * LANES)
        here = place + 4 * term * along
        _factors(vectors, (here, along, step, parts), terms, factors)
        tile = 0
        for part in range(count):
            rows = fewest + (1 if part < more else 0)
            real = x + 4 * (tile * product.x_tile + term // LANES * product.x_block)
            ahead = gauss_block(
                vectors,
                0,
                (numbers + 4 * (tile * pitch + term), pitch, 1, 0),
                (
                    real,
                    real + 4 * product.x_parts,
                    product.x_tile,
                    1,
                    product.x_block - LANES,
                ),
                (here, along, step, factors, factors + 4 * _FACTORS),
                (
                    target[0] + 4 * tile * product.y_tile,
                    product.y_tile,
                    product.y_block,
                    product.y_parts,
                    target[1],
                ),
                (terms, number, waiting),
                paces,
                ahead,
                rows,
            )
            tile += rows
        term += terms
    return ahead


@inlined
def _multiply_frequency(
    product: Product, x: int, w: int, y: int, paces: Any, ahead: Any, scratch: int
) -> None:
    """Products of one frequency. scratch: of exchanged filters."""
    tile, pairs, rooms = 0, product.blocks // 2, _rooms()
    groups = cover(product.tiles, _NUMBERS // _pitch(product))
    for group in range(groups):
        tiles = cover(product.tiles - tile, groups - group)
        here, there = x + 4 * tile * product.x_tile, y + 4 * tile * product.y_tile
        _gather(product, here, tiles, rooms[0], 0)
        for pair in range(pairs):
            first = 2 * pair
            target = there + 4 * first * product.y_block
            if first + 3 == product.blocks:
                filters = filters_from(3, product, w, first, scratch)
                to = target, product.lanes
                ahead = _multiply(3, product, here, tiles, filters, to, rooms, paces, ahead)
            else:
                filters = filters_from(2, product, w, first, scratch)
                to = target, lanes_before(product, first + 2)
                ahead = _multiply(2, product, here, tiles, filters, to, rooms, paces, ahead)
        tile += tiles


@inlined
def _sum(
    vectors: int,
    product: Product,
    terms: int,
    outputs: int,
    target: int,
    lanes: int,
    more: int,
    rooms: Any,
    paces: Any,
    ahead: Any,
) -> Any:
    """Sum `terms` tiles, with `vectors` vectors of outputs, for all channels; `more`: 1 adds to the target."""
    numbers, factors, waiting = rooms
    pitch, row = _pitch(product), 0
    apart = 4 * terms * pitch
    place = outputs, product.y_tile, product.y_block, product.y_parts
    _factors(vectors, place, terms, factors)
    count, fewest, longer = cut(product.inputs, SUMS // vectors)
    for part in range(count):
        rows = fewest + (1 if part < longer else 0)
        here = numbers + 4 * row
        ahead = gauss_block(
            vectors,
            1,
            (here, 1, pitch, 0),
            (here + apart, here + 2 * apart, 1, pitch, 0),
            # Conjugated: sums and differences change their roles.
            (outputs, product.y_tile, product.y_block, factors + 4 * _FACTORS, factors),
            (
                target + 4 * row * product.w_input,
                product.w_input,
                product.w_block,
                LANES,
                lanes,
            ),
            (terms, more, waiting),
            paces,
            ahead,
            rows,
        )
        row += rows
    return ahead


@inlined
def _sum_frequency(product: Product, x: int, w: int, y: int, paces: Any, ahead: Any) -> None:
    """Gradients of the filters of one frequency."""
    tile, groups, rooms = 0, cover(product.tiles, _most_tiles(product)), _rooms()
    for group in range(groups):
        terms = cover(product.tiles - tile, groups - group)
        more = 1 if group > 0 else product.accumulate
        _gather(product, x + 4 * tile * product.x_tile, terms, rooms[0], terms * _pitch(product))
        for pair in range(product.blocks // 2):
            first = 2 * pair
            outputs = y + 4 * (tile * product.y_tile + first * product.y_block)
            target = w + 4 * first * product.w_block
            if first + 3 == product.blocks:
                lanes = product.lanes
                ahead = _sum(3, product, terms, outputs, target, lanes, more, rooms, paces, ahead)
            else:
                lanes = lanes_before(product, first + 2)
                ahead = _sum(2, product, terms, outputs, target, lanes, more, rooms, paces, ahead)
        tile += terms


@inlined
def _multiply_all(args: Any, product: Product, terms: Any, scratch: int) -> None:
    """Products of all frequencies of a task; `terms`: channels that filters have at a frequency."""
    x_pace, w_pace, y_pace = paces_of(product, terms, _product_chunks(product))
    paces = (*x_pace, *w_pace, *y_pace)
    f = following(args, -1)
    while f < args[AT.frequencies]:
        then = following(args, f)
        (x, w, y), ahead = places(args, f), places(args, then)
        _multiply_frequency(product, x, w, y, paces, ahead, scratch)
        f = then


@kernel(AT)
def gauss_products(args: Any, worker: int) -> None:
    """Spectra of channels times those of filters, summed over channels."""
    product = product_of(args, 0, 0)
    _multiply_all(args, product, product.inputs, 0)


@kernel(BACKWARD)
def gauss_backward(args: Any, worker: int) -> None:
    """Spectra of gradients times exchanged, conjugate ones of filters, summed over outputs."""
    product = product_of(args, args[BACKWARD.images], 0)
    scratch = args[BACKWARD.scratch] + 4 * worker * args[BACKWARD.scratch_worker]
    _multiply_all(args, product, product.images, scratch)


@kernel(GRADIENT)
def gauss_gradients(args: Any, worker: int) -> None:
    """Spectra of channels times conjugate ones of output gradients, summed over tiles."""
    product = product_of(args, 0, args[GRADIENT.accumulate])
    x_pace, w_pace, y_pace = paces_of(product, product.inputs, _gradient_chunks(product))
    f = following(args, -1)
    while f < args[AT.frequencies]:
        then = following(args, f)
        (x, w, y), (next_x, next_w, next_y) = places(args, f), places(args, then)
        # Two streams that are read, then the one that is written.
        ahead = next_x, next_y, next_w
        _sum_frequency(product, x, w, y, (*x_pace, *y_pace, *w_pace), ahead)
        f = then
