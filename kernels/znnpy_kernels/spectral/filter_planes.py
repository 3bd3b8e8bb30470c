"""Gradients of filters whose spectra `tile_columns_back` has transformed back along z: the rest, plane by plane.

Argument words as of `filter_gradient_tiles`, of tiles of several planes and of more than FEW taps along z or y, and

    plane0, plane1              taps along z, of this task

The planes lie where the spectra did. Bits are those of `filter_gradient_tiles`. Tasks over disjoint targets or planes
may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import SPARE_BYTES
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.spectral.filter_tiles import GRADIENT, place_of_tile
from znnpy_kernels.spectral.tile_transforms import (
    plane_bytes,
    plane_from_spectra,
    plane_rows,
    prepare,
)

PLANES = words(GRADIENT, "plane0 plane1")


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
