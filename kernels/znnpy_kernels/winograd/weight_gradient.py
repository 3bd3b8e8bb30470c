"""Weight gradients by Winograd's minimal filtering of few channels, tiles of one plane: of 1x3x3 filters 6^2 products.

A kernel for each form of tiles without an axis z (`forms`): along an axis of one tap a tile is one voxel and one
gradient, and one point. All other layers go in two stages (`gradient_points`, `gradient_sums`).

A group of tiles at a time: transform planes of the source and of the output gradient; then for each point add the
products of all tiles to its sums, while the next group's voxels are asked for. At the end the sums of each pair of
channels become taps. Along an axis with dilation d, tile t begins at voxel t // d * 4 d + t % d of both.

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
planes of a group [block][point][tile], all sums [point][input][block].

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
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd.early_requests import NEAR_BYTES, TURN, ask_for_tiles
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.gradient_lines import filter_plane, gradient_plane
from znnpy_kernels.winograd.gradient_products import add_block
from znnpy_kernels.winograd.line_transforms import asking_of, source_plane_of
from znnpy_kernels.winograd.products import odd_bytes
from znnpy_kernels.winograd.tiles import fetch, origin, tiles_along

AT = words(
    "source source_block source_z source_y inputs source_size_z source_size_y source_size_x "
    "dilation_z dilation_y dilation_x gradient gradient_block gradient_z gradient_y blocks "
    "gradient_size_z gradient_size_y gradient_size_x z0 z1 y0 y1 target scratch scratch_worker",
)
# Tiles at once: more leave the L2 cache, with fewer sums are read more often (docs/design/winograd.md, *Filter
# gradient*).
GROUP = 48
THIN = {taps: form for taps, form in FORMS.items() if form.points_z == 1}
# Bytes of sums beside which the next group's voxels stay in an L2 cache: 64 -> 64 flat filters have more, and take 3 %
# longer where these are asked for early, 32 -> 32 take 6 to 10 % less.
CACHED_SUMS = 1 << 19
# Words z, y, x: whole cache lines, and a vector follows.
PLACES_BYTES = 2 * 3 * 8 * GROUP  # three words a tile, of two groups
# Tiles ahead whose voxels are asked for: a plane is transformed before what is asked for comes from memory.
AHEAD = 2
POINT = odd_bytes(GROUP)  # bytes from point to point of planes
_ask_to_read, _source_plane = asking_of((1, 2)), source_plane_of((1, 2))
_ask_for_gradients = asking_of((1, 2), new=True)


@inlined
def _plane(form: Any) -> Any:
    """The number of columns."""
    return form.points_y * form.points_x


@inlined
def _step(form: Any) -> Any:
    """Bytes from block to block of planes."""
    return _plane(form) * POINT


def gradient_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer with filters of so many taps."""
    form, rows, blocks = THIN[taps], -(-inputs // LANES), -(-outputs // LANES)
    plane = form.points_y * form.points_x
    loose = plane * VECTOR_BYTES
    return (
        int(PLACES_BYTES + loose + plane * (rows + blocks) * POINT + loose * inputs * blocks) // 4
    )


@inlined
def _place(places: Any, tile: int) -> Any:
    return places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]


@inlined
def _voxel(base: int, row: Any, place: Any) -> Any:
    """Address of a voxel."""
    return base + 4 * (place[0] * row[0] + place[1] * row[1] + place[2] * row[2])


@inlined
def _transform(
    form: Any, args: Any, places: Any, count: int, loose: int, source: int, gradient: int
) -> None:
    """Planes of all tiles and blocks of a group."""
    points, new = (1, form.points_y, form.points_x), (1, form.new_y, form.new_x)
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    rows = args[AT.source_z], args[AT.source_y], LANES
    sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
    # The block outermost: its voxels lie together in memory.
    for block in range(cover(args[AT.inputs], LANES)):
        base = args[AT.source] + 4 * block * args[AT.source_block]
        for tile in range(count):
            place = _place(places, tile)
            here, _, step_y, step_x = fetch(sizes, rows, dilation, base, place, points, loose)
            ahead = _voxel(base, rows, _place(places, min(tile + AHEAD, count - 1)))
            _ask_to_read(form, ahead, 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2])
            into = source + block * _step(form) + tile * VECTOR_BYTES
            _source_plane(form, here, step_y, step_x, into, POINT)
    rows = args[AT.gradient_z], args[AT.gradient_y], LANES
    sizes = args[AT.gradient_size_z], args[AT.gradient_size_y], args[AT.gradient_size_x]
    for block in range(args[AT.blocks]):
        base = args[AT.gradient] + 4 * block * args[AT.gradient_block]
        for tile in range(count):
            place = _place(places, tile)
            here, _, step_y, step_x = fetch(sizes, rows, dilation, base, place, new, loose)
            ahead = _voxel(base, rows, _place(places, min(tile + AHEAD, count - 1)))
            _ask_for_gradients(form, ahead, 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2])
            into = gradient + block * _step(form) + tile * VECTOR_BYTES
            gradient_plane(form, here, step_y, step_x, into, POINT)


@inlined
def _ask(form: Any, args: Any, early: Any, turn: int) -> None:
    """Ask for the share of the next group's voxels and gradients that goes with a turn.

    `early`: places of its tiles, their number, and tiles and blocks of both that go with a turn, times TURN.
    """
    places, count, seen, gradients = early
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    # The first voxel that the tile before along each axis does not have.
    first = (
        0,
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
    form: Any, args: Any, count: int, source: int, gradient: int, sums: int, early: Any, point: int
) -> None:
    """Add the products of point number `point` of all tiles of a group."""
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    row, step = blocks * VECTOR_BYTES, _step(form)
    for block in range(cover(inputs, LANES)):
        if early[1]:
            _ask(form, args, early, point * cover(inputs, LANES) + block)
        here, images = source + block * step, min(LANES, inputs - block * LANES)
        target = sums + block * LANES * row
        add_block(here, images, gradient, step, blocks, count, target, row)


@inlined
def _taps(form: Any, args: Any, sums: int) -> None:
    """Transform the sums of all pairs of channels to packed filter gradients."""
    taps = form.taps_y * form.taps_x
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
            filter_plane(form, here, form.points_x * point, point, target, tap)


@inlined
def _early(form: Any, args: Any, places: Any, count: int) -> Any:
    """Return what is asked for while the products before a group of `count` tiles run: see `_ask`."""
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    bytes_ = 4 * (rows * args[AT.source_block] + blocks * args[AT.gradient_block])
    sums = _plane(form) * args[AT.inputs] * blocks * VECTOR_BYTES
    near = bytes_ <= NEAR_BYTES or sums > CACHED_SUMS
    if near or args[AT.dilation_y] * args[AT.dilation_x] > 1:
        return places, 0, 0, 0
    turns = _plane(form) * rows
    return places, count, count * rows * TURN // turns, count * blocks * TURN // turns


@inlined
def _placed(
    form: Any, args: Any, places: Any, number: int, total: int, along_y: int, along_x: int
) -> Any:
    """Note where the tiles of a group begin, from tile `number` on; return the tile behind them, and their number."""
    count = 0
    while count < GROUP and number < total:
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
    places, following = longs(scratch), longs(scratch + PLACES_BYTES // 2)
    loose = scratch + PLACES_BYTES
    source = loose + _plane(form) * VECTOR_BYTES
    gradient = source + rows * _step(form)
    sums, step = gradient + blocks * _step(form), args[AT.inputs] * blocks * VECTOR_BYTES
    # All sums: a task adds from zero, and the parts are added by a fixed tree.
    for vector in range(_plane(form) * args[AT.inputs] * blocks):
        store(sums + vector * VECTOR_BYTES, splat(0.0))
    along_y = args[AT.y1] - args[AT.y0]
    along_x = tiles_along(args[AT.gradient_size_x], args[AT.dilation_x], form.new_x)
    total = (args[AT.z1] - args[AT.z0]) * along_y * along_x
    number, count = _placed(form, args, places, 0, total, along_y, along_x)
    while count:
        _transform(form, args, places, count, loose, source, gradient)
        number, after = _placed(form, args, following, number, total, along_y, along_x)
        early = _early(form, args, following, after)
        for point in range(_plane(form)):
            here, there = source + point * POINT, gradient + point * POINT
            _point(form, args, count, here, there, sums + point * step, early, point)
        places, following, count = following, places, after
    _taps(form, args, sums)


def _winograd_gradient(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = THIN[taps]

    @kernel(AT, name=f"winograd_gradient{name_of(taps)}")
    def winograd_gradient(args: Any, worker: int) -> None:
        """Filter gradients, summed over some tiles. Words: see the module."""
        _gradient(form, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_gradient


WINOGRAD_GRADIENT = {taps: _winograd_gradient(taps) for taps in THIN}
"""By the taps of filters along z, y, x."""
