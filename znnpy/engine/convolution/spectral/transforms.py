"""Transforms of groups of tiles and back."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.tile_spectra import scratch_floats, tile_images, tile_spectra

from znnpy.engine.convolution.spectral.buffers import join
from znnpy.engine.convolution.spectral.packed import emit_packed_images, emit_packed_spectra
from znnpy.engine.convolution.spectral.words import ORIGIN, lattice_strides, sizes
from znnpy.engine.convolution.tiles import (
    PAIR,
    Stretch,
    TileSpectra,
    Tiling,
    Window,
    planes_of,
    squares_of,
)
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.identity import Identity
from znnpy.engine.tasks.step import Step
from znnpy.geometry import voxels
from znnpy.network.types import Node, Triple
from znnpy.plan import ranges
from znnpy.plan.tiles import tile_seconds


def emit_spectra(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    tensor: Tensor,
    window: Window,
    group: int,
    what: Identity,
) -> None:
    """Transforms of a group of a tensor's tiles; zeros stand where a tile reaches beyond it."""
    if spectra.packed:
        emit_packed_spectra(step, build, spectra, tensor, window, group, what)
        return
    tiling = spectra.tiling
    planar = tensor.lanes == 1
    seconds = tile_seconds(tiling.tile, held=window.count)
    words = {
        "source_block": tensor.block_stride * (LANES if planar else 1),
        **lattice_strides("source", tensor, tiling),
        "source_lane": tensor.block_stride if planar else 1,
        **sizes("origin", window.origin),
        **sizes("count", window.count),
        "target_frequency": spectra.frequency_stride,
        "target_tile": spectra.tile_stride,
        "target_block": PAIR,
        **build.worker_scratch(scratch_floats(tiling.tile)),
    }
    for number, (stretch, first, last) in enumerate(_cuts(spectra, group, seconds)):
        held = range(first * LANES, min(tensor.images, last * LANES)) if planar else None
        planes = planes_of(tensor, tiling, stretch, window)
        step.add(
            tile_spectra,
            {
                **words,
                **_tile_words(tiling, stretch),
                "source": tensor.at(
                    stretch.grid.batch, first * (LANES if planar else 1), *stretch.grid.lattice
                ),
                "channels": tensor.images - first * LANES,
                "blocks": last - first,
                **sizes("limit", tiling.lattice_shape(tensor.shape, stretch.grid.lattice)),
                "target": spectra.at(stretch.group, stretch.grid.first - stretch.start, first),
            },
            what=what,
            cost=seconds * (stretch.high - stretch.low) * (last - first),
            reads=[
                tensor.region(stretch.grid.batch, block, *planes)
                for block in held or range(first, last)
                if planes
            ],
            writes=[spectra.places[group].region(strand=number)],
        )
    join(step, spectra.places[group])


def emit_images(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    tensor: Tensor,
    count: Triple,
    group: int,
    what: Identity,
    node: Node | None = None,
) -> None:
    """Transforms back of a group: the first `count` points of each tile, added up where tiles overlap.

    Bias and function of `node` are applied to points of tiles that do not overlap.
    """
    if spectra.packed:
        emit_packed_images(step, build, spectra, tensor, count, group, what, node)
        return
    tiling = spectra.tiling
    seconds = tile_seconds(tiling.tile, held=count)
    window = Window(ORIGIN, count)
    old = tuple(many - new for many, new in zip(count, tiling.new, strict=True))
    overlap = max(old) > 0
    words = {
        "source_frequency": spectra.frequency_stride,
        "source_tile": spectra.tile_stride,
        "source_block": PAIR,
        **sizes("first", ORIGIN),
        **sizes("origin", ORIGIN),
        **sizes("count", count),
        "old_z": old[0],
        "old_y": old[1],
        "old_x": old[2],
        "target_block": tensor.block_stride,
        **lattice_strides("target", tensor, tiling),
        "scale": 1.0 / voxels(tiling.tile),
        "relu": int(node is not None and node.function == "relu"),
        **build.worker_scratch(scratch_floats(tiling.tile)),
    }
    join(step, spectra.places[group])
    for stretch, low, high in _cuts(spectra, group, seconds):
        planes = planes_of(tensor, tiling, stretch, window)
        assert planes is not None
        batch, lattice = stretch.grid.batch, stretch.grid.lattice
        step.add(
            tile_images,
            {
                **words,
                **_tile_words(tiling, stretch),
                "source": spectra.at(stretch.group, stretch.grid.first - stretch.start, low),
                "blocks": high - low,
                **sizes("limit", tiling.lattice_shape(tensor.shape, lattice)),
                "target": tensor.at(batch, low, *lattice),
                "bias": build.bias_address(node.name, low * LANES) if node else 0,
                "channels": tensor.images - low * LANES,
            },
            what=what,
            cost=seconds * (stretch.high - stretch.low) * (high - low),
            reads=[
                spectra.places[group].region(),
                *(build.bias_reads(node.name) if node else ()),
            ],
            writes=[
                # Tiles that overlap are added one after the other; those of other lattices never do.
                tensor.region(batch, block, *planes)._replace(strand=strand)
                for block in range(low, high)
                for strand in (
                    squares_of(tiling, stretch) if overlap else (stretch.grid.first + stretch.low,)
                )
            ],
        )


def _cuts(spectra: TileSpectra, group: int, seconds: float) -> list[tuple[Stretch, int, int]]:
    """(tiles, first block, last block) of each transform task; `seconds` for a tile of one block."""
    found = []
    for stretch in spectra.stretches(group):
        tiles = stretch.high - stretch.low
        for low, high in ranges(tiles, tiles * spectra.blocks * seconds):
            own = Stretch(stretch.grid, stretch.low + low, stretch.low + high, group, stretch.start)
            for first, last in ranges(spectra.blocks, (high - low) * spectra.blocks * seconds):
                found.append((own, first, last))
    return found


def _tile_words(tiling: Tiling, stretch: Stretch) -> dict[str, int]:
    return {
        "tiles_y": stretch.grid.counts[1],
        "tiles_x": stretch.grid.counts[2],
        "tile0": stretch.low,
        "tile1": stretch.high,
        **sizes("step", tiling.new),
        **sizes("size", tiling.tile),
    }
