"""Products of columns where one side has few channels, whose whole spectra `few_channel_tiles` has made.

    few_products        y = x times filters, summed over channels
    few_gradients       filter gradients = x times conj(dy), summed over tiles

Argument words as in `packed_columns`, but

    x, x_images                 whole spectra: [block of lanes][frequency][re, im][lane]
    x_points, target, exchanged 0
    runs                        how many runs of tiles the row holds, at most RUNS
    lane0, first0, tiles0 ..    of each run: floats from x to its first lane; its first tile in the row;
                                tiles, which lie `x_images` lanes apart

Runs are added in order. Tasks over disjoint columns may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.gemm import (
    image_cuts,
    multiply_frequency,
    pace,
    product_cuts,
    sum_frequency,
)
from znnpy_kernels.spectral.packed_columns import AT as COLUMNS
from znnpy_kernels.spectral.packed_columns import columns_back, columns_down, parts_of, rooms
from znnpy_kernels.spectral.product_words import Product
from znnpy_kernels.spectral.register_blocks import PAIR
from znnpy_kernels.spectral.tile_transforms import prepare

# A bound on the words, which are fixed: the engine makes groups whose tiles lie in no more runs.
RUNS = 8
RUN = words("lane first tiles")
AT = words(COLUMNS, "runs", *(f"{word}{run}" for run in range(RUNS) for word in RUN._fields))


@inlined
def _run_word(args: Any, run: int, word: int) -> Any:
    """Return what the words say of one run: `word` of `RUN`."""
    return args[AT.lane0 + len(RUN) * run + word]


@inlined
def _product(args: Any, run: int, accumulate: Any) -> Product:
    """Products of one frequency with the tiles of a run."""
    images = args[AT.y_images]
    blocks = cover(images, LANES)
    return Product(
        x_tile=args[AT.x_images],
        x_block=PAIR,
        x_parts=LANES,
        w_input=args[AT.w_input],
        w_block=args[AT.w_block],
        y_tile=images,
        y_block=LANES,
        y_parts=parts_of(args[AT.tiles], images),
        tiles=_run_word(args, run, RUN.tiles),
        inputs=args[AT.x_images],
        blocks=blocks,
        lanes=images - (blocks - 1) * LANES,
        images=0,
        accumulate=accumulate,
    )


@inlined
def _places(args: Any, run: int, column: int, room: int) -> Any:
    """Return where x and y have the first tile of a run at the first frequency, and bytes to the next frequency."""
    x = args[AT.x] + 4 * (_run_word(args, run, RUN.lane) + column * PAIR)
    y = room + 4 * _run_word(args, run, RUN.first) * args[AT.y_images]
    return x, y, 4 * args[AT.columns] * PAIR


@kernel(AT)
def few_products(args: Any, worker: int) -> None:
    """Sums over channels of x times filters. Words: see the module."""
    scratch, _, room, _ = rooms(args, worker)
    prepare(scratch, 0)
    step = 4 * args[AT.columns] * args[AT.w_frequency]
    for column in range(args[AT.column0], args[AT.column1]):
        # In order, so the sums have one order.
        for run in range(args[AT.runs]):
            product = _product(args, run, 0)
            many, one, chunks = product_cuts(product)
            # Only the filters are asked for ahead: x and y are in caches, and a pace of 1 byte asks for one
            # line.
            paces = (1, 1, *pace(args[AT.x_images] * args[AT.w_input], chunks), 1, 1)
            x, y, apart = _places(args, run, column, room)
            w = args[AT.w] + 4 * column * args[AT.w_frequency]
            for _ in range(args[AT.points]):
                ahead = x + apart, w + step, y
                multiply_frequency(product, x, w, y, (many, one), paces, ahead, 0)
                x, y, w = x + apart, y + 8 * product.y_parts, w + step
        columns_back(args, column, args[AT.y], args[AT.y_images], args[AT.y_points], room, scratch)


@kernel(AT)
def few_gradients(args: Any, worker: int) -> None:
    """Sums over tiles of x times conj(dy). Words: see the module."""
    scratch, _, room, _ = rooms(args, worker)
    prepare(scratch, 0)
    step = 4 * args[AT.columns] * args[AT.w_frequency]
    for column in range(args[AT.column0], args[AT.column1]):
        columns_down(args, column, args[AT.y], args[AT.y_images], args[AT.y_points], room, scratch)
        for run in range(args[AT.runs]):
            # The first run stores unless the task adds to an earlier row; the others add to it.
            product = _product(args, run, 1 if run > 0 else args[AT.accumulate])
            whole, last, chunks = image_cuts(product)
            paces = (1, 1, 1, 1, *pace(args[AT.x_images] * args[AT.w_input], chunks))
            x, y, apart = _places(args, run, column, room)
            w = args[AT.gradient] + 4 * column * args[AT.w_frequency]
            for _ in range(args[AT.points]):
                sum_frequency(product, x, w, y, (whole, last), paces, (x + apart, y, w + step))
                x, y, w = x + apart, y + 8 * product.y_parts, w + step
