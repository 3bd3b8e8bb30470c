"""Winograd's minimal filtering (Lavin and Gray 2015, arXiv 1509.09308), a kernel for each form of tiles (`forms`).

Of filters of 3^3 taps: 6^3 products for 4^3 outputs, instead of 27 each; of 1 x 3 x 3 taps, 6^2 for 4^2 instead of 9.

A few tiles along z and x at a time march along y: transform their new rows along z and x, 36 columns for
each row; then column by column transform along y, multiply with the filters of its 6 points and transform
back, all in the L1 cache; then the rows of outputs along z and x. The rows wait in the L2 cache; two of six
are those of the tile before. A tile's values depend on its voxels alone, not on the tiles around it. Along
an axis with dilation d, tile t begins at voxel t // d * 4 d + t % d. Along an axis of one tap all of that is 1
instead of 6 and 4: a flat tile has 6 columns of 6 points, or 36 of one.

Argument words: those of `planes`, and

    filters                     of `filters`

Tasks may run concurrently if their tiles are disjoint. Scratch of a worker, `scratch_floats`, in this order: places of
the tiles; voxels of a row of one tile that reaches beyond the source, or its outputs; points of a column of
all blocks [block][point][tile][lane], in which place their products follow; the ring of transformed rows
[block][column][row][tile][lane], whose first rows their outputs replace. Where the y axis has one tap, rows of the
ring are points (`within_ring`): products replace them, or follow in blocks of their own.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.early_requests import pieces_a_turn, turns_of
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.flat import MOST, TAPS_OF_PLANES, flat_march
from znnpy_kernels.winograd.forms import FORMS, POINTS, Triple, name_of
from znnpy_kernels.winograd.line_transforms import source_depth, target_depth
from znnpy_kernels.winograd.planes import (
    along_zx,
    clear_bias_gradient,
    compiled_loose_bytes,
    compiled_plane,
    finish,
    loose_bytes,
    place,
    places_bytes,
    plane,
    tiles_inside,
    transform,
)
from znnpy_kernels.winograd.products import (
    GROUP,
    compiled_odd_bytes,
    compiled_room,
    multiply,
    multiply_blocks,
    odd_bytes,
    room,
)
from znnpy_kernels.winograd.runs import finish_run, transform_run, whole_run
from znnpy_kernels.winograd.tiles import origin

AT = words(planes.AT, "filters")
PLACES_BYTES = places_bytes(GROUP)
# Steps from row to row, from point to point of a column and, below, from column to column of a ring of rows, for one
# block of channels: the last two odd numbers of lines, so that they do not fall on one set of the caches.
SLOT = GROUP * VECTOR_BYTES
POINT = odd_bytes(GROUP)


@inlined
def _column(form: Any) -> Any:
    return compiled_odd_bytes(form.points_y * GROUP)


@inlined
def _ring(form: Any) -> Any:
    """Bytes of a block's ring of rows."""
    return compiled_plane(form) * _column(form)


def within_ring(form: Any, outputs: int) -> Any:
    """Whether products are made of what lies in the ring, and stay there: no transform along y lies between.

    Of whole planes more than two blocks of outputs would make the ring too large for the L2 cache.
    """
    return form.points_y == 1 and (outputs <= 2 or form.points_z * form.points_x <= POINTS)


_within_ring = inlined(within_ring)


def scratch_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer with filters of so many taps."""
    form, blocks = FORMS[taps], (-(-inputs // LANES), -(-outputs // LANES))
    ring, within = plane(form) * odd_bytes(form.points_y * GROUP), within_ring(form, blocks[1])
    points = 0 if within else form.points_y * POINT * room(*blocks)[0]
    # The ring has a place for each block of inputs, into which outputs come later: as many as either needs.
    ring *= room(*blocks)[0] if within else max(blocks)
    return int(loose_bytes(form) + PLACES_BYTES + points + ring) // 4


@inlined
def _rows(
    form: Any, args: Any, places: Any, count: int, made: int, seen: int, loose: int, slot: int
) -> None:
    """Outputs of row `made` of all tiles and blocks, and into their place the voxels of row `seen`.

    Negative: none. What is read from and written to the same place follows at once.
    """
    inputs, outputs, column = cover(args[AT.inputs], LANES), args[AT.blocks], _column(form)
    behind = slot
    if _within_ring(form, outputs):
        behind += compiled_room(inputs, outputs)[1] * _ring(form)
    # The block outermost: its voxels lie together in memory.
    for block in range(max(inputs, outputs)):
        # First the outputs of a place are finished, then the new row's voxels take it: while it lies in the L1 cache.
        finished, taken = made >= 0 and block < outputs, seen >= 0 and block < inputs
        tile = 0
        while tile < count:
            by = block * _ring(form) + tile * VECTOR_BYTES
            here, there = slot + by, behind + by
            run = whole_run(form, args, places, tile, count, made, seen)
            if run > 0:
                place = places[2 * tile], places[2 * tile + 1]
                if finished:
                    finish_run(form, args, block, place, run, made, there, column)
                if taken:
                    transform_run(form, args, block, place, run, seen, loose, here, column)
                tile += run
                continue
            if finished:
                finish(form, args, block, places, tile, count, made, loose, there, column)
            if taken:
                transform(form, args, block, places, tile, count, seen, loose, here, column)
            tile += 1


@inlined
def _columns(
    form: Any,
    args: Any,
    filters: int,
    places: Any,
    count: int,
    y: int,
    first: int,
    points: int,
    start: int,
    ring: int,
) -> None:
    """Outputs along y of all columns of a group of tiles, in the place of their first rows; asks for the next ones.

    `y`: of their first row.
    """
    seen = y + form.points_y * args[AT.dilation_y] - args[AT.before_y]
    pieces = pieces_a_turn(form, args)
    many, block_step, ring_step = form.points_y, form.points_y * POINT, _ring(form)
    step = compiled_point_bytes(args[AT.inputs], args[AT.blocks])
    skipped = step - args[AT.inputs] * args[AT.blocks] * VECTOR_BYTES
    # Column by column, so that what one needs stays in the L1 cache: points of all blocks, then the filters of
    # its 6 points.
    for number in range(compiled_plane(form)):
        here = ring + number * _column(form)
        # Filters are [z][x][y], so the points of a column lie one behind the other.
        weights = filters + number * many * step
        before = number * many * turns_of(args[AT.blocks])
        early = (form, args, places, seen, y, before, pieces[0], pieces[1])
        if _within_ring(form, args[AT.blocks]):
            counts, behind = (args[AT.inputs], args[AT.blocks]), start * ring_step
            multiply_blocks(
                1, counts[0], counts[1], count, weights, here, SLOT, ring_step, behind, 0, early
            )
            continue
        for block in range(cover(args[AT.inputs], LANES)):
            source, target = here + block * ring_step, points + block * block_step
            for tile in range(count):
                by = tile * VECTOR_BYTES
                source_depth(form, source + by, first, SLOT, target + by, POINT)
        multiply(
            many, args[AT.inputs], args[AT.blocks], count, weights, points, POINT, start, skipped, early
        )  # fmt: skip
        # In the place of their first rows: what came from there is in `points` by now.
        for block in range(args[AT.blocks]):
            source, target = points + (start + block) * block_step, here + block * ring_step
            for tile in range(count):
                by = tile * VECTOR_BYTES
                target_depth(form, source + by, POINT, target + by, first, SLOT)


@inlined
def _march(form: Any, args: Any, filters: int, places: Any, count: int, scratch: int) -> None:
    """Compute all tiles along y of a group: two of six rows are those of the tile before."""
    points = scratch + compiled_loose_bytes(form)
    most, start = compiled_room(cover(args[AT.inputs], LANES), args[AT.blocks])
    ring, step = points, args[AT.dilation_y]
    if not _within_ring(form, args[AT.blocks]):
        ring += most * form.points_y * POINT
    # Each lattice of a dilated axis is a march of its own: only its own rows are shared between tiles.
    for lattice in range(args[AT.y0], min(args[AT.y1], args[AT.y0] + step)):
        tile, y, before = lattice, origin(lattice, step, form.new_y), False
        more = y < args[AT.target_size_y]
        # One turn more than tiles: the last tile's outputs are finished where the next one's rows would be
        # read.
        while more or before:
            # A tile advances by its new rows of as many slots as points; `first` is where its first row stands in
            # the ring.
            first = tile // step * form.new_y % form.points_y
            rows = form.new_y if before else form.points_y
            # After the first tile only these are new: two of six are those of the tile before.
            for row in range(form.points_y - rows, form.points_y):
                seen = y + row * step if more else -1
                # Row r of the tile before lies where row r of this one's new rows comes: its outputs leave as
                # the voxels come.
                made = y + (row - form.points_y) * step
                made = made if before and made < args[AT.target_size_y] else -1
                here = ring + (first + row) % form.points_y * SLOT
                _rows(form, args, places, count, made, seen, scratch, here)
            if more:
                _columns(form, args, filters, places, count, y, first, points, start, ring)
            tile, y, before = tile + step, y + form.new_y * step, more
            more = more and tile < args[AT.y1] and y < args[AT.target_size_y]


def _winograd(name: str, taps: Triple, march: Any, most: int) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x, and groups of so many tiles at most."""
    form, room = FORMS[taps], places_bytes(most)

    @kernel(AT, name=name)
    def winograd(args: Any, worker: int) -> None:
        """Correlation of channels with filters, bias and transfer. Words: see the module."""
        clear_bias_gradient(args)
        scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        places, total = longs(scratch), tiles_inside(form, args)
        # Of equal size within one: no group has but few tiles, for which all filters would be read.
        groups, group, count = cover(total, most), 0, 0
        for number in range(along_zx(form, args)):
            count = place(form, args, number, places, count)
            # The place comes first: only tiles inside count, and a group ends when it has its share.
            if count and count == (group + 1) * total // groups - group * total // groups:
                march(form, args, args[AT.filters], places, count, scratch + room)
                group, count = group + 1, 0

    return winograd


WINOGRAD = {taps: _winograd(f"winograd{name_of(taps)}", taps, _march, GROUP) for taps in FORMS}
"""By the taps of filters along z, y, x."""
winograd_flat = _winograd("winograd_flat", TAPS_OF_PLANES, flat_march, MOST)
"""By whole planes; scratch of a worker: `flat.flat_floats`."""
