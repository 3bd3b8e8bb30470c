"""Images of tiles that `tile_columns_back` has transformed back along z: the rest of `tile_images`, plane by plane.

Argument words as of `tile_images`, of tiles of several planes that do not overlap, and

    plane0, plane1              points of each tile along z, of this task

The planes lie where the spectra did, and nothing but the images is written. Tasks over disjoint tiles, blocks or planes
may run concurrently; points of tiles that overlap are written in the order of their numbers, as by `tile_images`.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.spectral.tile_spectra import (
    IMAGES,
    fresh_points,
    inside_of,
    spectrum_at,
    task_words,
    triple,
)
from znnpy_kernels.spectral.tile_transforms import (
    added,
    offset,
    plane_bytes,
    plane_from_spectra,
    plane_rows,
    prepare,
    set_bias,
)

PLANES = words(IMAGES, "plane0 plane1")


@kernel(PLANES)
def tile_plane_images(args: Any, worker: int) -> None:
    """Wanted points of some planes of a range of tiles of some channel blocks. Words: see the module."""
    at = IMAGES
    scratch, size, grid, place, end = task_words(args, worker)
    prepare(scratch, args[at.relu])
    steps = triple(args, at.target_z, at.target_y, at.target_x, 4)
    wanted = triple(args, at.first_z, at.first_y, at.first_x, 1)
    strides = 4 * args[at.source_tile], 4 * args[at.source_block]
    frequency, work = 4 * args[at.source_frequency], scratch + SPARE_BYTES
    scale, plane = float_argument(args[at.scale]), size[1] * (size[2] // 2 + 1) * frequency
    for member in range(end):
        origin, skipped, count = inside_of(member, grid, place)
        first, block = added(wanted, skipped), member % args[at.blocks]
        # Back by the first wanted point, so that points count from the tile's first one.
        target = args[at.target] + 4 * block * args[at.target_block]
        target += offset(origin, steps) - offset(wanted, steps)
        if args[at.bias]:
            set_bias(
                scratch, args[at.bias] + VECTOR_BYTES * block, args[at.channels] - LANES * block
            )
        low, high = fresh_points(member, grid, place, wanted)
        source = args[at.source] + spectrum_at(member, grid, strides)
        last = min(args[PLANES.plane1], first[0] + count[0])
        for z in range(max(args[PLANES.plane0], first[0]), last):
            here = source + z * plane
            plane_from_spectra(here, size, frequency, here + plane, work, scratch)
            # One plane of scratch serves all of them.
            rows = work - z * plane_bytes(size)
            plane_rows(rows, size, first, count, target, steps, low, high, scale, scratch, z)
