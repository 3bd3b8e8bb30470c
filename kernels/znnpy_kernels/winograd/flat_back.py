"""Data and weight gradient of filters of 1 x 3 x 3 taps in one task (`both_gradients`), by whole planes (`flat`).

A group of tiles at a time: planes of the gradient, 6^2, and of the source's values, 4^2, to points; then for each point
products of both are added to the sums of all pairs of channels, and those of the gradient with the filters take the
place of the point before; planes of products become the data gradient. At the end sums become taps.

Argument words: see `both_gradients`. Tasks may run concurrently if their tiles, and `weights`, are disjoint. Scratch of
a worker, `flat_back_floats`: what a march by whole planes needs (`flat`), points of values [block][point][tile], sums
[point][channel][block of the gradient].
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.both_gradients import AT, add_point, clear, taps_of
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.flat import (
    AHEAD,
    TAPS_OF_PLANES,
    address,
    ask_to_read,
    block_bytes,
    compiled_loose_bytes,
    finish_of,
    loose_bytes,
    rows_of,
    transform_of,
)
from znnpy_kernels.winograd.forms import FORMS, NEW, POINTS, TAPS
from znnpy_kernels.winograd.gradient_lines import filter_plane
from znnpy_kernels.winograd.line_transforms import dense_value_plane_of
from znnpy_kernels.winograd.planes import (
    along_zx,
    clear_bias_gradient,
    copied,
    place,
    places_bytes,
    tiles_inside,
    zeros,
)
from znnpy_kernels.winograd.products import multiply_blocks, odd_bytes
from znnpy_kernels.winograd.tiles import origin, side_by_side

GROUP = 32  # tiles at once
PLANE = POINTS * POINTS
POINT = odd_bytes(GROUP)  # bytes from point to point: known while code is made
PLACES_BYTES = places_bytes(GROUP)
# Bytes of the sums of all pairs of channels at all points that stay in an L2 cache beside all else.
PLANE_SUMS_BYTES = 1 << 18
VALUES = PLANE * POINT  # bytes from block to block of the points of values
_FORM, _value_plane = FORMS[TAPS_OF_PLANES], dense_value_plane_of(POINT)
_transform, _finish, BLOCK = transform_of(POINT), finish_of(POINT), block_bytes(_FORM, POINT)


def plane_sums_bytes(inputs: int, outputs: int) -> int:
    """Bytes of the sums of a weight gradient between so many channels."""
    return PLANE * inputs * -(-outputs // LANES) * VECTOR_BYTES


def flat_back_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs from a gradient of `inputs` channels to one of `outputs`."""
    rows, blocks = -(-inputs // LANES), -(-outputs // LANES)
    points = max(rows, blocks) * BLOCK + blocks * VALUES
    bytes_ = PLACES_BYTES + loose_bytes(_FORM) + points + plane_sums_bytes(outputs, inputs)
    return int(bytes_) // 4


@inlined
def _filters(source: int, step: int, target: int, target_step: int, spare: int) -> None:
    filter_plane(_FORM, source, step, POINTS * step, target, target_step)


_to_taps = taps_of(_filters, TAPS * TAPS)


@inlined
def _transform_values(args: Any, places: Any, count: int, y: int, loose: int, values: int) -> None:
    """Planes of the source's values of all tiles and blocks, from row `y` on, to their points."""
    steps = 4 * args[AT.values_y] * args[AT.dilation_y], VECTOR_BYTES * args[AT.dilation_x]
    packed, advance = (NEW * VECTOR_BYTES, VECTOR_BYTES), NEW * VECTOR_BYTES
    strides = args[AT.values_block], args[AT.values_z]
    start, size_x = args[AT.values] + 4 * y * args[AT.values_y], args[AT.target_size_x]
    seen_y = min(NEW, cover(args[AT.target_size_y] - y, args[AT.dilation_y]))
    whole_y = seen_y == NEW and args[AT.dilation_x] == 1
    for block in range(args[AT.blocks]):
        into, tile = values + block * VALUES, 0
        while tile < count:
            z, x = places[2 * tile], places[2 * tile + 1]
            here, run = start + address(strides, block, z, x), 0
            seen, by = here, steps[0]
            if whole_y:
                run = side_by_side(_FORM, count - tile, size_x - x, size_x - x - NEW)
            if run <= 0:
                seen_x = min(NEW, cover(size_x - x, args[AT.dilation_x]))
                zeros(loose, NEW * NEW)
                copied(here, steps, (seen_y, seen_x), loose, packed)
                seen, by, run = loose, packed[0], 1
            tile += run
            for _ in range(run):
                ask_to_read(_FORM, here + AHEAD * advance, steps[0])
                _value_plane(_FORM, seen, by, into)
                here, seen, into = here + advance, seen + advance, into + VECTOR_BYTES


@inlined
def _march(args: Any, places: Any, count: int, scratch: int, values: int, sums: int) -> None:
    """Compute all tiles along y of a group."""
    inputs, outputs = args[AT.inputs], args[AT.blocks]
    products = scratch + compiled_loose_bytes(_FORM)
    points = products + POINT
    point_sums = args[AT.channels] * cover(inputs, LANES) * VECTOR_BYTES
    point_filters = compiled_point_bytes(inputs, outputs)
    tile, most = args[AT.y0], max(1, GROUP // count)
    # Rows of few tiles go together, as filters are read, and sums loaded and stored, with each group.
    rows = rows_of(_FORM, args, tile, most)
    while rows:
        for row in range(rows):
            y, by = origin(tile + row, args[AT.dilation_y], NEW), row * count * VECTOR_BYTES
            _transform(_FORM, args, places, count, y - args[AT.before_y], scratch, points + by)
            _transform_values(args, places, count, y, scratch, values + by)
        for number in range(PLANE):
            here = points + number * POINT
            add_point(
                args, rows * count, values + number * POINT, VALUES, here, BLOCK, sums + number * point_sums
            )  # fmt: skip
            multiply_blocks(
                1, inputs, outputs, rows * count, args[AT.filters] + number * point_filters,
                here, POINT, BLOCK, -POINT, 0, None,
            )  # fmt: skip
        for row in range(rows):
            y, by = origin(tile + row, args[AT.dilation_y], NEW), row * count * VECTOR_BYTES
            _finish(_FORM, args, places, count, y, scratch, products + by)
        tile += rows
        rows = rows_of(_FORM, args, tile, most)


@kernel(AT)
def winograd_flat_back(args: Any, worker: int) -> None:
    """Correlation of a gradient's channels with filters, and the weight gradient. Words: see the module."""
    clear_bias_gradient(args)
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    places, march = longs(scratch), scratch + PLACES_BYTES
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    values = march + compiled_loose_bytes(_FORM) + max(rows, blocks) * BLOCK
    sums = values + blocks * VALUES
    clear(sums, PLANE * args[AT.channels] * rows)
    # Groups of equal size within one, as in a forward pass.
    total, group, count = tiles_inside(_FORM, args), 0, 0
    groups = cover(total, GROUP)
    for number in range(along_zx(_FORM, args)):
        count = place(_FORM, args, number, places, count)
        if count and count == (group + 1) * total // groups - group * total // groups:
            _march(args, places, count, march, values, sums)
            group, count = group + 1, 0
    _to_taps(args, sums, 0)
