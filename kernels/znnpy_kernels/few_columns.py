"""`packed_columns` where the images on one side are so few that `tile_lanes` has made their whole spectra.

    few_products        y = x times filters, summed over images
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

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.packed_columns import FIELDS as COLUMN_FIELDS
from znnpy_kernels.packed_columns import columns_back, columns_down, parts_of, rooms
from znnpy_kernels.spectral_blocks import PAIR
from znnpy_kernels.spectral_gemm import (
    image_cuts,
    multiply_frequency,
    pace,
    product_cuts,
    sum_frequency,
)
from znnpy_kernels.tile_transforms import prepare

RUNS = 8
FIRST = len(COLUMN_FIELDS) + 1  # word of the first run
FIELDS = (
    *COLUMN_FIELDS,
    "runs",
    *(f"{word}{number}" for number in range(RUNS) for word in ("lane", "first", "tiles")),
)


@inlined
def _words(args: Any, run: int, accumulate: int) -> Any:
    """Words of `spectral_gemm` for the tiles of a run."""
    blocks, parts = (args[4] + LANES - 1) // LANES, parts_of(args[13], args[4])
    return (
        0, 0, args[1], PAIR, 0, 0, args[16], args[17], 0, 0, args[4], LANES, 0,
        args[FIRST + 3 * run + 2], args[1], blocks, LANES, parts, args[4] - (blocks - 1) * LANES,
        accumulate,
    )  # fmt: skip


@inlined
def _places(args: Any, run: int, column: int, room: int) -> Any:
    """Where x and y have the first tile of a run at the first frequency; bytes to the next frequency."""
    x = args[0] + 4 * (args[FIRST + 3 * run] + column * PAIR)
    return x, room + 4 * args[FIRST + 3 * run + 1] * args[4], 4 * args[10] * PAIR


@kernel(*FIELDS)
def few_products(args: Any, worker: int) -> None:
    """Sums over images of x times filters. Words: see the module."""
    scratch, _, room, _ = rooms(args, worker)
    prepare(scratch, 0)
    step = 4 * args[10] * args[15]
    for column in range(args[11], args[12]):
        for run in range(args[23]):
            words = _words(args, run, 0)
            two, one, chunks = product_cuts(words)
            paces = (1, 1, *pace(args[1] * args[16], chunks), 1, 1)
            (x, y, apart), w = _places(args, run, column, room), args[14] + 4 * column * args[15]
            for _ in range(args[9]):
                multiply_frequency(words, x, w, y, (two, one), paces, (x + apart, w + step, y))
                x, y, w = x + apart, y + 8 * words[17], w + step
        columns_back(args, column, args[3], args[4], args[5], room, scratch)


@kernel(*FIELDS)
def few_gradients(args: Any, worker: int) -> None:
    """Sums over tiles of x times conj(dy). Words: see the module."""
    scratch, _, room, _ = rooms(args, worker)
    prepare(scratch, 0)
    step = 4 * args[10] * args[15]
    for column in range(args[11], args[12]):
        columns_down(args, column, args[3], args[4], args[5], room, scratch)
        for run in range(args[23]):
            words = _words(args, run, 1 if run > 0 else args[20])
            two, one, chunks = image_cuts(words)
            paces = (1, 1, 1, 1, *pace(args[1] * args[16], chunks))
            (x, y, apart), w = _places(args, run, column, room), args[19] + 4 * column * args[15]
            for _ in range(args[9]):
                sum_frequency(words, x, w, y, (two, one), paces, (x + apart, y, w + step))
                x, y, w = x + apart, y + 8 * words[17], w + step
