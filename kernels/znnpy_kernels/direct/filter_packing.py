"""Packs filters as users have them, wherever they lie in memory: for the forward pass, a vector of outputs a tap."""

from __future__ import annotations

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, store_tile, transpose_tile


@inlined
def pack_taps(source: int, row: int, rows: int, target: int, step: int, taps: int) -> None:
    """Write the taps of one input, of up to LANES outputs, as vectors of outputs; lanes beyond become 0.

    `source`: address of the first output's taps, `row`: bytes from one output to the next; `step`: bytes from one tap
    to the next in the target.
    """
    border = scratch_tile()
    for tap in range(0, taps, LANES):
        # The last whole tile ends with the last tap: what both hold is written twice.
        first = max(0, min(tap, taps - LANES))
        here, there = source + 4 * first, target + first * step
        if rows == LANES and taps >= LANES:
            transpose_tile(here, row, there, step)
        else:
            count = min(LANES, taps - first)
            load_tile(here, row, rows, count, border)
            transpose_tile(border, VECTOR_BYTES, border, VECTOR_BYTES)
            store_tile(border, there, step, count, LANES)


@inlined
def pack_block(
    source: int, row: int, column: int, outputs: int, inputs: int, taps: int, target: int
) -> None:
    """Write the piece between an output group, of up to two vectors, and a block of inputs.

    `source`: address of its first filter; `row`, `column`: bytes from one output, and from one input, to the next.
    """
    width = (outputs + LANES - 1) // LANES * LANES
    for low in range(0, outputs, LANES):
        rows = min(LANES, outputs - low)
        for i in range(inputs):
            pack_taps(
                source + low * row + i * column,
                row,
                rows,
                target + 4 * (i * width + low),
                4 * inputs * width,
                taps,
            )


@native("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def pack(
    source: int,
    row: int,
    column: int,
    target: int,
    outputs: int,
    inputs: int,
    taps: int,
    source_lanes: int,
) -> None:
    """Write float32 filters packed: `row`, `column` bytes from one output, and from one input, to the next.

    `source`: address of the first tap of the first filter; taps of a filter are contiguous. `target`: of
    `packed_size` floats, of which all are set; inputs lie in blocks of `source_lanes`.
    """
    for first in range(0, outputs, 2 * LANES):
        count = min(2 * LANES, outputs - first)
        width = (count + LANES - 1) // LANES * LANES
        for low in range(0, inputs, source_lanes):
            pack_block(
                source + first * row + low * column,
                row,
                column,
                count,
                min(source_lanes, inputs - low),
                taps,
                target + 4 * taps * (first * inputs + low * width),
            )
