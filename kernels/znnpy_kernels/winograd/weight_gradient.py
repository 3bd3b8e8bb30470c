"""Weight gradients by Winograd's minimal filtering: of 3^3 filters 6^3 products of 6^3 voxels and 4^3 gradients.

A kernel for each form of tiles (`forms`): along an axis of one tap a tile is one voxel and one gradient, and one point.

A group of tiles at a time: transform planes of the source and of the output gradient; then for each
column of points transform along z, and add the products of all tiles to the sums of each point, while the
next group's voxels are asked for. At the end the sums of each pair of channels become taps. Along an axis
with dilation d, tile t begins at voxel t // d * 4 d + t % d of both.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_block, source_z, source_y            voxel (0, 0, 0) of the first block of channels
    inputs, source_size_*                               images and voxels of the source
    dilation_*                                          voxels from tap to tap
    gradient, gradient_block, gradient_z, gradient_y    voxel (0, 0, 0) of the first block
    blocks, gradient_size_*                             vectors of output channels, and voxels
    z0, z1, y0, y1              tiles of this task along z and y; all along x
    target                      packed filter gradients of all channels, overwritten
    scratch, scratch_worker     64-byte aligned; worker w owns `gradient_floats` from w * scratch_worker on

Tasks with different targets may run concurrently. The result depends on which tiles a task takes. Scratch
of a worker, in this order: places of the tiles of two groups, voxels of one tile that reaches beyond its images,
planes of a group [block][column][z][tile], a column of points [z][block][tile] if z is transformed, all sums
[column][z][input][block].

Transforms of Winograd's minimal filtering for filter gradients: six voxels, four gradients, three taps.

    dg = G' [(A dy) * (B' d)]       the transpose of `line_transforms`, by the filter

Vectors hold LANES channels. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.early_requests import NEAR_BYTES, TURN, ask_for_tiles
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.gradient_lines import (
    filter_depth,
    filter_plane,
    gradient_depth,
    gradient_plane,
    source_depth,
)
from znnpy_kernels.winograd.line_transforms import asking_of, source_plane_of
from znnpy_kernels.winograd.products import IMAGES, add_products, compiled_odd_bytes, odd_bytes
from znnpy_kernels.winograd.tiles import origin, tiles_along

AT = words(
    "source source_block source_z source_y inputs source_size_z source_size_y source_size_x "
    "dilation_z dilation_y dilation_x gradient gradient_block gradient_z gradient_y blocks "
    "gradient_size_z gradient_size_y gradient_size_x z0 z1 y0 y1 target scratch scratch_worker",
)
# Tiles at once: more leave the L2 cache, with fewer sums are read more often (docs/design/winograd.md, *Filter
# gradient*); tiles that are one plane, or one line along z, have fewer sums.
GROUP, THIN_GROUP = 16, 48
# Bytes of sums beside which the next group's voxels stay in an L2 cache: 64 -> 64 flat filters have more, and take 3 %
# longer where these are asked for early, 32 -> 32 take 6 to 10 % less.
CACHED_SUMS = 1 << 19
# Words z, y, x: whole cache lines, and a vector follows.
PLACES_BYTES = 2 * 3 * 8 * THIN_GROUP  # three words a tile, of two groups
_ask_to_read, _source_plane = asking_of((1, 2)), source_plane_of((1, 2))
_ask_for_gradients = asking_of((1, 2), new=True)


def _group(form: Any) -> int:
    """Tiles at once."""
    return THIN_GROUP if form.points_z == 1 or form.points_y * form.points_x == 1 else GROUP


_compiled_group = inlined(_group)


@inlined
def _is_thin(form: Any) -> Any:
    """Whether a tile is one plane."""
    return form.points_z == 1


@inlined
def _is_line(form: Any) -> Any:
    """Whether a tile is one line along z, whose points then are made of its voxels at once."""
    return form.points_y * form.points_x == 1


@inlined
def _slot(form: Any) -> Any:
    """From plane to plane along z, and from block to block of a column of points."""
    return _compiled_group(form) * VECTOR_BYTES


@inlined
def _plane(form: Any) -> Any:
    """The number of columns."""
    return form.points_y * form.points_x


@inlined
def _steps(form: Any) -> Any:
    """Bytes from column to column, and from block to block, of planes of voxels."""
    column = compiled_odd_bytes(form.points_z * _compiled_group(form))
    return column, _plane(form) * column


@inlined
def _gradient_steps(form: Any) -> Any:
    """The same of planes of gradients."""
    column = compiled_odd_bytes(form.new_z * _compiled_group(form))
    return column, _plane(form) * column


def gradient_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer with filters of so many taps."""
    form, rows, blocks = FORMS[taps], -(-inputs // LANES), -(-outputs // LANES)
    plane, group = form.points_y * form.points_x, _group(form)
    columns = rows * odd_bytes(form.points_z * group) + blocks * odd_bytes(form.new_z * group)
    columns *= plane > 1  # lines have no planes
    loose = form.points_z * plane * VECTOR_BYTES
    column = form.points_z * odd_bytes((rows + blocks) * group)
    return int(PLACES_BYTES + loose + plane * columns + column + loose * inputs * blocks) // 4


@inlined
def _fetch(
    sizes: Any, row: Any, dilation: Any, base: int, place: Any, counts: Any, loose: int
) -> Any:
    """Address and steps of a tile's voxels, counts z, y, x, from a place on: zeros beyond the images."""
    steps = 4 * row[0] * dilation[0], 4 * row[1] * dilation[1], 4 * row[2] * dilation[2]
    here = base + 4 * (place[0] * row[0] + place[1] * row[1] + place[2] * row[2])
    # Inside, voxels are read where they lie; only tiles at a border are copied.
    whole_z = place[0] + (counts[0] - 1) * dilation[0] < sizes[0]
    whole_y = place[1] + (counts[1] - 1) * dilation[1] < sizes[1]
    whole_x = place[2] + (counts[2] - 1) * dilation[2] < sizes[2]
    if whole_z and whole_y and whole_x:
        return here, steps[0], steps[1], steps[2]
    seen = (
        min(counts[0], cover(sizes[0] - place[0], dilation[0])),
        min(counts[1], cover(sizes[1] - place[1], dilation[1])),
        min(counts[2], cover(sizes[2] - place[2], dilation[2])),
    )
    target = loose
    for z in range(counts[0]):
        for y in range(counts[1]):
            for x in range(counts[2]):
                inside = z < seen[0] and y < seen[1] and x < seen[2]
                from_ = here + z * steps[0] + y * steps[1] + x * steps[2]
                store(target, load(from_) if inside else splat(0.0))
                target += VECTOR_BYTES
    return loose, counts[1] * counts[2] * VECTOR_BYTES, counts[2] * VECTOR_BYTES, VECTOR_BYTES


@inlined
def _ahead(form: Any) -> Any:
    """Tiles ahead whose voxels are asked for."""
    # A plane is transformed before what is asked for comes from memory, a line all the more; of six planes one tile
    # is enough.
    if _is_line(form):
        return 4
    return 2 if _is_thin(form) else 1


@inlined
def _place(places: Any, tile: int) -> Any:
    return places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]


@inlined
def _voxel(base: int, row: Any, place: Any) -> Any:
    """Address of a voxel."""
    return base + 4 * (place[0] * row[0] + place[1] * row[1] + place[2] * row[2])


@inlined
def _point_step(form: Any, args: Any) -> Any:
    """Bytes from point to point of a column."""
    blocks = cover(args[AT.inputs], LANES) + args[AT.blocks]
    return compiled_odd_bytes(blocks * _compiled_group(form))


@inlined
def _transform(
    form: Any,
    args: Any,
    places: Any,
    count: int,
    loose: int,
    source: int,
    gradient: int,
    column: int,
) -> None:
    """Planes of all tiles and blocks of a group; of lines the column of their points."""
    made, point = column, _point_step(form, args)
    points = form.points_z, form.points_y, form.points_x
    new = form.new_z, form.new_y, form.new_x
    (wide, step), (gradient_wide, gradient_step) = _steps(form), _gradient_steps(form)
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    rows = args[AT.source_z], args[AT.source_y], LANES
    sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
    # The block outermost: its voxels lie together in memory.
    for block in range(cover(args[AT.inputs], LANES)):
        base = args[AT.source] + 4 * block * args[AT.source_block]
        for tile in range(count):
            place = _place(places, tile)
            here, z_step, y_step, x_step = _fetch(sizes, rows, dilation, base, place, points, loose)
            target = source + block * step + tile * VECTOR_BYTES
            ahead = _voxel(base, rows, _place(places, min(tile + _ahead(form), count - 1)))
            for z in range(form.points_z):
                deep = ahead + 4 * z * rows[0] * dilation[0]
                # Asked for plane by plane, so that requests spread over the transforms.
                _ask_to_read(form, deep, 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2])
                if not _is_line(form):
                    into = target + z * _slot(form)
                    _source_plane(form, here + z * z_step, y_step, x_step, into, wide)
            if _is_line(form):
                into = made + block * _slot(form) + tile * VECTOR_BYTES
                source_depth(form, here, z_step, into, point)
    made += cover(args[AT.inputs], LANES) * _slot(form)
    rows = args[AT.gradient_z], args[AT.gradient_y], LANES
    sizes = args[AT.gradient_size_z], args[AT.gradient_size_y], args[AT.gradient_size_x]
    for block in range(args[AT.blocks]):
        base = args[AT.gradient] + 4 * block * args[AT.gradient_block]
        for tile in range(count):
            place = _place(places, tile)
            here, z_step, y_step, x_step = _fetch(sizes, rows, dilation, base, place, new, loose)
            target = gradient + block * gradient_step + tile * VECTOR_BYTES
            ahead = _voxel(base, rows, _place(places, min(tile + _ahead(form), count - 1)))
            for z in range(form.new_z):
                if _is_thin(form) or _is_line(form):
                    step_y, step_x = 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2]
                    deep = ahead + 4 * z * rows[0] * dilation[0]
                    _ask_for_gradients(form, deep, step_y, step_x)
                if not _is_line(form):
                    into = target + z * _slot(form)
                    gradient_plane(form, here + z * z_step, y_step, x_step, into, gradient_wide)
            if _is_line(form):
                into = made + block * _slot(form) + tile * VECTOR_BYTES
                gradient_depth(form, here, z_step, into, point)


@inlined
def _ask(form: Any, args: Any, early: Any, turn: int) -> None:
    """Ask for the share of the next group's voxels and gradients that goes with a turn.

    `early`: places of its tiles, their number, and tiles and blocks of both that go with a turn, times TURN.
    """
    places, count, seen, gradients = early
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    # The first voxel that the tile before along each axis does not have.
    first = (
        (form.points_z - form.new_z) * dilation[0],
        (form.points_y - form.new_y) * dilation[1],
        (form.points_x - form.new_x) * dilation[2],
    )
    rows = args[AT.source_z], args[AT.source_y], LANES
    start, block = _voxel(args[AT.source], rows, first), 4 * args[AT.source_block]
    low, high = turn * seen // TURN, (turn + 1) * seen // TURN
    ask_for_tiles(form, start, block, rows, dilation, places, count, low, high)
    rows, block = (args[AT.gradient_z], args[AT.gradient_y], LANES), 4 * args[AT.gradient_block]
    low, high = turn * gradients // TURN, (turn + 1) * gradients // TURN
    ask_for_tiles(form, args[AT.gradient], block, rows, dilation, places, count, low, high)


@inlined
def _point(
    form: Any,
    args: Any,
    count: int,
    source: int,
    step: int,
    gradient: int,
    gradient_step: int,
    sums: int,
    early: Any,
    point: int,
) -> None:
    """Add the products of point number `point` of all tiles of a group; steps: bytes from block to block."""
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    row = blocks * VECTOR_BYTES
    for block in range(cover(inputs, LANES)):
        if early[1]:
            _ask(form, args, early, point * cover(inputs, LANES) + block)
        here, images = source + block * step, min(LANES, inputs - block * LANES)
        target = sums + block * LANES * row
        # Two vectors of gradients share a broadcast voxel, as in `multiply`.
        parts = cover(images, IMAGES[1])
        for pair in range(blocks // 2):
            first = 0
            for part in range(parts):
                # Equal parts again: IMAGES[1] at most.
                many = images * (part + 1) // parts - first
                add_products(
                    2, here + 4 * first, gradient + 2 * pair * gradient_step, gradient_step,
                    count, target + first * row + 2 * pair * VECTOR_BYTES, row, many,
                )  # fmt: skip
                first += many
        if blocks % 2:
            last = blocks - 1
            add_products(
                1, here, gradient + last * gradient_step, gradient_step, count,
                target + last * VECTOR_BYTES, row, images,
            )  # fmt: skip


@inlined
def _deep(form: Any, args: Any, count: int, source: int, gradient: int, column: int) -> Any:
    """Transform a column of all blocks along z, from planes; return the step from point to point."""
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    (_, step), (_, gradient_step) = _steps(form), _gradient_steps(form)
    slot = _slot(form)
    point = _point_step(form, args)
    if _is_line(form):
        return point  # it stands ready
    for block in range(rows):
        for tile in range(count):
            here = source + block * step + tile * VECTOR_BYTES
            into = column + block * slot + tile * VECTOR_BYTES
            source_depth(form, here, slot, into, point)
    for block in range(blocks):
        for tile in range(count):
            here = gradient + block * gradient_step + tile * VECTOR_BYTES
            into = column + (rows + block) * slot + tile * VECTOR_BYTES
            gradient_depth(form, here, slot, into, point)
    return point


@inlined
def _multiply(
    form: Any, args: Any, count: int, source: int, gradient: int, column: int, sums: int, early: Any
) -> None:
    """Transforms along z and products, column by column."""
    rows = cover(args[AT.inputs], LANES)
    step = args[AT.inputs] * args[AT.blocks] * VECTOR_BYTES
    (next_source, by), (next_gradient, gradient_by) = _steps(form), _gradient_steps(form)
    # Column by column, so that the points of one column are in the L1 cache for all their products.
    for number in range(_plane(form)):
        voxels, gradients = source + number * next_source, gradient + number * next_gradient
        target = sums + number * form.points_z * step
        if form.points_z == 1:
            # A column is one point, and stands ready in its planes.
            _point(form, args, count, voxels, by, gradients, gradient_by, target, early, number)
        else:
            point = _deep(form, args, count, voxels, gradients, column)
            # For each point the sums are read and written once a group: that traffic is why a group has many
            # tiles.
            for z in range(form.points_z):
                here = column + z * point
                behind, into = here + rows * _slot(form), target + z * step
                slot, one = _slot(form), number * form.points_z + z
                _point(form, args, count, here, slot, behind, slot, into, early, one)


@inlined
def _taps(form: Any, args: Any, sums: int, cube: int) -> None:
    """Transform the sums of all pairs of channels to packed filter gradients."""
    plane, wide = _plane(form), form.points_x * VECTOR_BYTES
    taps_of_plane = form.taps_y * form.taps_x
    taps = form.taps_z * taps_of_plane
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    point = inputs * blocks * VECTOR_BYTES
    for block in range(blocks):
        # Packed filters are in pairs of vectors; the last pair may be a single one.
        width = min(2, blocks - block // 2 * 2) * VECTOR_BYTES
        group = args[AT.target] + taps * inputs * (block // 2) * 2 * VECTOR_BYTES
        for image in range(inputs):
            first = image // LANES * LANES
            tap = min(LANES, inputs - first) * width
            target = group + taps * first * width + (image - first) * width
            target += block % 2 * VECTOR_BYTES
            here = sums + (image * blocks + block) * VECTOR_BYTES
            # Along z first, from the sums, whose points lie far apart; the rest within a cube in the L1 cache.
            for number in range(plane):
                start, into = here + number * form.points_z * point, cube + number * VECTOR_BYTES
                filter_depth(form, start, point, into, plane * VECTOR_BYTES)
            for z in range(form.taps_z):
                start, into = cube + z * plane * VECTOR_BYTES, target + z * taps_of_plane * tap
                filter_plane(form, start, wide, VECTOR_BYTES, into, tap)


@inlined
def _early(form: Any, args: Any, places: Any, count: int) -> Any:
    """Return what is asked for while the products before a group of `count` tiles run: see `_ask`."""
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    bytes_ = 4 * (rows * args[AT.source_block] + blocks * args[AT.gradient_block])
    sums = form.points_z * _plane(form) * args[AT.inputs] * blocks * VECTOR_BYTES
    near = bytes_ <= NEAR_BYTES or sums > CACHED_SUMS
    if near or args[AT.dilation_y] * args[AT.dilation_x] > 1:
        return places, 0, 0, 0
    turns = _plane(form) * form.points_z * rows
    return places, count, count * rows * TURN // turns, count * blocks * TURN // turns


@inlined
def _placed(
    form: Any, args: Any, places: Any, number: int, total: int, along_y: int, along_x: int
) -> Any:
    """Note where the tiles of a group begin, from tile `number` on; return the tile behind them, and their number."""
    count = 0
    while count < _compiled_group(form) and number < total:
        rest, tile = number // along_x, number % along_x
        z = origin(args[AT.z0] + rest // along_y, args[AT.dilation_z], form.new_z)
        y = origin(args[AT.y0] + rest % along_y, args[AT.dilation_y], form.new_y)
        x = origin(tile, args[AT.dilation_x], form.new_x)
        number += 1
        if (
            z < args[AT.gradient_size_z]
            and y < args[AT.gradient_size_y]
            and x < args[AT.gradient_size_x]
        ):
            places[3 * count], places[3 * count + 1], places[3 * count + 2] = z, y, x
            count += 1
    return number, count


@inlined
def _gradient(form: Any, args: Any, scratch: int) -> None:
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    cube = form.points_z * _plane(form)
    places, following = longs(scratch), longs(scratch + PLACES_BYTES // 2)
    loose = scratch + PLACES_BYTES
    # A tile's voxels at a border; at the end all points of one pair of images.
    source = loose + cube * VECTOR_BYTES
    gradient, column = source, source
    if not _is_line(form):
        gradient += rows * _steps(form)[1]
        column = gradient + blocks * _gradient_steps(form)[1]
    sums = column + form.points_z * _point_step(form, args)
    # All sums: a task adds from zero, and the parts are added by a fixed tree.
    for vector in range(cube * args[AT.inputs] * blocks):
        store(sums + vector * VECTOR_BYTES, splat(0.0))
    along_y = args[AT.y1] - args[AT.y0]
    along_x = tiles_along(args[AT.gradient_size_x], args[AT.dilation_x], form.new_x)
    total = (args[AT.z1] - args[AT.z0]) * along_y * along_x
    number, count = _placed(form, args, places, 0, total, along_y, along_x)
    while count:
        _transform(form, args, places, count, loose, source, gradient, column)
        number, after = _placed(form, args, following, number, total, along_y, along_x)
        early = _early(form, args, following, after)
        _multiply(form, args, count, source, gradient, column, sums, early)
        places, following, count = following, places, after
    # `loose` is free by now.
    _taps(form, args, sums, loose)


def _winograd_gradient(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_gradient{name_of(taps)}")
    def winograd_gradient(args: Any, worker: int) -> None:
        """Filter gradients, summed over some tiles. Words: see the module."""
        _gradient(form, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_gradient


WINOGRAD_GRADIENT = {taps: _winograd_gradient(taps) for taps in FORMS}
"""By the taps of filters along z, y, x."""
