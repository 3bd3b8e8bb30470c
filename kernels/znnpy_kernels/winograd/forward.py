"""Winograd's minimal filtering for filters of 3^3 taps: 6^3 products for 4^3 outputs, instead of 27 each.

A few tiles along z and x at a time march along y: transform their new rows along z and x, 36 columns for
each row; then column by column transform along y, multiply with the filters of its 6 points and transform
back, all in the L1 cache; then the rows of outputs along z and x. The rows wait in the L2 cache; two of six
are those of the tile before. A tile's values depend on its voxels alone, not on the tiles around it. Along
an axis with dilation d, tile t begins at voxel t // d * 4 d + t % d.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_block, source_z, source_y        voxel (0, 0, 0) of the first block of images
    inputs, source_size_*       images and voxels of the source; tiles see zeros beyond
    dilation_*                  voxels from tap to tap
    filters                     of `filters`
    target, target_block, target_z, target_y        voxel (0, 0, 0) of the first block
    blocks, target_size_*       vectors of output images and voxels of the target
    z0, z1, y0, y1              tiles of this task along z and y; all along x
    bias, slope, output, output_block, output_z, output_y, bias_gradient    see `direct.epilogue`
    scratch, scratch_worker     64-byte aligned; worker w owns `scratch_floats` from w * scratch_worker on
    before_*                    voxels before the source that the target's first ones see, all zeros

Tasks may run concurrently if their tiles are disjoint. Scratch of a worker, in this order: places of
the tiles; voxels of a row of one tile that reaches beyond the source, or its outputs; points of a column of
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
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.lines import (
    NEW,
    PLANE,
    POINTS,
    ask_to_read,
    source_depth,
    source_plane,
    target_depth,
    target_plane_of,
)
from znnpy_kernels.winograd.products import ROWS, products
from znnpy_kernels.winograd.tiles import origin, tiles_along

AT = words(
    "source source_block source_z source_y inputs source_size_z source_size_y source_size_x "
    "dilation_z dilation_y dilation_x filters target target_block target_z target_y blocks "
    "target_size_z target_size_y target_size_x z0 z1 y0 y1 bias slope:float output scratch "
    "scratch_worker before_z before_y before_x output_block output_z output_y bias_gradient",
)
CUBE = POINTS**3
GROUP = 2 * ROWS[0]  # most tiles at once
AHEAD = 1  # tiles whose voxels are asked for
PLACES_BYTES = -(-2 * 8 * GROUP // 64) * 64  # two words a tile, in whole cache lines
PLANE_BYTES = PLANE * VECTOR_BYTES
# Steps from point to point of a column and from column to column of a ring of rows, for one block of
# images: odd numbers of lines, so that they do not fall on one set of the caches.
SLOT = GROUP * VECTOR_BYTES
POINT = (GROUP | 1) * VECTOR_BYTES
COLUMN = (POINTS * GROUP | 1) * VECTOR_BYTES
POINTS_BYTES, RING_BYTES = POINTS * POINT, PLANE * COLUMN
_target_plane = target_plane_of(AT)


def scratch_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer."""
    blocks = -(-inputs // LANES), -(-outputs // LANES)
    room: int = _room(*blocks)[0]
    return (PLACES_BYTES + PLANE_BYTES + POINTS_BYTES * room + RING_BYTES * max(blocks)) // 4


def _room(inputs: int, outputs: int) -> Any:
    """Blocks of a point, and the first of its products: up to two may overwrite what they are made of."""
    return (max(inputs, outputs), 0) if outputs <= 2 else (inputs + outputs, inputs)


_compiled_room = inlined(_room)


@inlined
def _inside(first: int, end: int, dilation: int, size: int) -> Any:
    """How many of a range of tiles begin inside."""
    count = 0
    for tile in range(first, end):
        count += origin(tile, dilation) < size
    return count


@inlined
def _seen(place: int, size: int, dilation: int) -> Any:
    """The first voxel of a tile that lies in the source, and how many do; it may begin before."""
    first = max(0, cover(-place, dilation))
    return first, min(POINTS, cover(size - place, dilation)) - first


@inlined
def _copied(source: int, steps: Any, counts: Any, target: int, to: Any) -> None:
    """Vectors of a plane from place to place; pairs along z, x."""
    for z in range(counts[0]):
        for x in range(counts[1]):
            store(target + z * to[0] + x * to[1], load(source + z * steps[0] + x * steps[1]))


@inlined
def _zeros(target: int) -> None:
    for vector in range(PLANE):
        store(target + vector * VECTOR_BYTES, splat(0.0))


@inlined
def _transform(args: Any, source: int, ahead: int, place: Any, loose: int, target: int) -> None:
    """A row of voxels of one tile and block, transformed along z and x; asks for those at `ahead`.

    `place`: z, y, x of its first voxel, at `source`.
    """
    steps = 4 * args[AT.source_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    packed = POINTS * VECTOR_BYTES, VECTOR_BYTES
    first_z, seen_z = _seen(place[0], args[AT.source_size_z], args[AT.dilation_z])
    first_x, seen_x = _seen(place[2], args[AT.source_size_x], args[AT.dilation_x])
    inside = 0 <= place[1] < args[AT.source_size_y]
    whole = inside and seen_z == POINTS and seen_x == POINTS
    if not whole:
        _zeros(loose)
        if inside:
            begin = source + first_z * steps[0] + first_x * steps[1]
            to = loose + first_z * packed[0] + first_x * packed[1]
            _copied(begin, steps, (seen_z, seen_x), to, packed)
    ask_to_read(ahead + (POINTS - NEW) * steps[1], steps[0], steps[1])
    here, by = (source, steps) if whole else (loose, packed)
    source_plane(here, by[0], by[1], target, COLUMN)


@inlined
def _added(bias_gradient: int, source: int, steps: Any, counts: Any) -> None:
    """Add vectors of a plane to a bias gradient; pairs along z, x."""
    total = load(bias_gradient)
    for z in range(counts[0]):
        for x in range(counts[1]):
            total = total + load(source + z * steps[0] + x * steps[1])
    store(bias_gradient, total)


@inlined
def _inverse(args: Any, block: int, source: int, place: Any, loose: int, target: int) -> None:
    """A row of outputs of one tile and block; those outside the target are dropped."""
    steps = 4 * args[AT.target_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    value_steps = 4 * args[AT.output_z] * args[AT.dilation_z], steps[1]
    packed = NEW * VECTOR_BYTES, VECTOR_BYTES
    made = (
        min(NEW, cover(args[AT.target_size_z] - place[0], args[AT.dilation_z])),
        min(NEW, cover(args[AT.target_size_x] - place[2], args[AT.dilation_x])),
    )
    whole = made[0] == NEW and made[1] == NEW
    value = args[AT.output] + 4 * (
        block * args[AT.output_block] + place[0] * args[AT.output_z] + place[1] * args[AT.output_y]
    )
    value, values = value + place[2] * VECTOR_BYTES, loose + NEW * NEW * VECTOR_BYTES
    if args[AT.output] and not whole:
        _copied(value, value_steps, made, values, packed)
    here, by = (target, steps) if whole else (loose, packed)
    seen, seen_by = (value, value_steps) if whole else (values, packed)
    bias = args[AT.bias] + block * VECTOR_BYTES
    _target_plane(args, bias, seen, seen_by[0], source, COLUMN, here, by[0], by[1])
    if args[AT.bias_gradient]:
        _added(args[AT.bias_gradient] + block * VECTOR_BYTES, here, by, made)
    if not whole:
        _copied(loose, packed, made, target, steps)


@inlined
def _rows(args: Any, places: Any, count: int, made: int, seen: int, loose: int, slot: int) -> None:
    """Outputs of row `made` of all tiles and blocks, and into their place the voxels of row `seen`.

    Negative: none. What is read from and written to the same place follows at once.
    """
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    before = args[AT.before_z] * args[AT.source_z] + args[AT.before_x] * LANES
    before -= (seen - args[AT.before_y]) * args[AT.source_y]
    for block in range(max(inputs, outputs)):
        source = args[AT.source] + 4 * (block * args[AT.source_block] - before)
        target = args[AT.target] + 4 * (block * args[AT.target_block] + made * args[AT.target_y])
        for tile in range(count):
            z, x = places[2 * tile], places[2 * tile + 1]
            here = slot + block * RING_BYTES + tile * VECTOR_BYTES
            if made >= 0 and block < outputs:
                there = target + 4 * z * args[AT.target_z] + x * VECTOR_BYTES
                _inverse(args, block, here, (z, made, x), loose, there)
            if seen >= 0 and block < inputs:
                there = source + 4 * z * args[AT.source_z] + x * VECTOR_BYTES
                after = 2 * min(tile + AHEAD, count - 1)
                ahead = (
                    source
                    + 4 * places[after] * args[AT.source_z]
                    + places[after + 1] * VECTOR_BYTES
                )
                place = z - args[AT.before_z], seen - args[AT.before_y], x - args[AT.before_x]
                _transform(args, there, ahead, place, loose, here)


@inlined
def _multiply(args: Any, count: int, filters: int, points: int, start: int) -> None:
    """Products of the points of a column, in the place of the tiles or behind them."""
    inputs, outputs = args[AT.inputs], args[AT.blocks]
    blocks, last = cover(inputs, LANES), inputs - (cover(inputs, LANES) - 1) * LANES
    singles, pairs = cover(count, ROWS[0]), cover(count, ROWS[1])
    for point in range(POINTS):
        source = points + point * POINT
        target = source + start * POINTS_BYTES
        for _ in range(outputs // 2):
            for part in range(pairs):
                by, end = part * count // pairs, (part + 1) * count // pairs
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                products(
                    2, here, POINTS_BYTES, filters, blocks, last, there, POINTS_BYTES, end - by
                )
            filters += 2 * inputs * VECTOR_BYTES
            target += 2 * POINTS_BYTES
        if outputs % 2:
            for part in range(singles):
                by, end = part * count // singles, (part + 1) * count // singles
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                products(
                    1, here, POINTS_BYTES, filters, blocks, last, there, POINTS_BYTES, end - by
                )
            filters += inputs * VECTOR_BYTES


@inlined
def _columns(args: Any, count: int, first: int, points: int, start: int, ring: int) -> None:
    """Outputs along y of all columns of a group of tiles, in the place of their first rows."""
    for number in range(PLANE):
        here = ring + number * COLUMN
        for block in range(cover(args[AT.inputs], LANES)):
            source, target = here + block * RING_BYTES, points + block * POINTS_BYTES
            for tile in range(count):
                by = tile * VECTOR_BYTES
                source_depth(source + by, first, SLOT, target + by, POINT)
        filters = (
            args[AT.filters] + number * POINTS * args[AT.inputs] * args[AT.blocks] * VECTOR_BYTES
        )
        _multiply(args, count, filters, points, start)
        for block in range(args[AT.blocks]):
            source, target = points + (start + block) * POINTS_BYTES, here + block * RING_BYTES
            for tile in range(count):
                by = tile * VECTOR_BYTES
                target_depth(source + by, POINT, target + by, first, SLOT)


@inlined
def _march(args: Any, places: Any, count: int, scratch: int) -> None:
    """All tiles along y of a group: two of six rows are those of the tile before."""
    loose = scratch + PLACES_BYTES
    points = loose + PLANE_BYTES
    room, start = _compiled_room(cover(args[AT.inputs], LANES), args[AT.blocks])
    ring, step = points + room * POINTS_BYTES, args[AT.dilation_y]
    for lattice in range(args[AT.y0], min(args[AT.y1], args[AT.y0] + step)):
        tile, y, before = lattice, origin(lattice, step), False
        more = y < args[AT.target_size_y]
        while more or before:
            first, rows = tile // step * NEW % POINTS, NEW if before else POINTS
            for row in range(POINTS - rows, POINTS):
                seen = y + row * step if more else -1
                made = y + (row - POINTS) * step
                made = made if before and made < args[AT.target_size_y] else -1
                here = ring + (first + row) % POINTS * SLOT
                _rows(args, places, count, made, seen, loose, here)
            if more:
                _columns(args, count, first, points, start, ring)
            tile, y, before = tile + step, y + NEW * step, more
            more = more and tile < args[AT.y1] and y < args[AT.target_size_y]


@kernel(AT)
def winograd(args: Any, worker: int) -> None:
    """Correlation of images with filters of 3^3 taps, bias and transfer. Words: see the module."""
    if args[AT.bias_gradient]:
        for block in range(args[AT.blocks]):
            store(args[AT.bias_gradient] + block * VECTOR_BYTES, splat(0.0))
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    places, along_x = longs(scratch), tiles_along(args[AT.target_size_x], args[AT.dilation_x])
    total = _inside(args[AT.z0], args[AT.z1], args[AT.dilation_z], args[AT.target_size_z])
    total *= _inside(0, along_x, args[AT.dilation_x], args[AT.target_size_x])
    groups, group, count = cover(total, GROUP), 0, 0
    for number in range((args[AT.z1] - args[AT.z0]) * along_x):
        z = origin(args[AT.z0] + number // along_x, args[AT.dilation_z])
        x = origin(number % along_x, args[AT.dilation_x])
        if z < args[AT.target_size_z] and x < args[AT.target_size_x]:
            places[2 * count], places[2 * count + 1] = z, x
            count += 1
        if count and count == (group + 1) * total // groups - group * total // groups:
            _march(args, places, count, scratch)
            group, count = group + 1, 0
