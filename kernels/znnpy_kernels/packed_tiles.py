"""Tiles of images to spectra and back, lanes over images and tiles: no lane stands idle.

Image i of tile t is lane c = t * images + i of a row of vectors: lane c % LANES of vector c // LANES. For
each frequency, in the order of `tile_spectra`, all real parts of the row come first, then all
imaginary ones. A vector holds pieces of several tiles, of any lattice and image of the batch:
tiles are numbered [batch][lattice z y x][tile z y x].

Argument words. Addresses in bytes; strides in floats; all else counts.

    images                      of a tile; in blocks of LANES, where more
    extent_z ..                 voxels that new points of tiles cover, of which a lattice has each
                                `dilation`-th
    dilation_z .., step_z ..    of the lattices; new points of a tile
    count_z ..                  points that are read (the others are 0), or written
    shape_z ..                  voxels of the images: beyond are zeros, or nothing is written
    size_z ..                   points of a tile
    first, tiles                number of the row's first tile; tiles in the row
    vector0, vector1            of the row, of this task
    image, image_batch, image_block, image_z, image_y, image_x      the first voxel; strides
    spectra, spectra_frequency, spectra_parts   the row's first vector of the first frequency; stride;
                                from real to imaginary parts
    scratch, scratch_worker     64-byte aligned; worker w owns `packed_floats(size)` floats from
                                w * scratch_worker on
    scale, bias, relu           (images) as in `tile_spectra`; the biases of all images

Where tiles overlap, points that an earlier tile has written are added to: tasks of one lattice must
run in the order of their numbers. Lanes of the last block beyond its images are written as zeros; the
lanes of the row's last vector beyond the last tile are undefined.
Other tasks over disjoint vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.fft_codelets import (
    BIAS,
    SPARE_BYTES,
    VECTOR_BYTES,
    backward_lines,
    forward_lines,
)
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import float_argument, longs
from znnpy_kernels.tile_spectra import scratch_floats
from znnpy_kernels.tile_transforms import (
    abreast,
    fill_planes,
    forward_plane,
    from_spectra,
    inverse_columns,
    inverse_rows,
    last_axis,
    prepare,
    tile_bytes,
    to_spectra,
    voxel_room,
)
from znnpy_kernels.vectors import (
    below,
    load_masked,
    load_merged,
    prefetch,
    splat,
    store,
    store_masked,
)

FIELDS = (
    "images", "extent_z", "extent_y", "extent_x", "dilation_z", "dilation_y", "dilation_x", "step_z",
    "step_y", "step_x", "count_z", "count_y", "count_x", "shape_z", "shape_y", "shape_x", "size_z",
    "size_y", "size_x", "first", "tiles", "vector0", "vector1", "image", "image_batch",
    "image_block", "image_z", "image_y", "image_x", "spectra", "spectra_frequency", "spectra_parts",
    "scratch", "scratch_worker",
)  # fmt: skip
IMAGES_FIELDS = (*FIELDS, "scale:float", "bias", "relu")
# Of a piece: address of its tile's first point, in its block of images; points inside along z, y, x;
# lanes; the first one in the block, and in the vector; 1 where it ends with the last image; points that
# other tiles have written along z, y, x; the first image.
WORDS = 12
TABLE_BYTES = 8 * WORDS * LANES
ROWS_AHEAD = (
    2  # that are asked for: a plane ahead would push out of the L1 cache what a plane takes
)


def packed_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    return scratch_floats(size) + TABLE_BYTES // 4


@inlined
def _cover(whole: int, part: int) -> Any:
    return (whole + part - 1) // part


@inlined
def _tiles(args: Any, axis: int, lattice: int) -> Any:
    """Tiles of a lattice along an axis."""
    return _cover(_cover(args[1 + axis] - lattice, args[4 + axis]), args[7 + axis])


@inlined
def _all_tiles(args: Any, axis: int) -> Any:
    """Tiles of all lattices along an axis."""
    found = 0
    for lattice in range(min(args[1 + axis], args[4 + axis])):
        found += _tiles(args, axis, lattice)
    return found


@inlined
def _lattice(args: Any, axis: int, rest: int, inner: int) -> Any:
    """The lattice along an axis, its tiles, and what is left of a number; `inner` a tile."""
    lattice = 0
    while rest >= _tiles(args, axis, lattice) * inner:
        rest -= _tiles(args, axis, lattice) * inner
        lattice += 1
    return lattice, _tiles(args, axis, lattice), rest


@inlined
def _located(args: Any, tile: int) -> Any:
    """Image of the batch, lattice and place in its grid of a tile."""
    y, x = _all_tiles(args, 1), _all_tiles(args, 2)
    whole = _all_tiles(args, 0) * y * x
    z_lattice, z_tiles, rest = _lattice(args, 0, tile % whole, y * x)
    y_lattice, y_tiles, rest = _lattice(args, 1, rest, z_tiles * x)
    x_lattice, x_tiles, rest = _lattice(args, 2, rest, z_tiles * y_tiles)
    place = rest // x_tiles // y_tiles, rest // x_tiles % y_tiles, rest % x_tiles
    return tile // whole, (z_lattice, y_lattice, x_lattice), place


@inlined
def _axis(args: Any, axis: int, lattice: int, place: int) -> Any:
    """Floats to a tile's first point along an axis, points inside, points written by others."""
    origin = place * args[7 + axis]
    limit = _cover(args[13 + axis] - lattice, args[4 + axis])
    old = args[10 + axis] - args[7 + axis] if place else 0
    inside = max(0, min(args[10 + axis], limit - origin))
    return (lattice + origin * args[4 + axis]) * args[26 + axis], inside, old


@inlined
def _note(args: Any, piece: Any, tile: int, image: int, lane: int, lanes: int) -> None:
    """Describe a piece of a vector."""
    batch, lattice, place = _located(args, tile)
    z, y, x = (
        _axis(args, 0, lattice[0], place[0]),
        _axis(args, 1, lattice[1], place[1]),
        _axis(args, 2, lattice[2], place[2]),
    )
    offset = batch * args[24] + image // LANES * args[25] + z[0] + y[0] + x[0]
    piece[0], piece[1], piece[2], piece[3] = args[23] + 4 * offset, z[1], y[1], x[1]
    piece[4], piece[5], piece[6] = lanes, image % LANES, lane
    piece[7] = 1 if image + lanes == args[0] else 0
    piece[8], piece[9], piece[10], piece[11] = z[2], y[2], x[2], image


@inlined
def _between(low: int, high: int) -> Any:
    """A mask of the lanes low..high."""
    return below(high) ^ below(low)


@inlined
def pieces_of(args: Any, vector: int, table: int) -> Any:
    """Describe all pieces of a vector: how many, and planes that reach into the images."""
    images, lane, number, planes = args[0], 0, 0, 0
    while lane < LANES and (vector * LANES + lane) // images < args[20]:
        tile, image = (vector * LANES + lane) // images, (vector * LANES + lane) % images
        lanes = min(images - image, LANES - image % LANES, LANES - lane)
        piece = longs(table + 8 * WORDS * number)
        _note(args, piece, args[19] + tile, image, lane, lanes)
        planes, lane, number = max(planes, piece[1]), lane + lanes, number + 1
    return number, planes


@inlined
def _steps(args: Any) -> Any:
    """Bytes from point to point of a lattice."""
    return 4 * args[4] * args[26], 4 * args[5] * args[27], 4 * args[6] * args[28]


@inlined
def _inside(piece: Any, z: int, y: int) -> Any:
    """Points of a row of a piece that lie in its image."""
    return piece[3] if z < piece[1] and y < piece[2] else 0


@inlined
def _row_of(piece: Any, steps: Any, z: int, y: int) -> Any:
    """Address of a row of a piece, as far before it as its lanes lie behind the vector's first."""
    return piece[0] + z * steps[0] + y * steps[1] - 4 * (piece[6] - piece[5])


@inlined
def _gathered_row(
    first: Any, second: Any, third: Any, steps: Any, z: int, y: int, count: int, row: int
) -> None:
    """One row of points of three pieces, and zeros in all other lanes."""
    a, b, c = _inside(first, z, y), _inside(second, z, y), _inside(third, z, y)
    p, q, r = (
        _row_of(first, steps, z, y),
        _row_of(second, steps, z, y),
        _row_of(third, steps, z, y),
    )
    lanes = (
        _between(first[6], first[6] + first[4]),
        _between(second[6], second[6] + second[4]),
        _between(third[6], third[6] + third[4]),
    )
    both = min(a, min(b, c))
    for x in range(both):
        at = x * steps[2]
        value = load_merged(q + at, lanes[1], load_masked(p + at, lanes[0]))
        store(row + x * VECTOR_BYTES, load_merged(r + at, lanes[2], value))
        prefetch(p + at + ROWS_AHEAD * steps[1])
        prefetch(q + at + ROWS_AHEAD * steps[1])
        prefetch(r + at + ROWS_AHEAD * steps[1])
    for x in range(both, count):
        at, value = x * steps[2], splat(0.0)
        if x < a:
            value = load_merged(p + at, lanes[0], value)
            prefetch(p + at + ROWS_AHEAD * steps[1])
        if x < b:
            value = load_merged(q + at, lanes[1], value)
            prefetch(q + at + ROWS_AHEAD * steps[1])
        if x < c:
            value = load_merged(r + at, lanes[2], value)
            prefetch(r + at + ROWS_AHEAD * steps[1])
        store(row + x * VECTOR_BYTES, value)


@inlined
def gathered_plane(args: Any, table: int, pieces: int, z: int, room: int) -> None:
    """One plane of points of all pieces, [y][x][lane]; meanwhile rows behind are asked for."""
    steps = _steps(args)
    first, second, third = (
        longs(table),
        longs(table + 8 * WORDS * min(1, pieces - 1)),
        longs(table + 8 * WORDS * min(2, pieces - 1)),
    )
    for y in range(args[11]):
        _gathered_row(
            first, second, third, steps, z, y, args[12], room + y * args[12] * VECTOR_BYTES
        )
    for number in range(3, pieces):
        piece = longs(table + 8 * WORDS * number)
        mine = _between(piece[6], piece[6] + piece[4])
        for y in range(args[11]):
            row = room + y * args[12] * VECTOR_BYTES
            source = _row_of(piece, steps, z, y)
            for x in range(_inside(piece, z, y)):
                value = load_masked(source + x * steps[2], mine)
                prefetch(source + x * steps[2] + ROWS_AHEAD * steps[1])
                store_masked(row + x * VECTOR_BYTES, mine, value)


@inlined
def scattered_plane(args: Any, table: int, pieces: int, z: int, room: int) -> None:
    """One plane of points, [y][x][lane], to where the pieces belong; rows behind are asked for."""
    steps = _steps(args)
    for number in range(pieces):
        piece = longs(table + 8 * WORDS * number)
        shift, end = piece[6] - piece[5], piece[5] + piece[4]
        mine, written = _between(piece[5], end), _between(piece[5], LANES if piece[7] else end)
        for y in range(piece[2] if z < piece[1] else 0):
            row = room + y * args[12] * VECTOR_BYTES + 4 * shift
            target = piece[0] + z * steps[0] + y * steps[1]
            old = piece[3] if z < piece[8] or y < piece[9] else min(piece[3], piece[10])
            for x in range(old):
                value, place = load_masked(row + x * VECTOR_BYTES, mine), target + x * steps[2]
                store_masked(place, written, value + load_masked(place, mine))
                prefetch(place + ROWS_AHEAD * steps[1])
            for x in range(old, piece[3]):
                value, place = load_masked(row + x * VECTOR_BYTES, mine), target + x * steps[2]
                store_masked(place, written, value)
                prefetch(place + ROWS_AHEAD * steps[1])


@inlined
def set_biases(bias: int, table: int, pieces: int, scratch: int) -> None:
    """Biases of all lanes."""
    for number in range(pieces):
        piece = longs(table + 8 * WORDS * number)
        mine = _between(piece[6], piece[6] + piece[4])
        value = load_masked(bias + 4 * (piece[11] - piece[6]), mine)
        store_masked(scratch + BIAS, mine, value)


@kernel(*FIELDS)
def packed_spectra(args: Any, worker: int) -> None:
    """Spectra of some vectors of a row. Words: see the module."""
    scratch = args[32] + 4 * worker * args[33]
    prepare(scratch, 0)
    size, count = (args[16], args[17], args[18]), (args[10], args[11], args[12])
    work, table = scratch + SPARE_BYTES, voxel_room(scratch, size)
    room, steps = table + TABLE_BYTES, (0, args[12] * VECTOR_BYTES, VECTOR_BYTES)
    for start in range(args[21], args[22], abreast(size)):
        vectors = min(abreast(size), args[22] - start)
        for vector in range(vectors):
            here = work + vector * tile_bytes(size)
            pieces, planes = pieces_of(args, start + vector, table)
            for z in range(planes):
                gathered_plane(args, table, pieces, z, room)
                forward_plane(room, steps, (0, 0, 0), count, size, here, 1.0, scratch, z, room)
            fill_planes(here, 0, planes, size[0], size)
        target = args[29] + start * VECTOR_BYTES
        columns = to_spectra(
            work, size, vectors, target, VECTOR_BYTES, 4 * args[30], 4 * args[31], 1.0, scratch
        )
        forward_lines(size[last_axis(size)[0]], columns, 1.0)


@kernel(*IMAGES_FIELDS)
def packed_images(args: Any, worker: int) -> None:
    """Images of some vectors of a row. Words: see the module."""
    scratch = args[32] + 4 * worker * args[33]
    prepare(scratch, args[36])
    size, count = (args[16], args[17], args[18]), (args[10], args[11], args[12])
    work, table, scale = scratch + SPARE_BYTES, voxel_room(scratch, size), float_argument(args[34])
    room, steps = table + TABLE_BYTES, (0, args[12] * VECTOR_BYTES, VECTOR_BYTES)
    for start in range(args[21], args[22], abreast(size)):
        vectors = min(abreast(size), args[22] - start)
        source = args[29] + start * VECTOR_BYTES
        columns = from_spectra(
            source, VECTOR_BYTES, 4 * args[30], 4 * args[31], size, vectors, work, scratch
        )
        backward_lines(size[last_axis(size)[0]], columns, 1.0)
        for vector in range(vectors):
            here = work + vector * tile_bytes(size)
            pieces, planes = pieces_of(args, start + vector, table)
            if args[35]:
                set_biases(args[35], table, pieces, scratch)
            # Last planes first: where tiles of one vector overlap, the earlier one has written there.
            for z in range(planes - 1, -1, -1):
                inverse_columns(here, size, z, room, 0, scratch)
                inverse_rows(here, size, (0, 0, 0), count, room, steps, 0, scale, scratch, z)
                scattered_plane(args, table, pieces, z, room)
