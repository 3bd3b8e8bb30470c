"""Transforms tiles along their planes alone, and back; lanes hold channels and tiles.

What `packed_tiles` does, but without the first axis (of tiles of one plane: without the second):
`packed_columns` goes on. Words as there, but

    planes                      of the row's first vector: [vector][z][y][kx][re, im][lane], as scratch of
                                `tile_transforms` has it, for the first `count` points along the axis
    plane0, plane1              of each tile, of this task
    scratch, scratch_worker     64-byte aligned; worker w owns `plane_floats(size)` floats from
                                w * scratch_worker on

Other tasks over disjoint vectors or planes may run concurrently. Where tiles of a vector overlap along z, later planes
must be written before earlier ones, or, if one lies before another of an earlier turn, all by one task.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.spectral.packed_tiles import (
    PLACES,
    TABLE_BYTES,
    gathered_plane,
    in_one_pass,
    pieces_of,
    scattered_plane,
    set_biases,
)
from znnpy_kernels.spectral.tile_transforms import (
    columns_from,
    columns_to,
    fill_planes,
    forward_rows,
    inverse_rows,
    plane_bytes,
    prepare,
    tile_bytes,
)

PLANES = words(PLACES, "planes plane0 plane1 scratch scratch_worker")
IMAGES = words(PLANES, "scale:float bias relu")


def plane_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    _, y, x = size
    # One frequency more in a plane than it has, so that planes do not fall on one set (`plane_bytes`).
    plane = (y * (x // 2 + 1) + 1) * 2 * VECTOR_BYTES
    return (SPARE_BYTES + TABLE_BYTES + plane + y * x * VECTOR_BYTES) // 4


@inlined
def _rooms(args: Any, worker: int, size: Any) -> Any:
    """Scratch, table of pieces, a plane of half spectra, one of voxels."""
    at = PLANES
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    table = scratch + SPARE_BYTES
    half = table + TABLE_BYTES
    return scratch, table, half, half + plane_bytes(size)


@kernel(PLANES)
def packed_planes(args: Any, worker: int) -> None:
    """Half transformed tiles of some vectors of a row. Words: see the module."""
    at = PLANES
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    count = args[at.count_z], args[at.count_y], args[at.count_x]
    scratch, table, half, room = _rooms(args, worker, size)
    prepare(scratch, 0)
    steps, origin = (0, args[at.count_x] * VECTOR_BYTES, VECTOR_BYTES), (0, 0, 0)
    for vector in range(args[at.vector0], args[at.vector1]):
        target = args[at.planes] + vector * tile_bytes(size)
        pieces, planes = pieces_of(args, vector, table)
        for z in range(args[at.plane0], min(planes, args[at.plane1])):
            gathered_plane(args, table, pieces, z, room)
            here = target + z * plane_bytes(size)
            # Tiles of one plane: their columns are along y, so only x is transformed here.
            if size[0] == 1:
                forward_rows(room, steps, origin, count, size, here, 1.0, scratch, 0, count[1])
            else:
                forward_rows(room, steps, origin, count, size, half, 1.0, scratch, 0, size[1])
                columns_to(half, here, size, scratch)
        # Planes beyond the images are zeros: written, as columns read all `count` of them.
        low, high = min(max(planes, args[at.plane0]), args[at.plane1]), args[at.plane1]
        fill_planes(target + low * plane_bytes(size), 0, 0, high - low, size)


@kernel(IMAGES)
def packed_plane_images(args: Any, worker: int) -> None:
    """Images of some vectors of a row. Words: see the module."""
    at = IMAGES
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    count = args[at.count_z], args[at.count_y], args[at.count_x]
    scratch, table, half, room = _rooms(args, worker, size)
    prepare(scratch, args[at.relu])
    scale, steps = (
        float_argument(args[at.scale]),
        (0, args[at.count_x] * VECTOR_BYTES, VECTOR_BYTES),
    )
    whole = 0, size[2]
    for vector in range(args[at.vector0], args[at.vector1]):
        source = args[at.planes] + vector * tile_bytes(size)
        pieces, planes = pieces_of(args, vector, table)
        if args[at.bias]:
            set_biases(args[at.bias], table, pieces, scratch)
        # Last planes first: where tiles of one vector overlap, the one before has written there.
        first = 0
        while first < pieces:
            end = in_one_pass(args, table, first, pieces)
            for z in range(min(planes, args[at.plane1]) - 1, args[at.plane0] - 1, -1):
                here, lines = source + z * plane_bytes(size), half
                # Lines straight from where they lie: there is no column to transform before.
                if size[0] == 1:
                    lines = here
                else:
                    columns_from(here, half, size, here - plane_bytes(size), scratch)
                inverse_rows(lines, size, (0, 0, 0), count, room, steps, whole, scale, scratch, 0)
                scattered_plane(args, table, first, end, z, room)
            first = end
