"""Transforms tiles to spectra and back; lanes hold channels and tiles, so none is idle.

Channel i of tile t is lane c = t * channels + i of a row of vectors: lane c % LANES of vector c // LANES. For
each frequency, in the order of `tile_spectra`, all real parts of the row come first, then all
imaginary ones. A vector holds pieces of several tiles, of any lattice and sample of the batch:
tiles are numbered [batch][lattice z y x][tile z y x], those of a lattice in `turns`.

Argument words. Addresses in bytes; strides in floats; all else counts.

    images                      of a tile; in blocks of LANES, where more
    extent_z ..                 voxels that new points of tiles cover, of which a lattice has each
                                `dilation`-th
    dilation_z .., step_z ..    of the lattices; new points of a tile
    count_z ..                  points that are read (the others are 0), or written
    shape_z ..                  voxels of the images: beyond are zeros, or nothing is written
    before_z ..                 (images) voxels of the first tiles before the images: nothing is written
    size_z ..                   points of a tile
    first, tile0, tiles         number of the row's first tile; of the row, tiles tile0..tiles alone are read or written
    vector0, vector1            of the row, of this task
    image, image_batch, image_block, image_z, image_y, image_x      the first voxel; strides
    spectra, spectra_frequency, spectra_parts   the row's first vector of the first frequency; stride;
                                from real to imaginary parts
    scratch, scratch_worker     64-byte aligned; worker w owns `packed_floats(size)` floats from
                                w * scratch_worker on
    scale, bias, relu           (images) as in `tile_spectra`; the biases of all channels

Where tiles overlap, points that an earlier tile has written are added to: such tiles must be written in
the order of their numbers. Lanes of the last block beyond its images are written as zeros; the
lanes of the row's last vector beyond the last tile are undefined.
Other tasks over disjoint vectors may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import (
    BIAS,
    SPARE_BYTES,
    apart_backward_lines,
    apart_forward_lines,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument, longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    below,
    load_masked,
    load_merged,
    prefetch,
    splat,
    store,
    store_masked,
)
from znnpy_kernels.spectral.tile_spectra import scratch_floats
from znnpy_kernels.spectral.tile_transforms import (
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
from znnpy_kernels.spectral.turns import fresh, turns_of

PLACES = words(
    "images extent_z extent_y extent_x dilation_z dilation_y dilation_x step_z step_y step_x "
    "count_z count_y count_x shape_z shape_y shape_x size_z size_y size_x first tile0 tiles vector0 "
    "vector1 image image_batch image_block image_z image_y image_x before_z before_y before_x"
)
"""Words that every kernel begins with whose vectors are made of pieces of tiles."""
SPECTRA = words(PLACES, "spectra spectra_frequency spectra_parts scratch scratch_worker")
IMAGES = words(SPECTRA, "scale:float bias relu")
PIECE = words(
    "address inside_z inside_y inside_x lanes block_lane lane ends low_z low_y low_x high_z high_y high_x image "
    "outside_z outside_y outside_x turn"
)
"""Of a piece: address of its tile's first point, in its block of channels; where points inside end along
z, y, x; lanes; the first one in the block, and in the vector; 1 where it ends with the last image; from which
point on, and up to which, no tile of an earlier turn has written, along z, y, x; the first image; points before
the images along z, y, x; the tile's turn along z."""
PIECE_BYTES = 8 * len(PIECE)
# Room for a piece a lane, the most that a vector may have.
TABLE_BYTES = PIECE_BYTES * LANES
# Two rows: see docs/design/spectral.md, *Packed tiles*.
ROWS_AHEAD = 2  # asked for: a plane ahead would push out of the L1 cache what a plane takes


def packed_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    return scratch_floats(size) + TABLE_BYTES // 4


@inlined
def _axis_words(args: Any, axis: int) -> Any:
    """Words of one axis: extent, dilation, step, count, shape, the image's stride, voxels before it."""
    at = PLACES
    if axis == 0:
        # Branches on a constant, which LLVM removes.
        return (args[at.extent_z], args[at.dilation_z], args[at.step_z], args[at.count_z],
                args[at.shape_z], args[at.image_z], args[at.before_z])  # fmt: skip
    if axis == 1:
        return (args[at.extent_y], args[at.dilation_y], args[at.step_y], args[at.count_y],
                args[at.shape_y], args[at.image_y], args[at.before_y])  # fmt: skip
    return (args[at.extent_x], args[at.dilation_x], args[at.step_x], args[at.count_x],
            args[at.shape_x], args[at.image_x], args[at.before_x])  # fmt: skip


@inlined
def _tiles(args: Any, axis: int, lattice: int) -> Any:
    """Return the tiles of a lattice along an axis."""
    extent, dilation, step, _, _, _, _ = _axis_words(args, axis)
    return cover(cover(extent - lattice, dilation), step)


@inlined
def _all_tiles(args: Any, axis: int) -> Any:
    """Return the tiles of all lattices along an axis."""
    extent, dilation, _, _, _, _, _ = _axis_words(args, axis)
    found = 0
    # Lattices differ by a tile at most, but each has its own rest.
    for lattice in range(min(extent, dilation)):
        found += _tiles(args, axis, lattice)
    return found


@inlined
def _lattice(args: Any, axis: int, rest: int, inner: int) -> Any:
    """The lattice along an axis, its tiles, and what is left of a number; `inner` a tile."""
    lattice = 0
    # Dilations are small: a loop over lattices takes less than solving for it.
    while rest >= _tiles(args, axis, lattice) * inner:
        rest -= _tiles(args, axis, lattice) * inner
        lattice += 1
    return lattice, _tiles(args, axis, lattice), rest


@inlined
def _located(args: Any, tile: int) -> Any:
    """Of a tile: image of the batch, lattice, the lattice's tiles, turns and place among them."""
    # [batch][lattice z y x][tile z y x]: lattices of all three axes before tiles of any.
    y, x = _all_tiles(args, 1), _all_tiles(args, 2)
    whole = _all_tiles(args, 0) * y * x
    z_lattice, z_tiles, rest = _lattice(args, 0, tile % whole, y * x)
    y_lattice, y_tiles, rest = _lattice(args, 1, rest, z_tiles * x)
    x_lattice, x_tiles, rest = _lattice(args, 2, rest, z_tiles * y_tiles)
    tiles = z_tiles, y_tiles, x_tiles
    size = args[PLACES.size_z], args[PLACES.size_y], args[PLACES.size_x]
    step = args[PLACES.step_z], args[PLACES.step_y], args[PLACES.step_x]
    turns, place = turns_of(rest, tiles, size, step)
    return tile // whole, (z_lattice, y_lattice, x_lattice), tiles, turns, place


@inlined
def _axis(args: Any, axis: int, located: Any, size: int) -> Any:
    """Of a tile along an axis: floats to its first point, end of points inside, those before, turn, fresh ones."""
    lattice, tiles, turn, place = (
        located[1][axis],
        located[2][axis],
        located[3][axis],
        located[4][axis],
    )
    _, dilation, step, count, shape, stride, before = _axis_words(args, axis)
    origin = place * step
    limit = cover(before + shape - lattice, dilation)
    inside = max(0, min(count, limit - origin))
    outside = max(0, cover(before - lattice, dilation) - origin)
    low, high = fresh(turn, place, tiles, size, step, count)
    return (lattice + origin * dilation - before) * stride, inside, outside, turn, low, high


@inlined
def _note(args: Any, piece: Any, tile: int, image: int, lane: int, lanes: int) -> None:
    """Describe a piece of a vector."""
    at, of = PLACES, PIECE
    located = _located(args, tile)
    z = _axis(args, 0, located, args[at.size_z])
    y = _axis(args, 1, located, args[at.size_y])
    x = _axis(args, 2, located, args[at.size_x])
    offset = located[0] * args[at.image_batch] + image // LANES * args[at.image_block]
    piece[of.address] = args[at.image] + 4 * (offset + z[0] + y[0] + x[0])
    piece[of.inside_z], piece[of.inside_y], piece[of.inside_x] = z[1], y[1], x[1]
    piece[of.lanes], piece[of.block_lane], piece[of.lane] = lanes, image % LANES, lane
    piece[of.ends] = 1 if image + lanes == args[at.images] else 0
    piece[of.outside_z], piece[of.outside_y], piece[of.outside_x] = z[2], y[2], x[2]
    piece[of.low_z], piece[of.low_y], piece[of.low_x] = z[4], y[4], x[4]
    piece[of.high_z], piece[of.high_y], piece[of.high_x] = z[5], y[5], x[5]
    piece[of.image], piece[of.turn] = image, z[3]


@inlined
def _between(low: int, high: int) -> Any:
    """A mask of the lanes low..high."""
    # Lanes low up to, but not with, high.
    return below(high) ^ below(low)


@inlined
def pieces_of(args: Any, vector: int, table: int) -> Any:
    """Describe all pieces of a vector: how many, and planes that reach into the images."""
    at = PLACES
    images, number, planes = args[at.images], 0, 0
    lane = max(0, args[at.tile0] * images - vector * LANES)
    # Up to LANES pieces, if each tile has one image.
    while lane < LANES and (vector * LANES + lane) // images < args[at.tiles]:
        tile, image = (vector * LANES + lane) // images, (vector * LANES + lane) % images
        # A piece ends with its tile, with its block of images or with the vector, whichever comes first.
        lanes = min(images - image, LANES - image % LANES, LANES - lane)
        piece = longs(table + PIECE_BYTES * number)
        _note(args, piece, args[at.first] + tile, image, lane, lanes)
        planes, lane, number = max(planes, piece[PIECE.inside_z]), lane + lanes, number + 1
    return number, planes


@inlined
def _steps(args: Any) -> Any:
    """Return the bytes from point to point of a lattice."""
    at = PLACES
    return (
        4 * args[at.dilation_z] * args[at.image_z],
        4 * args[at.dilation_y] * args[at.image_y],
        4 * args[at.dilation_x] * args[at.image_x],
    )


@inlined
def _inside(piece: Any, z: int, y: int) -> Any:
    """Return how many points of a row of a piece lie in its image."""
    of = PIECE
    return piece[of.inside_x] if z < piece[of.inside_z] and y < piece[of.inside_y] else 0


@inlined
def _row_of(piece: Any, steps: Any, z: int, y: int) -> Any:
    """Address of a row of a piece, as far before it as its lanes lie behind the vector's first."""
    of = PIECE
    return (
        piece[of.address]
        + z * steps[0]
        + y * steps[1]
        # So that lane `lane` of a load at this address is lane `block_lane` of the block.
        - 4 * (piece[of.lane] - piece[of.block_lane])
    )


@inlined
def _gathered_row(
    first: Any, second: Any, third: Any, steps: Any, z: int, y: int, count: int, row: int
) -> None:
    """Gather one row of points of three pieces, and zeros in all other lanes."""
    of = PIECE
    # Three are merged in registers: more would need more masks and addresses than there are registers.
    a, b, c = _inside(first, z, y), _inside(second, z, y), _inside(third, z, y)
    p, q, r = (
        _row_of(first, steps, z, y),
        _row_of(second, steps, z, y),
        _row_of(third, steps, z, y),
    )
    lanes = (
        _between(first[of.lane], first[of.lane] + first[of.lanes]),
        _between(second[of.lane], second[of.lane] + second[of.lanes]),
        _between(third[of.lane], third[of.lane] + third[of.lanes]),
    )
    # Up to where all three have points there are no tests.
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
    """Gather one plane of points of all pieces, [y][x][lane]; meanwhile rows behind are asked for."""
    at, of = PLACES, PIECE
    steps = _steps(args)
    # With fewer pieces the last one stands in again: it loads the same lanes once more.
    first, second, third = (
        longs(table),
        longs(table + PIECE_BYTES * min(1, pieces - 1)),
        longs(table + PIECE_BYTES * min(2, pieces - 1)),
    )
    for y in range(args[at.count_y]):
        _gathered_row(
            first,
            second,
            third,
            steps,
            z,
            y,
            args[at.count_x],
            room + y * args[at.count_x] * VECTOR_BYTES,
        )
    # Fourth and later pieces, of tiles with few images: merged by masked stores.
    for number in range(3, pieces):
        piece = longs(table + PIECE_BYTES * number)
        mine = _between(piece[of.lane], piece[of.lane] + piece[of.lanes])
        for y in range(args[at.count_y]):
            row = room + y * args[at.count_x] * VECTOR_BYTES
            source = _row_of(piece, steps, z, y)
            for x in range(_inside(piece, z, y)):
                value = load_masked(source + x * steps[2], mine)
                prefetch(source + x * steps[2] + ROWS_AHEAD * steps[1])
                # The other lanes of the row were written before, by the first three pieces.
                store_masked(row + x * VECTOR_BYTES, mine, value)


@inlined
def in_one_pass(args: Any, table: int, first: int, pieces: int) -> Any:
    """Return the end of the pieces from `first` on whose planes can be written together, the last ones first.

    Where a tile overlaps the one behind it, of an earlier turn, this one is written before, which is against the order
    of planes.
    """
    of, end = PIECE, first + 1
    while end < pieces:
        piece, before = longs(table + PIECE_BYTES * end), longs(table + PIECE_BYTES * (end - 1))
        if piece[of.turn] != before[of.turn] and piece[of.high_z] < args[PLACES.count_z]:
            break
        end += 1
    return end


@inlined
def _added_row(source: int, target: int, step: int, x: Any, mine: Any, written: Any) -> None:
    """Points of a row from x[0] up to x[1], added to what stands there; what lies x[2] bytes behind is asked for."""
    for point in range(x[0], x[1]):
        value, place = load_masked(source + point * VECTOR_BYTES, mine), target + point * step
        store_masked(place, written, value + load_masked(place, mine))
        prefetch(place + x[2])


@inlined
def scattered_plane(args: Any, table: int, first: int, end: int, z: int, room: int) -> None:
    """Write one plane of points, [y][x][lane], to where some pieces belong; rows behind are asked for."""
    at, of = PLACES, PIECE
    steps = _steps(args)
    step, ahead = steps[2], ROWS_AHEAD * steps[1]
    for number in range(first, end):
        piece = longs(table + PIECE_BYTES * number)
        shift, last = (
            piece[of.lane] - piece[of.block_lane],
            piece[of.block_lane] + piece[of.lanes],
        )
        mine, written = (
            _between(piece[of.block_lane], last),
            # The last piece of a tile also writes zeros into the lanes of its block beyond the images.
            _between(piece[of.block_lane], LANES if piece[of.ends] else last),
        )
        seen = piece[of.outside_z] <= z < piece[of.inside_z]
        for y in range(piece[of.outside_y], piece[of.inside_y] if seen else 0):
            row = room + y * args[at.count_x] * VECTOR_BYTES + 4 * shift
            target = piece[of.address] + z * steps[0] + y * steps[1]
            # Whole rows are old where z or y is; otherwise those points before and behind the fresh ones along x.
            new = piece[of.low_z] <= z < piece[of.high_z]
            new = new and piece[of.low_y] <= y < piece[of.high_y]
            start, stop = piece[of.outside_x], piece[of.inside_x]
            low = min(stop, max(start, piece[of.low_x])) if new else stop
            high = min(stop, max(low, piece[of.high_x]))
            # Loops without tests.
            _added_row(row, target, step, (start, low, ahead), mine, written)
            for x in range(low, high):
                value, place = load_masked(row + x * VECTOR_BYTES, mine), target + x * step
                store_masked(place, written, value)
                prefetch(place + ahead)
            _added_row(row, target, step, (high, stop, ahead), mine, written)


@inlined
def set_biases(bias: int, table: int, pieces: int, scratch: int) -> None:
    """Biases of all lanes."""
    of = PIECE
    for number in range(pieces):
        piece = longs(table + PIECE_BYTES * number)
        mine = _between(piece[of.lane], piece[of.lane] + piece[of.lanes])
        # Shifted as rows are, so that biases of a piece come to its lanes.
        value = load_masked(bias + 4 * (piece[of.image] - piece[of.lane]), mine)
        store_masked(scratch + BIAS, mine, value)


@kernel(SPECTRA)
def packed_spectra(args: Any, worker: int) -> None:
    """Spectra of some vectors of a row. Words: see the module."""
    at = SPECTRA
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, 0)
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    count = args[at.count_z], args[at.count_y], args[at.count_x]
    work, table = scratch + SPARE_BYTES, voxel_room(scratch, size)
    room, steps = table + TABLE_BYTES, (0, args[at.count_x] * VECTOR_BYTES, VECTOR_BYTES)
    for start in range(args[at.vector0], args[at.vector1], abreast(size)):
        vectors = min(abreast(size), args[at.vector1] - start)
        for vector in range(vectors):
            here = work + vector * tile_bytes(size)
            pieces, planes = pieces_of(args, start + vector, table)
            for z in range(planes):
                # Room for one plane: it is gathered and transformed before the next one.
                gathered_plane(args, table, pieces, z, room)
                forward_plane(room, steps, (0, 0, 0), count, size, here, 1.0, scratch, z, room)
            # Beyond the images all planes are zeros.
            fill_planes(here, 0, planes, size[0], size)
        target = args[at.spectra] + start * VECTOR_BYTES
        columns = to_spectra(
            work,
            size,
            vectors,
            target,
            VECTOR_BYTES,
            4 * args[at.spectra_frequency],
            4 * args[at.spectra_parts],
            1.0,
            scratch,
        )
        apart_forward_lines(size[last_axis(size)[0]], columns, 1.0)


@kernel(IMAGES)
def packed_images(args: Any, worker: int) -> None:
    """Images of some vectors of a row. Words: see the module."""
    at = IMAGES
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, args[at.relu])
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    count = args[at.count_z], args[at.count_y], args[at.count_x]
    work, table, scale = (
        scratch + SPARE_BYTES,
        voxel_room(scratch, size),
        float_argument(args[at.scale]),
    )
    room, steps = table + TABLE_BYTES, (0, args[at.count_x] * VECTOR_BYTES, VECTOR_BYTES)
    whole = 0, size[2]
    axis, columns_of_all, _ = last_axis(size)
    for start in range(args[at.vector0], args[at.vector1], abreast(size)):
        vectors = min(abreast(size), args[at.vector1] - start)
        source = args[at.spectra] + start * VECTOR_BYTES
        columns = from_spectra(
            source,
            VECTOR_BYTES,
            4 * args[at.spectra_frequency],
            4 * args[at.spectra_parts],
            size,
            vectors,
            work,
            scratch,
            0,
            columns_of_all,
        )
        apart_backward_lines(size[axis], columns, 1.0)
        for vector in range(vectors):
            here = work + vector * tile_bytes(size)
            pieces, planes = pieces_of(args, start + vector, table)
            if args[at.bias]:
                set_biases(args[at.bias], table, pieces, scratch)
            # Last planes first: where tiles of one vector overlap, the one before has written there.
            first = 0
            while first < pieces:
                end = in_one_pass(args, table, first, pieces)
                for z in range(planes - 1, -1, -1):
                    # In place: once is enough.
                    if first == 0:
                        inverse_columns(here, size, z, room, 0, scratch)
                    inverse_rows(
                        here, size, (0, 0, 0), count, room, steps, whole, scale, scratch, z
                    )
                    scattered_plane(args, table, first, end, z, room)
                first = end
