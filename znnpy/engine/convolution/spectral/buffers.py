"""Where the spectra of an edge's passes lie: kept ones, and rings of buffers."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra, TileSpectra, Tiling
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.identity import Part, Pass
from znnpy.engine.tasks.sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName
from znnpy.plan.tiles import (
    column_group,
    frequencies,
    group_size,
    kept_between_passes,
    leaves_cache,
    new_points,
    saves_lanes,
)

TILES = Use("spectra of tiles", "source spectra")
FILTER_TILES = Use("spectra of filters for tiles", "filter spectra")
RING = Use("spectra of groups of tiles")

AHEAD_BYTES = 1 << 24  # of a ring's buffers: large groups have enough tasks to go round
WORKER_BYTES = 1 << 22  # the same for each worker, where there are many


class Filters:
    """Spectra of an edge's filters or of their gradients: [frequency][input][block][re, im][lane]."""

    def __init__(self, tile: Triple, inputs: int, blocks: int) -> None:
        self.tile, self.inputs, self.blocks = tile, inputs, blocks
        self.input_stride = blocks * PAIR
        self.frequency_stride = (inputs * blocks | 1) * PAIR
        self.floats = self.frequency_stride * frequencies(tile)
        self.place = Buffer(Name(FILTER_TILES))

    def at(self, image: int = 0, block: int = 0, frequency: int = 0) -> int:
        """Address of a complex vector."""
        floats = frequency * self.frequency_stride + image * self.input_stride + block * PAIR
        return self.place.address + 4 * floats


def ring_slot(
    step: Step, build: Build, edge: Edge, serves: Pass, part: Part, spectra: TileSpectra, group: int
) -> Buffer:
    """The place of a group of tiles in a ring of buffers, after a gate that waits until it is free."""
    name = Name(RING, edge.name, (serves, part, group % ring_slots(build, spectra)))
    place = build.shared(name, spectra.floats)
    join(step, place)
    return place


def ring_slots(build: Build, spectra: TileSpectra) -> int:
    """Buffers of a ring: one for each worker, as far as AHEAD_BYTES or WORKER_BYTES go.

    No more than that: the next group finds its buffer in the cache.
    """
    workers = build.layout.workers
    most = max(AHEAD_BYTES, workers * WORKER_BYTES) // (4 * spectra.floats)
    return max(1, min(workers, spectra.groups, most))


def source_spectra(build: Build, edge: Edge, which: PassName) -> TileSpectra:
    """Spectra of the source's tiles: kept where the forward pass and the weight gradient share them."""
    tiling = tiling_of(build, edge, which)
    source = build.seen(edge)
    spectra = edge_spectra(build, edge, tiling, source)
    layout = build.layout
    layer = layout.plan.layers[edge.name]
    same = layer.method("forward") == layer.method("weight")
    if layout.training and same and kept_between_passes(tiling.tile, tiling.tiles, source.images):
        kind = isinstance(spectra, PlaneSpectra), spectra.most, layout.padding(edge), edge.border
        for group in range(spectra.groups):
            shape = (*kind, tiling.tile, tiling.new, tiling.dilation, group)
            name = Name(TILES, edge.source, shape)
            spectra.places[group] = build.shared(name, spectra.floats)
    return spectra


def by_columns(build: Build, edge: Edge, tile: Triple) -> bool:
    """Whether products go column by column: tiles are large, both ends packed if one saves lanes so."""
    ends = build.seen(edge), build.images.contributions[edge.name]
    packed = any(saves_lanes(end.images, LANES) for end in ends)
    return packed and all(end.lanes == LANES for end in ends) and leaves_cache(tile)


def edge_spectra(build: Build, edge: Edge, tiling: Tiling, tensor: Tensor) -> TileSpectra:
    """Spectra of an end's tiles in groups that serve products."""
    if not by_columns(build, edge, tiling.tile):
        return grouped_spectra(tiling, tensor)
    images = max(build.seen(edge).images, build.images.contributions[edge.name].images)
    most = tiling.in_lattices(column_group(tiling.tile, tiling.tiles, images))
    return PlaneSpectra(tiling, tensor.images, most)


def grouped_spectra(tiling: Tiling, tensor: Tensor) -> TileSpectra:
    """Spectra of a tensor's tiles in groups that serve products; packed ones of whole lattices.

    Vectors that hold tiles of two lattices would let one wait for the other where tiles overlap.
    """
    most = group_size(tiling.tile, tiling.tiles, tensor.images)
    found = spectra_of(tiling, tensor, most)
    return spectra_of(tiling, tensor, tiling.in_lattices(most)) if found.packed else found


def spectra_of(tiling: Tiling, tensor: Tensor, most: int) -> TileSpectra:
    """Spectra of a tensor's tiles in groups of `most`, packed where that saves lanes."""
    packed = tensor.lanes == LANES and saves_lanes(tensor.images, LANES)
    return TileSpectra(tiling, tensor.images, most, packed=packed)


def tiling_of(build: Build, edge: Edge, which: PassName) -> Tiling:
    layout, tile = build.layout, tile_of(build, edge, which)
    dilation = layout.geometry.dilations[edge.name]
    new = new_points(edge.size, tile)
    return Tiling(tile, new, dilation, layout.shape(edge.target), layout.batch)


def tile_of(build: Build, edge: Edge, which: PassName) -> Triple:
    tile = build.layout.plan.layers[edge.name].method(which).tile
    if tile is None or any(n < k for n, k in zip(tile, edge.size, strict=True)):
        raise PlanError(f"{edge.name}: tiles of {tile} points cannot hold {edge.size} taps")
    return tile
