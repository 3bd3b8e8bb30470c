"""Packed filters to spectra, and spectra to the gradients of packed filters, on tiles.

A filter tile is the spectrum of the filters of one image with LANES others, in the layout of
`tile_spectra`; the taps stand at the tile's first points.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_input, source_z, source_y, source_x      (spectra) tap (0, 0, 0) of the first tile's
                                lane 0; stride from tile to tile; strides of the taps
    source_lane, lanes          1: the lanes lie side by side and whole vectors are read; else the
                                stride from lane to lane, and how many there are: the others are 0
    source, source_frequency, source_input      (gradients) spectra of the first tile
    inputs                      tiles of this task
    taps_z, taps_y, taps_x      size of the filters, at most the tile's
    size_z, size_y, size_x      points of a tile
    target, target_frequency, target_input      (spectra) of the first tile
    target, target_input, target_z, target_y, target_x      (gradients) tap (0, 0, 0) of the first tile
    conjugate                   1: the conjugate spectra
    accumulate                  1: added to the target
    scale, scratch, scratch_worker      as in `tile_spectra`

Tasks over disjoint targets may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.fft_codelets import (
    FEW,
    SPARE_BYTES,
    VECTOR_BYTES,
    backward_lines,
    few_backward_lines,
    few_forward_lines,
    forward_lines,
)
from znnpy_kernels.inlining import inlined
from znnpy_kernels.memory import float_argument
from znnpy_kernels.tile_transforms import (
    abreast,
    few_forward_planes,
    few_inverse_planes,
    forward_planes,
    from_spectra,
    gathered,
    inverse_planes,
    last_axis,
    prepare,
    tile_bytes,
    to_spectra,
    voxel_room,
)

FILTERS_FIELDS = (
    "source", "source_input", "source_z", "source_y", "source_x", "source_lane", "lanes", "inputs",
    "taps_z", "taps_y", "taps_x", "size_z", "size_y", "size_x", "target", "target_frequency",
    "target_input", "conjugate", "scratch", "scratch_worker",
)  # fmt: skip
GRADIENT_FIELDS = (
    "source", "source_frequency", "source_input", "inputs", "taps_z", "taps_y", "taps_x", "size_z",
    "size_y", "size_x", "target", "target_input", "target_z", "target_y", "target_x", "accumulate",
    "scale:float", "scratch", "scratch_worker",
)  # fmt: skip


@inlined
def _are_few(taps: Any) -> Any:
    return taps[0] <= FEW and taps[1] <= FEW


@kernel(*FILTERS_FIELDS)
def filter_tiles(args: Any, worker: int) -> None:
    """Spectra of the filters of some images with LANES others. Words: see the module."""
    scratch = args[18] + 4 * worker * args[19]
    prepare(scratch, 0)
    steps, origin = (4 * args[2], 4 * args[3], 4 * args[4]), (0, 0, 0)
    taps, size = (args[8], args[9], args[10]), (args[11], args[12], args[13])
    sign = -1.0 if args[17] else 1.0
    most, work, room = abreast(size), scratch + SPARE_BYTES, voxel_room(scratch, size)
    few, axis = _are_few(taps), last_axis(size)[0]
    for start in range(0, args[7], most):
        tiles = min(most, args[7] - start)
        for number in range(tiles):
            source, strides = args[0] + 4 * (start + number) * args[1], steps
            if args[5] != 1:
                source, strides = gathered(source, steps, 4 * args[5], args[6], origin, taps, room)
            here = work + number * tile_bytes(size)
            if few:
                few_forward_planes(source, strides, taps, size, here, sign, scratch)
            else:
                forward_planes(source, strides, origin, taps, size, here, sign, scratch, source)
        target, tile = args[14] + 4 * start * args[16], 4 * args[16]
        columns = to_spectra(
            work, size, tiles, target, tile, 4 * args[15], VECTOR_BYTES, sign, scratch
        )
        if few:
            few_forward_lines(size[axis], columns, 1.0)
        else:
            forward_lines(size[axis], columns, 1.0)


@kernel(*GRADIENT_FIELDS)
def filter_gradient_tiles(args: Any, worker: int) -> None:
    """Gradients of the filters of some images with LANES others. Words: see the module."""
    scratch = args[17] + 4 * worker * args[18]
    prepare(scratch, 0)
    taps, size, origin = (args[4], args[5], args[6]), (args[7], args[8], args[9]), (0, 0, 0)
    steps, scale = (4 * args[12], 4 * args[13], 4 * args[14]), float_argument(args[16])
    most, work, added = abreast(size), scratch + SPARE_BYTES, args[15] * size[2]
    old = args[15] * size[0], args[15] * size[1], added
    few, axis = _are_few(taps), last_axis(size)[0]
    for start in range(0, args[3], most):
        tiles = min(most, args[3] - start)
        source, tile = args[0] + 4 * start * args[2], 4 * args[2]
        columns = from_spectra(source, tile, 4 * args[1], VECTOR_BYTES, size, tiles, work, scratch)
        if few:
            few_backward_lines(size[axis], columns, 1.0)
        else:
            backward_lines(size[axis], columns, 1.0)
        for number in range(tiles):
            here = work + number * tile_bytes(size)
            target = args[10] + 4 * (start + number) * args[11]
            if few:
                few_inverse_planes(here, size, taps, target, steps, added, scale, scratch)
            else:
                inverse_planes(here, size, origin, taps, target, steps, old, scale, scratch)
