"""Filters and their gradients plane by plane, where other tasks transform the columns along z (`tile_columns`).

Both are of tiles of several planes and of more than FEW taps along z or y. Argument words as of `filter_gradient_tiles`
or `filter_tiles`, and

    plane0, plane1              (gradients) taps along z, of this task; (spectra) planes, zeros behind the taps
    planes, planes_tile         (spectra) where they go, [z][y][kx][2 * LANES] as in scratch (`plane_bytes`); floats
                                from tile to tile

Planes of gradients lie where the spectra did; those of spectra go to memory of their own, which `conjugate_columns` or
`tile_columns` reads. Bits are those of `filter_gradient_tiles` and `filter_tiles`. Tasks over disjoint targets or
planes may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_tiles import FILTERS, GRADIENT, place_of_tile
from znnpy_kernels.spectral.tile_transforms import (
    fill_planes,
    forward_plane,
    gathered,
    plane_bytes,
    plane_from_spectra,
    plane_rows,
    prepare,
    voxel_room,
)

PLANES = words(GRADIENT, "plane0 plane1")
SPECTRA = words(FILTERS, "planes planes_tile plane0 plane1")


def planes_floats(size: tuple[int, int, int]) -> int:
    """Return the floats of the planes of a tile of this size (z, y, x)."""
    return int(size[0] * plane_floats(size))


def plane_floats(size: tuple[int, int, int]) -> int:
    """Return the floats from plane to plane of such a tile."""
    return (size[1] * (size[2] // 2 + 1) + 1) * 2 * LANES


@kernel(SPECTRA)
def filter_planes(args: Any, worker: int) -> None:
    """Some planes of filters of some channels with LANES others, along y and x alone. Words: see the module."""
    at = FILTERS
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, 0)
    taps = args[at.taps_z], args[at.taps_y], args[at.taps_x]
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    steps, origin = (4 * args[at.source_z], 4 * args[at.source_y], 4 * args[at.source_x]), (0, 0, 0)
    sign, room = -1.0 if args[at.conjugate] else 1.0, voxel_room(scratch, size)
    low, end = args[SPECTRA.plane0], args[SPECTRA.plane1]
    high, one = max(low, min(end, taps[0])), (1, taps[1], taps[2])
    for number in range(args[at.inputs]):
        source = args[at.source] + place_of_tile(
            args[at.first] + number, args[at.each], args[at.source_each], args[at.source_input]
        )
        work = args[SPECTRA.planes] + 4 * number * args[SPECTRA.planes_tile]
        for z in range(low, high):
            here, strides = source + z * steps[0], steps
            # Lanes that lie apart are gathered first, as transforms read whole vectors.
            if args[at.source_lane] != 1:
                here, strides = gathered(
                    here, steps, 4 * args[at.source_lane], args[at.lanes], origin, one, room
                )
            forward_plane(here, strides, origin, taps, size, work, sign, scratch, z, here)
        fill_planes(work + low * plane_bytes(size), 0, high - low, end - low, size)


@kernel(PLANES)
def filter_gradient_planes(args: Any, worker: int) -> None:
    """Gradients of some taps of the filters of some channels with LANES others. Words: see the module."""
    at = GRADIENT
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, 0)
    taps = args[at.taps_z], args[at.taps_y], args[at.taps_x]
    size = args[at.size_z], args[at.size_y], args[at.size_x]
    steps = 4 * args[at.target_z], 4 * args[at.target_y], 4 * args[at.target_x]
    scale, work, origin = float_argument(args[at.scale]), scratch + SPARE_BYTES, (0, 0, 0)
    # What is added to stands there already: no point is the first.
    high = size[0], size[1], 0 if args[at.accumulate] else size[2]
    frequency = 4 * args[at.source_frequency]
    plane = size[1] * (size[2] // 2 + 1) * frequency
    for number in range(args[at.inputs]):
        source = args[at.source] + 4 * number * args[at.source_input]
        target = args[at.target] + place_of_tile(
            args[at.first] + number, args[at.each], args[at.target_each], args[at.target_input]
        )
        for z in range(args[PLANES.plane0], args[PLANES.plane1]):
            here = source + z * plane
            plane_from_spectra(here, size, frequency, here + plane, work, scratch)
            # One plane of scratch serves all of them.
            rows = work - z * plane_bytes(size)
            plane_rows(rows, size, origin, taps, target, steps, origin, high, scale, scratch, z)
