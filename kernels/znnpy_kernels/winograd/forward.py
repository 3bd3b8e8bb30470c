"""Winograd's minimal filtering for filters of 3^3 taps: 6^3 products for 4^3 outputs, instead of 27 each.

A few tiles along z and x at a time march along y: transform their new rows along z and x, 36 columns for
each row; then column by column transform along y, multiply with the filters of its 6 points and transform
back, all in the L1 cache; then the rows of outputs along z and x. The rows wait in the L2 cache; two of six
are those of the tile before. A tile's values depend on its voxels alone, not on the tiles around it. Along
an axis with dilation d, tile t begins at voxel t // d * 4 d + t % d.

Argument words: those of `planes`, and

    filters                     of `filters`

Tasks may run concurrently if their tiles are disjoint. Scratch of a worker, `scratch_floats`, in this order: voxels
of a row of one tile that reaches beyond the source, or its outputs; places of the tiles; points of a column of
all blocks [block][point][tile][lane], in which place their products follow; the ring of transformed rows
[block][column][row][tile][lane], whose first rows their outputs replace.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.line_transforms import NEW, PLANE, POINTS, source_depth, target_depth
from znnpy_kernels.winograd.planes import (
    LOOSE_BYTES,
    along_zx,
    clear_bias_gradient,
    finish,
    place,
    places_bytes,
    tiles_inside,
    transform,
)
from znnpy_kernels.winograd.products import ROWS, compiled_room, multiply, odd_bytes, room
from znnpy_kernels.winograd.tiles import origin

AT = words(planes.AT, "filters")
# Points of a filter of 3^3 taps.
CUBE = POINTS**3
# Two register blocks of products: with more tiles, points and filters of a column leave the L1 cache
# (docs/design/winograd.md, *One pass*); with fewer, filters are read more often.
GROUP = 2 * ROWS[0]  # most tiles at once
PLACES_BYTES = places_bytes(GROUP)
# Steps from row to row, from point to point of a column and from column to column of a ring of rows, for one
# block of channels: the last two odd numbers of lines, so that they do not fall on one set of the caches.
SLOT = GROUP * VECTOR_BYTES
POINT = odd_bytes(GROUP)
COLUMN = odd_bytes(POINTS * GROUP)
POINTS_BYTES, RING_BYTES = POINTS * POINT, PLANE * COLUMN


def scratch_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer."""
    blocks = -(-inputs // LANES), -(-outputs // LANES)
    most: int = room(*blocks)[0]
    # The ring has a place for each block of inputs, into which outputs come later: as many as either needs.
    return (LOOSE_BYTES + PLACES_BYTES + POINTS_BYTES * most + RING_BYTES * max(blocks)) // 4


@inlined
def _rows(args: Any, places: Any, count: int, made: int, seen: int, loose: int, slot: int) -> None:
    """Outputs of row `made` of all tiles and blocks, and into their place the voxels of row `seen`.

    Negative: none. What is read from and written to the same place follows at once.
    """
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    # The block outermost: its voxels lie together in memory.
    for block in range(max(inputs, outputs)):
        for tile in range(count):
            here = slot + block * RING_BYTES + tile * VECTOR_BYTES
            # First the outputs of this place are finished, then the new row's voxels take it: while it lies in
            # the L1 cache.
            if made >= 0 and block < outputs:
                finish(args, block, places, tile, made, loose, here, COLUMN)
            if seen >= 0 and block < inputs:
                transform(args, block, places, tile, count, seen, loose, here, COLUMN)


@inlined
def _columns(args: Any, count: int, first: int, points: int, start: int, ring: int) -> None:
    """Outputs along y of all columns of a group of tiles, in the place of their first rows."""
    # Column by column, so that what one needs stays in the L1 cache: points of all blocks, then the filters of
    # its 6 points.
    for number in range(PLANE):
        here = ring + number * COLUMN
        for block in range(cover(args[AT.inputs], LANES)):
            source, target = here + block * RING_BYTES, points + block * POINTS_BYTES
            for tile in range(count):
                by = tile * VECTOR_BYTES
                source_depth(source + by, first, SLOT, target + by, POINT)
        filters = (
            # Filters are [z][x][y], so the POINTS of a column lie one behind the other.
            args[AT.filters] + number * POINTS * args[AT.inputs] * args[AT.blocks] * VECTOR_BYTES
        )
        multiply(args[AT.inputs], args[AT.blocks], count, filters, points, POINT, start)
        # In the place of their first rows: what came from there is in `points` by now.
        for block in range(args[AT.blocks]):
            source, target = points + (start + block) * POINTS_BYTES, here + block * RING_BYTES
            for tile in range(count):
                by = tile * VECTOR_BYTES
                target_depth(source + by, POINT, target + by, first, SLOT)


@inlined
def _march(args: Any, places: Any, count: int, scratch: int) -> None:
    """Compute all tiles along y of a group: two of six rows are those of the tile before."""
    points = scratch + LOOSE_BYTES + PLACES_BYTES
    most, start = compiled_room(cover(args[AT.inputs], LANES), args[AT.blocks])
    ring, step = points + most * POINTS_BYTES, args[AT.dilation_y]
    # Each lattice of a dilated axis is a march of its own: only its own rows are shared between tiles.
    for lattice in range(args[AT.y0], min(args[AT.y1], args[AT.y0] + step)):
        tile, y, before = lattice, origin(lattice, step), False
        more = y < args[AT.target_size_y]
        # One turn more than tiles: the last tile's outputs are finished where the next one's rows would be
        # read.
        while more or before:
            # A tile advances by NEW of POINTS slots; `first` is where its first row stands in the ring.
            first, rows = tile // step * NEW % POINTS, NEW if before else POINTS
            # After the first tile only NEW rows are new: two of six are those of the tile before.
            for row in range(POINTS - rows, POINTS):
                seen = y + row * step if more else -1
                # Row r of the tile before lies where row r of this one's new rows comes: its outputs leave as
                # the voxels come.
                made = y + (row - POINTS) * step
                made = made if before and made < args[AT.target_size_y] else -1
                here = ring + (first + row) % POINTS * SLOT
                _rows(args, places, count, made, seen, scratch, here)
            if more:
                _columns(args, count, first, points, start, ring)
            tile, y, before = tile + step, y + NEW * step, more
            more = more and tile < args[AT.y1] and y < args[AT.target_size_y]


@kernel(AT)
def winograd(args: Any, worker: int) -> None:
    """Correlation of channels with filters of 3^3 taps, bias and transfer. Words: see the module."""
    clear_bias_gradient(args)
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    places, total = longs(scratch + LOOSE_BYTES), tiles_inside(args)
    # Of equal size within one: no group has but few tiles, for which all filters would be read.
    groups, group, count = cover(total, GROUP), 0, 0
    for number in range(along_zx(args)):
        count = place(args, number, places, count)
        # The place comes first: only tiles inside count, and a group ends when it has its share.
        if count and count == (group + 1) * total // groups - group * total // groups:
            _march(args, places, count, scratch)
            group, count = group + 1, 0
