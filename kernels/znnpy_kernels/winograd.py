"""Winograd's minimal filtering for filters of 3^3 taps: 6^3 products for 4^3 outputs, instead of 27 each.

A few tiles at a time: transform their voxels, multiply with transformed filters at each of 216 points,
transform back; all of it stays in the L2 cache. A tile's values depend on its voxels alone, not on the
tiles around it. Along an axis with dilation d, tile t begins at voxel t // d * 4 d + t % d.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_block, source_z, source_y        voxel (0, 0, 0) of the first block of images
    inputs, source_size_*       images and voxels of the source; tiles see zeros beyond
    dilation_*                  voxels from tap to tap
    filters                     of `winograd_filters`
    target, target_block, target_z, target_y        voxel (0, 0, 0) of the first block
    blocks, target_size_*       vectors of output images and voxels of the target
    z0, z1, y0, y1              tiles of this task along z and y; all along x
    bias, slope, output         see `direct_epilogue`; `output` is 0
    scratch, scratch_worker     64-byte aligned; worker w owns `scratch_floats` from w * scratch_worker on

Tasks may run concurrently if their tiles are disjoint. Scratch of a worker, in this order: places of
the tiles, voxels of one tile that reaches beyond the source, the same on the way, transformed tiles of
all blocks [point][block][tile][lane], in which place their products follow.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import longs
from znnpy_kernels.vectors import load, splat, store
from znnpy_kernels.winograd_lines import (
    NEW,
    PLANE,
    POINTS,
    VECTOR_BYTES,
    ask_to_read,
    ask_to_write,
    source_depth,
    source_plane,
    target_depth,
    target_plane_of,
)
from znnpy_kernels.winograd_products import ROWS, products

FIELDS = (
    "source", "source_block", "source_z", "source_y", "inputs",
    "source_size_z", "source_size_y", "source_size_x", "dilation_z", "dilation_y", "dilation_x",
    "filters", "target", "target_block", "target_z", "target_y", "blocks",
    "target_size_z", "target_size_y", "target_size_x", "z0", "z1", "y0", "y1",
    "bias", "slope:float", "output", "scratch", "scratch_worker",
)  # fmt: skip
CUBE = POINTS**3
GROUP = ROWS[0]  # tiles at once
AHEAD = 1  # tiles whose voxels are asked for
PLACES_BYTES = -(-3 * 8 * GROUP // 64) * 64
CUBE_BYTES = CUBE * VECTOR_BYTES
_target_plane = target_plane_of(FIELDS)


def scratch_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer."""
    room = _room(-(-inputs // LANES), -(-outputs // LANES))[0]
    return (PLACES_BYTES + 2 * CUBE_BYTES + CUBE * _point_bytes(room)) // 4


def _room(inputs: int, outputs: int) -> Any:
    """Blocks of a point, and the first of its products: up to two may overwrite what they are made of."""
    return (max(inputs, outputs), 0) if outputs <= 2 else (inputs + outputs, inputs)


def _point_bytes(blocks: int) -> int:
    """An odd number of lines from point to point, so that they do not fall on one set of the caches."""
    return (blocks * GROUP | 1) * VECTOR_BYTES


_compiled_room, _compiled_point_bytes = inlined(_room), inlined(_point_bytes)


@inlined
def _cover(whole: int, part: int) -> Any:
    return (whole + part - 1) // part


@inlined
def _origin(tile: int, dilation: int) -> int:
    return tile // dilation * NEW * dilation + tile % dilation


@inlined
def _tiles(size: int, dilation: int) -> Any:
    """Tiles along an axis; the last ones may lie outside."""
    return _cover(size, NEW * dilation) * dilation


@inlined
def _copied(source: int, steps: Any, counts: Any, target: int, to: Any) -> None:
    """Vectors from place to place; triples along z, y, x."""
    for z in range(counts[0]):
        for y in range(counts[1]):
            for x in range(counts[2]):
                here = source + z * steps[0] + y * steps[1] + x * steps[2]
                store(target + z * to[0] + y * to[1] + x * to[2], load(here))


@inlined
def _seen(place: int, size: int, dilation: int) -> Any:
    """Voxels of a tile that lie in the source."""
    return min(POINTS, _cover(size - place, dilation))


@inlined
def _forward(
    source: int, steps: Any, ahead: int, ahead_steps: Any, cube: int, target: int, point: int
) -> None:
    """The points of one tile and block; asks for the voxels at `ahead`."""
    for z in range(POINTS):
        ask_to_read(ahead + z * ahead_steps[0], ahead_steps[1], ahead_steps[2])
        here = cube + z * PLANE * VECTOR_BYTES
        source_plane(source + z * steps[0], steps[1], steps[2], here)
    for column in range(PLANE):
        here = cube + column * VECTOR_BYTES
        source_depth(here, target + column * point, PLANE * point)


@inlined
def _transform(args: Any, places: Any, count: int, scratch: int, points: int, point: int) -> None:
    """Points of all tiles and blocks of a group."""
    loose, cube = scratch + PLACES_BYTES, scratch + PLACES_BYTES + CUBE_BYTES
    packed = PLANE * VECTOR_BYTES, POINTS * VECTOR_BYTES, VECTOR_BYTES
    row = args[2], args[3], LANES
    dilation = args[8], args[9], args[10]
    steps = 4 * row[0] * dilation[0], 4 * row[1] * dilation[1], 4 * row[2] * dilation[2]
    for tile in range(count):
        z, y, x = places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]
        seen = (
            _seen(z, args[5], dilation[0]),
            _seen(y, args[6], dilation[1]),
            _seen(x, args[7], dilation[2]),
        )
        whole = seen[0] == POINTS and seen[1] == POINTS and seen[2] == POINTS
        for block in range(_cover(args[4], LANES)):
            source = args[0] + 4 * (block * args[1] + z * row[0] + y * row[1] + x * row[2])
            target = points + (block * GROUP + tile) * VECTOR_BYTES
            if not whole:
                for vector in range(CUBE):
                    store(loose + vector * VECTOR_BYTES, splat(0.0))
                _copied(source, steps, seen, loose, packed)
            here, by = (source, steps) if whole else (loose, packed)
            after = 3 * min(tile + AHEAD, count - 1)
            offset = (places[after] - z) * row[0] + (places[after + 1] - y) * row[1]
            ahead = source + 4 * (offset + (places[after + 2] - x) * row[2])
            _forward(here, by, ahead, steps, cube, target, point)


@inlined
def _multiply(args: Any, count: int, points: int, start: int, point: int) -> None:
    """Products of all points, in the place of the tiles or behind them."""
    inputs, outputs = args[4], args[16]
    blocks, last = _cover(inputs, LANES), inputs - (_cover(inputs, LANES) - 1) * LANES
    group = GROUP * VECTOR_BYTES
    for number in range(CUBE):
        here = points + number * point
        filters = args[11] + number * inputs * outputs * VECTOR_BYTES
        for pair in range(outputs // 2):
            target, tile = here + (start + 2 * pair) * group, 0
            while tile < count:
                rows, by = min(ROWS[1], count - tile), tile * VECTOR_BYTES
                products(2, here + by, group, filters, blocks, last, target + by, group, rows)
                tile += rows
            filters += 2 * inputs * VECTOR_BYTES
        if outputs % 2:
            target = here + (start + outputs - 1) * group
            products(1, here, group, filters, blocks, last, target, group, count)


@inlined
def _inverse(args: Any, places: Any, count: int, scratch: int, points: int, point: int) -> None:
    """Outputs of all tiles and blocks of a group; those outside the target are dropped."""
    loose, cube = scratch + PLACES_BYTES, scratch + PLACES_BYTES + CUBE_BYTES
    packed = NEW * NEW * VECTOR_BYTES, NEW * VECTOR_BYTES, VECTOR_BYTES
    row = args[14], args[15], LANES
    steps = 4 * row[0] * args[8], 4 * row[1] * args[9], 4 * row[2] * args[10]
    for tile in range(count):
        z, y, x = places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]
        made = (
            min(NEW, _cover(args[17] - z, args[8])),
            min(NEW, _cover(args[18] - y, args[9])),
            min(NEW, _cover(args[19] - x, args[10])),
        )
        whole = made[1] == NEW and made[2] == NEW
        for block in range(args[16]):
            source = points + (block * GROUP + tile) * VECTOR_BYTES
            target = args[12] + 4 * (block * args[13] + z * row[0] + y * row[1] + x * row[2])
            for plane in range(made[0]):
                ask_to_write(target + plane * steps[0], steps[1], steps[2])
            for column in range(PLANE):
                here = source + column * point
                target_depth(here, PLANE * point, cube + column * VECTOR_BYTES)
            there, by = (target, steps) if whole else (loose, packed)
            for plane in range(made[0]):
                here = cube + plane * PLANE * VECTOR_BYTES
                bias = args[24] + block * VECTOR_BYTES
                _target_plane(args, bias, here, there + plane * by[0], by[1], by[2])
            if not whole:
                _copied(loose, packed, made, target, steps)


@kernel(*FIELDS)
def winograd(args: Any, worker: int) -> None:
    """Correlation of images with filters of 3^3 taps, bias and transfer. Words: see the module."""
    scratch = args[27] + 4 * worker * args[28]
    places, points = longs(scratch), scratch + PLACES_BYTES + 2 * CUBE_BYTES
    room, start = _compiled_room(_cover(args[4], LANES), args[16])
    point = _compiled_point_bytes(room)
    along_y, along_x = args[23] - args[22], _tiles(args[19], args[10])
    number, total = 0, (args[21] - args[20]) * along_y * along_x
    while number < total:
        count = 0
        while count < GROUP and number < total:
            rest, tile = number // along_x, number % along_x
            z = _origin(args[20] + rest // along_y, args[8])
            y, x = _origin(args[22] + rest % along_y, args[9]), _origin(tile, args[10])
            number += 1
            if z < args[17] and y < args[18] and x < args[19]:
                places[3 * count], places[3 * count + 1], places[3 * count + 2] = z, y, x
                count += 1
        if count:
            _transform(args, places, count, scratch, points, point)
            _multiply(args, count, points, start, point)
            made = points + start * GROUP * VECTOR_BYTES
            _inverse(args, places, count, scratch, made, point)
