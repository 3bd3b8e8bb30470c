"""Forward pass of filters of 3^3 taps with strides of two, and of 1 x 3 x 3, by minimal filtering (`strided_lines`).

Tiles of four outputs along each strided axis, of some rows: their voxels are transformed line by line; then products
follow place by place, each of which sums those of voxels of even and of odd numbers along all axes, and of all inputs,
in registers; then sums become outputs. A tile's values depend on its voxels alone, not on the tiles around it.

Argument words: those of `planes`, where z0..z1 and y0..y1 are tiles, `dilation_*` are not read, and there is no
data gradient (`output`, `bias_gradient`); and

    filters                     of `winograd_strided_filters`, whose words and points are those of `filters`
    block0, block1              vectors of output channels of this task, an even one first

Tasks may run concurrently if their tiles or blocks are disjoint. Scratch of a worker, `strided_floats`: places of the
tiles; addresses of what is summed at a place; a tile that reaches beyond the source, or outputs of one that reaches
beyond the target; lines of a tile; voxels at the places [place][block][tile][lane]; sums [block][place][tile][lane].
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import filters, planes
from znnpy_kernels.winograd.filters import compiled_point_bytes, transformed_of, writing_of
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.line_transforms import asking_for_lines_of, target_plane_of
from znnpy_kernels.winograd.planes import copied
from znnpy_kernels.winograd.products import (
    ROWS,
    compiled_odd_bytes,
    odd_bytes,
)
from znnpy_kernels.winograd.strided_lines import (
    ALONE,
    INNER,
    POINTS,
    STRIDED_FACTORS,
    STRIDED_FORMS,
    along_target,
    filter_line,
    target_line,
)
from znnpy_kernels.winograd.strided_products import sum_terms
from znnpy_kernels.winograd.strided_tiles import fetched, seen_along, to_source_points

AT = words(planes.AT, "filters block0 block1")
# Tiles at once: register blocks of products, and the fewer filters are read the more there are. Cubes have 729 vectors
# of voxels each, which caches hold of so many.
FLAT_GROUP, CUBE_GROUP = 2 * ROWS[0], ROWS[0]


def group_of(form: Any) -> Any:
    """Return how many tiles are computed at once, at most."""
    return FLAT_GROUP if form.points_z == 1 else CUBE_GROUP


# Bytes from sums of a place to those of the next: known while code is made.
_FLAT_POINT, _CUBE_POINT = odd_bytes(FLAT_GROUP), odd_bytes(CUBE_GROUP)


def point_bytes_of(form: Any) -> Any:
    return _FLAT_POINT if form.points_z == 1 else _CUBE_POINT


_group, _point = inlined(group_of), inlined(point_bytes_of)
PLACES_BYTES, TABLE_BYTES = -(-3 * 8 * FLAT_GROUP // 64) * 64, 3 * 64
AHEAD = 2  # tiles ahead whose lines of outputs are asked for
_ask_to_write = asking_for_lines_of(write=True)
_target_plane = target_plane_of(AT, (1, 2), _FLAT_POINT, target_line)
_near_plane = target_plane_of(AT, (1, 2), VECTOR_BYTES, target_line)


def _tile_vectors(form: Any) -> Any:
    return (2 * form.points_z - 1) * (2 * form.points_y - 1) * (2 * form.points_x - 1)


def _places(form: Any) -> Any:
    return form.points_z * form.points_y * form.points_x


def _planes_vectors(form: Any) -> Any:
    """Vectors of sums of a tile that are outputs along z already."""
    return form.new_z * form.points_y * form.points_x


_vectors, _count = inlined(_tile_vectors), inlined(_places)
_planes = inlined(_planes_vectors)


def strided_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs between so many channels."""
    form = STRIDED_FORMS[taps]
    vectors, blocks = _tile_vectors(form), -(-inputs // LANES)
    points = vectors * odd_bytes(blocks * group_of(form))
    sums = -(-outputs // LANES) * _places(form) * point_bytes_of(form)
    # Twice: a tile that is copied between zeros, and its lines.
    tile = (2 * vectors + _planes_vectors(form)) * VECTOR_BYTES
    return int(PLACES_BYTES + TABLE_BYTES + tile + points + sums) // 4


@inlined
def _note(form: Any, args: Any, first: int, count: int, places: Any) -> None:
    """Note the first outputs z, y, x of some of the task's tiles, which are numbered along x first."""
    along_x = cover(args[AT.target_size_x], form.new_x)
    along_y = args[AT.y1] - args[AT.y0]
    for tile in range(count):
        number = first + tile
        row = number // along_x
        places[3 * tile] = (args[AT.z0] + row // along_y) * form.new_z
        places[3 * tile + 1] = (args[AT.y0] + row % along_y) * form.new_y
        places[3 * tile + 2] = number % along_x * form.new_x


@inlined
def _begin(place: int, points: int, before: int) -> Any:
    """Return the first voxel that a tile sees along an axis, whose first output is given."""
    return (2 * place if points > 1 else place) - before


@inlined
def _to_points(
    form: Any, args: Any, places: Any, count: int, loose: int, points: int, slot: int
) -> None:
    """Voxels of all tiles and blocks to their places."""
    deep, high, wide = (
        seen_along(form.points_z),
        seen_along(form.points_y),
        seen_along(form.points_x),
    )
    steps = 4 * args[AT.source_z], 4 * args[AT.source_y]
    sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
    lines = loose + _vectors(form) * VECTOR_BYTES
    # The block outermost: its voxels lie together in memory.
    for block in range(cover(args[AT.inputs], LANES)):
        for tile in range(count):
            z = _begin(places[3 * tile], form.points_z, args[AT.before_z])
            y = _begin(places[3 * tile + 1], form.points_y, args[AT.before_y])
            x = _begin(places[3 * tile + 2], form.points_x, args[AT.before_x])
            here = args[AT.source] + 4 * block * args[AT.source_block]
            here += z * steps[0] + y * steps[1] + x * VECTOR_BYTES
            seen = fetched((z, y, x), (deep, high, wide), sizes, here, steps, loose)
            into = points + (block * _group(form) + tile) * VECTOR_BYTES
            to_source_points(form, seen[0], (seen[1], seen[2]), lines, into, slot)


@inlined
def _twice(points: int, place: int) -> Any:
    """Whether voxels of odd numbers have a place of this number along an axis, too: 1, else 0."""
    return 1 if points > 1 and place != ALONE else 0


@inlined
def _terms(
    form: Any, place: Any, points: int, slot: int, weights: int, step: int, table: Any
) -> Any:
    """Note the addresses of voxels and filters whose products are summed at a place z, y, x; return how many."""
    high, wide, count = seen_along(form.points_y), seen_along(form.points_x), 0
    taps = form.points_y + 1 if form.points_y > 1 else 1
    across = form.points_x + 1 if form.points_x > 1 else 1
    for odd_z in range(1 + _twice(form.points_z, place[0])):
        for odd_y in range(1 + _twice(form.points_y, place[1])):
            for odd_x in range(1 + _twice(form.points_x, place[2])):
                z, y = place[0] + POINTS * odd_z, place[1] + POINTS * odd_y
                x = place[2] + POINTS * odd_x
                table[2 * count] = points + ((z * high + y) * wide + x) * slot
                by_z = INNER if odd_z else place[0]
                by_y = INNER if odd_y else place[1]
                by_x = INNER if odd_x else place[2]
                # Filters are [z][x][y].
                table[2 * count + 1] = weights + ((by_z * across + by_x) * taps + by_y) * step
                count += 1
    return count


@inlined
def _multiplied(
    form: Any, args: Any, count: int, points: int, slot: int, table: int, sums: int
) -> None:
    """Products of all places."""
    step = compiled_point_bytes(args[AT.inputs], args[AT.blocks])
    # Filters of a point lie by pairs of vectors of outputs: those before the task's own, and all others.
    weights = args[AT.filters] + args[AT.block0] * args[AT.inputs] * VECTOR_BYTES
    inputs, outputs = args[AT.inputs], args[AT.block1] - args[AT.block0]
    source_block, target_block = _group(form) * VECTOR_BYTES, _count(form) * _point(form)
    target, entries = sums, longs(table)
    for z in range(form.points_z):
        for x in range(form.points_x):
            for y in range(form.points_y):
                terms = _terms(form, (z, y, x), points, slot, weights, step, entries)
                sum_terms(table, terms, inputs, outputs, source_block, target, target_block, count)
                target += _point(form)


@inlined
def _finish(form: Any, args: Any, places: Any, count: int, loose: int, sums: int) -> None:
    """Outputs of all tiles and blocks; those outside the target are dropped."""
    steps = 4 * args[AT.target_z], 4 * args[AT.target_y]
    packed = form.new_y * form.new_x * VECTOR_BYTES, form.new_x * VECTOR_BYTES
    flat = form.points_y * form.points_x
    made_planes = loose + _vectors(form) * VECTOR_BYTES
    for block in range(args[AT.block0], args[AT.block1]):
        bias = args[AT.bias] + block * VECTOR_BYTES
        for tile in range(count):
            z, y, x = places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]
            target = args[AT.target] + 4 * block * args[AT.target_block]
            target += z * steps[0] + y * steps[1] + x * VECTOR_BYTES
            made_z = min(form.new_z, args[AT.target_size_z] - z)
            made_y = min(form.new_y, args[AT.target_size_y] - y)
            made_x = min(form.new_x, args[AT.target_size_x] - x)
            whole = made_y == form.new_y and made_x == form.new_x
            own = sums + (block - args[AT.block0]) * _count(form) * _point(form)
            own += tile * VECTOR_BYTES
            if form.points_z > 1:
                for number in range(flat):
                    into = made_planes + number * VECTOR_BYTES
                    along_target(
                        own + number * _point(form), flat * _point(form), into, flat * VECTOR_BYTES
                    )
            for plane in range(made_z):
                there = target + plane * steps[0]
                by, to = (steps[1], VECTOR_BYTES), (packed[1], VECTOR_BYTES)
                if not whole and args[AT.accumulate]:
                    copied(there, by, (made_y, made_x), loose, to)
                here, row = (there, steps[1]) if whole else (loose, packed[1])
                _ask_to_write(form, there + AHEAD * form.new_x * VECTOR_BYTES, steps[1])
                if form.points_z > 1:
                    seen = made_planes + plane * flat * VECTOR_BYTES
                    _near_plane(form, args, bias, 0, 0, seen, VECTOR_BYTES, here, row, VECTOR_BYTES)
                else:
                    _target_plane(
                        form, args, bias, 0, 0, own, _point(form), here, row, VECTOR_BYTES
                    )
                if not whole:
                    copied(loose, to, (made_y, made_x), there, by)


@inlined
def _groups(form: Any, args: Any, scratch: int) -> None:
    """Compute the tiles of a task, some at a time."""
    places, table = longs(scratch), scratch + PLACES_BYTES
    loose = table + TABLE_BYTES
    points = loose + (2 * _vectors(form) + _planes(form)) * VECTOR_BYTES
    slot = compiled_odd_bytes(cover(args[AT.inputs], LANES) * _group(form))
    sums = points + _vectors(form) * slot
    along_x = cover(args[AT.target_size_x], form.new_x)
    total = (args[AT.z1] - args[AT.z0]) * (args[AT.y1] - args[AT.y0]) * along_x
    groups = cover(total, _group(form))
    for group in range(groups):
        first, end = group * total // groups, (group + 1) * total // groups
        _note(form, args, first, end - first, places)
        _to_points(form, args, places, end - first, loose, points, slot)
        _multiplied(form, args, end - first, points, slot, table, sums)
        _finish(form, args, places, end - first, loose, sums)


def _strided(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps."""
    form = STRIDED_FORMS[taps]

    @kernel(AT, name=f"winograd_strided{name_of(taps)}")
    def winograd_strided(args: Any, worker: int) -> None:
        """Compute the outputs of some tiles and blocks. Words: see the module."""
        _groups(form, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_strided


_write = writing_of(transformed_of(filter_line, STRIDED_FACTORS))


def _filters(taps: Triple) -> Kernel:
    """Return the kernel that transforms filters of so many taps."""
    form = FORMS[taps]

    @kernel(filters.AT, name=f"winograd_strided_filters{name_of(taps)}")
    def winograd_strided_filters(args: Any, worker: int) -> None:
        """Write the points of some vectors of filters. Words: those of `filters`."""
        _write(form, args, worker)

    return winograd_strided_filters


STRIDED = {taps: _strided(taps) for taps in STRIDED_FORMS}
STRIDED_FILTERS = {taps: _filters(taps) for taps in STRIDED_FORMS}
"""Kernels of the forward pass and of its filters, by the taps of filters along z, y, x."""
