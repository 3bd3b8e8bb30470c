"""Transforms packed filters to spectra of tiles, and spectra back to gradients of packed filters.

A filter tile is the spectrum of the filters of one channel with LANES others, in the layout of
`tile_spectra`; the taps stand at the tile's first points.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_input, source_z, source_y, source_x      (spectra) tap (0, 0, 0) of lane 0 of tile 0;
                                stride from tile to tile; strides of the taps
    each, source_each, first    tiles of a piece of packed filters, and stride from piece to piece; the
                                tile with which the task begins (gradients: `target_each`)
    source_lane, lanes          1: the lanes lie side by side and whole vectors are read; else the
                                stride from lane to lane, and how many there are: the others are 0
    source, source_frequency, source_input      (gradients) spectra of the first tile
    inputs                      tiles of this task
    taps_z, taps_y, taps_x      size of the filters, at most the tile's
    size_z, size_y, size_x      points of a tile
    target, target_frequency, target_input      (spectra) of the first tile
    target, target_input, target_z, target_y, target_x      (gradients) tap (0, 0, 0) of tile 0
    conjugate                   1: the conjugate spectra
    accumulate                  1: added to the target
    scale, scratch, scratch_worker      as in `tile_spectra`

Tasks over disjoint targets may run concurrently.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft.codelets import (
    FEW,
    SPARE_BYTES,
    few_forward_lines,
    forward_lines,
)
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.spectral.tile_transforms import (
    abreast,
    few_forward_planes,
    few_inverse_planes,
    forward_planes,
    gathered,
    inverse_planes,
    last_axis,
    prepare,
    tile_bytes,
    tiles_from_spectra,
    to_spectra,
    voxel_room,
)

FILTERS = words(
    "source source_input source_each each first source_z source_y source_x source_lane lanes inputs "
    "taps_z taps_y taps_x size_z size_y size_x target target_frequency target_input conjugate scratch "
    "scratch_worker",
)
GRADIENT = words(
    "source source_frequency source_input inputs taps_z taps_y taps_x size_z size_y size_x "
    "target target_input target_each each first target_z target_y target_x accumulate scale:float "
    "scratch scratch_worker",
)


@inlined
def _are_few(taps: Any) -> Any:
    # x does not matter: only whole planes and columns are left out.
    return taps[0] <= FEW and taps[1] <= FEW


@inlined
def place_of_tile(tile: int, each: int, piece: int, step: int) -> int:
    """Return the bytes before a tile: filters lie piece by piece, in each one after the other."""
    return 4 * (tile // each * piece + tile % each * step)


@kernel(FILTERS)
def filter_tiles(args: Any, worker: int) -> None:
    """Spectra of the filters of some channels with LANES others. Words: see the module."""
    at = FILTERS
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, 0)
    steps, origin = (4 * args[at.source_z], 4 * args[at.source_y], 4 * args[at.source_x]), (0, 0, 0)
    taps, size = (
        (args[at.taps_z], args[at.taps_y], args[at.taps_x]),
        (args[at.size_z], args[at.size_y], args[at.size_x]),
    )
    # The conjugate spectrum by the sign of the imaginary parts, at both places where real lines become complex.
    sign = -1.0 if args[at.conjugate] else 1.0
    # Several tiles abreast, so that lines along the last axis are written in whole cache lines of neighbouring
    # tiles.
    most, work, room = abreast(size), scratch + SPARE_BYTES, voxel_room(scratch, size)
    few, axis = _are_few(taps), last_axis(size)[0]
    for start in range(0, args[at.inputs], most):
        tiles = min(most, args[at.inputs] - start)
        for number in range(tiles):
            place = place_of_tile(
                args[at.first] + start + number,
                args[at.each],
                args[at.source_each],
                args[at.source_input],
            )
            source, strides = args[at.source] + place, steps
            # Lanes that lie apart are gathered first, as transforms read whole vectors.
            if args[at.source_lane] != 1:
                source, strides = gathered(
                    source, steps, 4 * args[at.source_lane], args[at.lanes], origin, taps, room
                )
            here = work + number * tile_bytes(size)
            if few:
                few_forward_planes(source, strides, taps, size, here, sign, scratch)
            else:
                forward_planes(source, strides, origin, taps, size, here, sign, scratch, source)
        target, tile = (
            args[at.target] + 4 * start * args[at.target_input],
            4 * args[at.target_input],
        )
        columns = to_spectra(
            work,
            size,
            tiles,
            target,
            tile,
            4 * args[at.target_frequency],
            VECTOR_BYTES,
            sign,
            scratch,
        )
        if few:
            few_forward_lines(size[axis], columns, 1.0)
        else:
            forward_lines(size[axis], columns, 1.0)


@kernel(GRADIENT)
def filter_gradient_tiles(args: Any, worker: int) -> None:
    """Gradients of the filters of some channels with LANES others. Words: see the module."""
    at = GRADIENT
    scratch = args[at.scratch] + 4 * worker * args[at.scratch_worker]
    prepare(scratch, 0)
    taps, size, origin = (
        (args[at.taps_z], args[at.taps_y], args[at.taps_x]),
        (args[at.size_z], args[at.size_y], args[at.size_x]),
        (0, 0, 0),
    )
    steps, scale = (
        (4 * args[at.target_z], 4 * args[at.target_y], 4 * args[at.target_x]),
        float_argument(args[at.scale]),
    )
    most, work = abreast(size), scratch + SPARE_BYTES
    # What is added to stands there already: no point is the first.
    stored = 0 if args[at.accumulate] else size[2]
    few = _are_few(taps)
    for start in range(0, args[at.inputs], most):
        tiles = min(most, args[at.inputs] - start)
        source, tile = (
            args[at.source] + 4 * start * args[at.source_input],
            4 * args[at.source_input],
        )
        frequency = 4 * args[at.source_frequency]
        tiles_from_spectra(source, tile, frequency, size, tiles, work, scratch, few, taps[0])
        for number in range(tiles):
            here = work + number * tile_bytes(size)
            target = args[at.target] + place_of_tile(
                args[at.first] + start + number,
                args[at.each],
                args[at.target_each],
                args[at.target_input],
            )
            if few:
                few_inverse_planes(here, size, taps, target, steps, (0, stored), scale, scratch)
            else:
                high = size[0], size[1], stored
                inverse_planes(
                    here, size, origin, taps, target, steps, origin, high, scale, scratch
                )
