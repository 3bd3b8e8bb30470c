"""Tasks that transform tiles whose channels have a lane each, by tiles and channel blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import add, mul, sub

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.tile_spectra import scratch_floats, tile_images, tile_spectra

from znnpy.engine.convolution.spectral.tile_arguments import ORIGIN, lattice_strides, sizes
from znnpy.engine.convolution.spectral.transform_task import TransformTask
from znnpy.engine.convolution.tiles import (
    PAIR,
    Grid,
    Stretch,
    TileSpectra,
    Tiling,
    Window,
    in_turns,
)
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.network.types import Triple
from znnpy.plan import Grain
from znnpy.plan.tiles import tile_seconds


def spectra_tasks(
    build: Build, spectra: TileSpectra, images: Views, window: Window, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms of tiles of blocked or planar tensors."""
    for phase, tensor in enumerate(images.parts):
        yield from _spectra_tasks(build, spectra, tensor, window, group, phase)


def _spectra_tasks(
    build: Build, spectra: TileSpectra, tensor: Tensor, window: Window, group: int, phase: int
) -> Iterator[TransformTask]:
    tiling, planar = spectra.tiling, tensor.lanes == 1
    first = phase * _blocks(tensor)
    # A planar tensor has a block for each channel; LANES of them make one block of spectra.
    per_block = LANES if planar else 1  # of the tensor's own blocks
    words = {
        **lattice_strides("source", tensor, tiling),
        "source_block": tensor.block_stride * per_block,
        "source_lane": tensor.block_stride if planar else 1,
        **sizes("origin", window.origin),
        **sizes("count", window.count),
        "target_frequency": spectra.frequency_stride,
        "target_tile": spectra.tile_stride,
        "target_block": PAIR,
    }
    seconds, grain = tile_seconds(tiling.tile, held=window.count), build.layout.grain
    for stretch, low, high in _cuts(grain, spectra.stretches(group), tensor, seconds):
        source = tensor.at(stretch.grid.batch, low * per_block, *stretch.grid.lattice)
        yield TransformTask(
            tile_spectra,
            {
                **words,
                **_words(build, spectra, tensor, stretch, low, high),
                "source": source,
                "target": spectra.at(
                    stretch.group, stretch.grid.first - stretch.start, first + low
                ),
            },
            seconds * (stretch.high - stretch.low) * (high - low),
            tensor,
            [stretch],
            range(low * per_block, min(tensor.channels, high * LANES) if planar else high),
        )


def image_tasks(
    build: Build, spectra: TileSpectra, images: Views, count: Triple, group: int
) -> Iterator[TransformTask]:
    """Yield the transforms back of the first `count` points of each tile."""
    for phase, tensor in enumerate(images.parts):
        yield from _image_tasks(build, spectra, tensor, count, group, phase)


def _image_tasks(
    build: Build, spectra: TileSpectra, tensor: Tensor, count: Triple, group: int, phase: int
) -> Iterator[TransformTask]:
    tiling = spectra.tiling
    first = phase * _blocks(tensor)
    words = {
        "source_frequency": spectra.frequency_stride,
        "source_tile": spectra.tile_stride,
        "source_block": PAIR,
        **sizes("first", ORIGIN),
        **sizes("count", count),
        "target_block": tensor.block_stride,
        **lattice_strides("target", tensor, tiling),
    }
    seconds, grain = tile_seconds(tiling.tile, held=count), build.layout.grain
    stretches = spectra.stretches(group)
    if count != tiling.new and grain.many:
        # Tasks of one turn each wait for those of turns before, but never for each other.
        grain = grain.in_turn(tiling.turns)
        stretches = [part for it in stretches for part in in_turns(tiling, it)]
    for stretch, low, high in _cuts(grain, stretches, tensor, seconds):
        yield TransformTask(
            tile_images,
            {
                **words,
                **_words(build, spectra, tensor, stretch, low, high),
                **_inside(tensor, tiling, stretch.grid, low),
                "source": spectra.at(
                    stretch.group, stretch.grid.first - stretch.start, first + low
                ),
            },
            seconds * (stretch.high - stretch.low) * (high - low),
            tensor,
            [stretch],
            range(low, high),
            stretch.grid.first + stretch.low,
            phase,
        )


def _blocks(tensor: Tensor) -> int:
    """Return the number of blocks of spectra that a tensor's images fill, planar or not."""
    return -(-tensor.channels // LANES)


def _inside(tensor: Tensor, tiling: Tiling, grid: Grid, block: int) -> dict[str, int]:
    """Return the words of the first voxel of a lattice in the images, of where its tiles begin, and what is written."""
    skipped = tiling.lattice_shape(firsts(tensor.beyond), grid.lattice)
    z, y, x = map(add, grid.lattice, map(mul, skipped, tiling.dilation))
    whole = map(sub, tensor.shape, (after for _, after in tensor.beyond))
    end = tiling.lattice_shape(tuple(whole), grid.lattice)
    return {
        "target": tensor.at(grid.batch, block, z, y, x),
        **sizes("origin", (-points for points in skipped)),
        **sizes("limit", map(sub, end, skipped)),
    }


def _cuts(
    grain: Grain, stretches: list[Stretch], tensor: Tensor, seconds: float
) -> list[tuple[Stretch, int, int]]:
    """Return (tiles, first block, last block) of each transform task; `seconds` for a tile of one block."""
    found, blocks = [], _blocks(tensor)
    for stretch in stretches:
        tiles = stretch.high - stretch.low
        # By tiles first, which share nothing; by blocks only where tiles are too few to make tasks
        # of the wanted length.
        for low, high in grain.ranges(tiles, tiles * blocks * seconds):
            own = replace(stretch, low=stretch.low + low, high=stretch.low + high)
            for first, last in grain.ranges(blocks, (high - low) * blocks * seconds):
                found.append((own, first, last))
    return found


def _words(
    build: Build, spectra: TileSpectra, tensor: Tensor, stretch: Stretch, low: int, high: int
) -> dict[str, int]:
    """Return the words of the tiles and blocks that a task takes, forward and back."""
    tiling = spectra.tiling
    return {
        "channels": tensor.channels - low * LANES,
        "blocks": high - low,
        **sizes("tiles", stretch.grid.counts),
        "tile0": stretch.low,
        "tile1": stretch.high,
        **sizes("step", tiling.new),
        **sizes("size", tiling.tile),
        **sizes("limit", tiling.lattice_shape(tensor.shape, stretch.grid.lattice)),
        **build.worker_scratch(scratch_floats(tiling.tile)),
    }
