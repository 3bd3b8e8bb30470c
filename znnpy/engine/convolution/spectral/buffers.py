"""Buffers for the spectra of an edge's passes: kept ones, and rings that are reused group by group."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution import ring_buffers
from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra, TileSpectra, Tiling
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.polyphase import Views
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part, Pass
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName
from znnpy.plan.polyphase import Phases, phases_of
from znnpy.plan.tiles import (
    column_group,
    frequencies,
    group_size,
    kept_between_passes,
    leaves_cache,
    new_points,
    over_tiles,
    saves_lanes,
)

TILES = Use("spectra of tiles", "source spectra")
FILTER_TILES = Use("spectra of filters for tiles", "filter spectra")
RING = Use("spectra of groups of tiles")


class Filters:
    """Spectra of an edge's filters or of their gradients: [frequency][input][block][re, im][lane].

    Images of a source that is cut into phases count once for each, idle lanes included.
    """

    def __init__(self, tile: Triple, inputs: int, blocks: int) -> None:
        self.tile, self.inputs, self.blocks = tile, inputs, blocks
        self.input_stride = blocks * PAIR
        # An odd number of pairs of lines, so that frequencies do not fall on one set of the caches.
        self.frequency_stride = (inputs * blocks | 1) * PAIR
        self.floats = self.frequency_stride * frequencies(tile)
        self.place = Buffer(Name(FILTER_TILES))

    def at(self, image: int = 0, block: int = 0, frequency: int = 0) -> int:
        """Return the address of a complex vector."""
        floats = frequency * self.frequency_stride + image * self.input_stride + block * PAIR
        return self.place.address + 4 * floats


def ring_slot(
    step: Step, build: Build, edge: Edge, serves: Pass, part: Part, spectra: TileSpectra, group: int
) -> Buffer:
    """Return the place of a group of tiles in a ring of buffers; declare a gate that waits until it is free."""
    ring = Name(RING, edge.name, (serves, part))
    return ring_buffers.ring_slot(step, build, ring, spectra.floats, group, spectra.groups)


def phases_of_edge(build: Build, edge: Edge) -> Phases:
    """Return the phases into which an edge's filters, or those of the reverse direction, are split."""
    return phases_of(edge.size, edge.stride, build.layout.geometry.dilations[edge.name])


def is_transposed(edge: Edge) -> bool:
    """Return whether an edge's filters are those of the convolution in the reverse direction."""
    return edge.kind == "conv_transpose"


def along(edge: Edge) -> PassName:
    """Return the pass that goes with the filters, from tiles of phases."""
    # A transposed convolution is the passes of the other convolution with roles exchanged
    # (docs/design/spectral.md, "Strides").
    return "gradient" if is_transposed(edge) else "forward"


def against(edge: Edge) -> PassName:
    """Return the pass that goes against the filters, to tiles of phases."""
    return "forward" if is_transposed(edge) else "gradient"


def is_few(build: Build, edge: Edge) -> bool:
    """Return whether lanes go over tiles and phases of an edge's source."""
    # By the machine's lanes, unlike estimates, which count those of the widest vector.
    source, phases = build.seen(edge), phases_of_edge(build, edge)
    return source.lanes == 1 and over_tiles(source.channels, phases.count, LANES)


def source_spectra(build: Build, edge: Edge, source: Views, which: PassName) -> TileSpectra:
    """Return spectra of the source's tiles: kept where the forward pass and the weight gradient share them."""
    tiling = tiling_of(build, edge, which)
    spectra = edge_spectra(build, edge, tiling, source)
    layout = build.layout
    layer = layout.plan.layers[edge.name]
    same = layer.method("forward") == layer.method("weight") and not is_transposed(edge)
    if layout.training and same and kept_between_passes(tiling.tile, tiling.tiles, source.channels):
        # All that decides what the spectra hold is in the name: edges that agree on it share them,
        # others never.
        kind = isinstance(spectra, PlaneSpectra), spectra.most, layout.padding(edge), edge.border
        phases = phases_of_edge(build, edge)
        for group in range(spectra.groups):
            shape = (
                *kind,
                phases.counts,
                phases.apart,
                phases.stride,
                tiling.tile,
                tiling.new,
                tiling.dilation,
                tiling.extents,
                group,
            )
            name = Name(TILES, edge.source, shape)
            spectra.places[group] = build.shared(name, spectra.floats)
    return spectra


def by_columns(build: Build, edge: Edge, tile: Triple) -> bool:
    """Return whether products go column by column: tiles are large, and packing saves lanes at one end at least.

    Phases are not packed. Column products exchange filters in the pass to the source, transposed layers in the other.
    """
    if phases_of_edge(build, edge).split or is_transposed(edge):
        return False
    ends = build.seen(edge), build.maps.contributions[edge.name]
    packed = any(saves_lanes(end.channels, LANES) for end in ends)
    return packed and all(end.lanes == LANES for end in ends) and leaves_cache(tile)


def edge_spectra(build: Build, edge: Edge, tiling: Tiling, end: Views) -> TileSpectra:
    """Return spectra of an end's tiles in groups that serve products."""
    if not by_columns(build, edge, tiling.tile):
        return grouped_spectra(tiling, end)
    # One group size for both ends, by the larger one: a task multiplies the same tiles of both.
    images = max(build.seen(edge).channels, build.maps.contributions[edge.name].channels)
    most = tiling.in_lattices(column_group(tiling.tile, tiling.tiles, images))
    return PlaneSpectra(tiling, end.channels, most)


def grouped_spectra(tiling: Tiling, images: Views) -> TileSpectra:
    """Return spectra of the images' tiles in groups that serve products; packed ones of whole lattices.

    Vectors that hold tiles of two lattices would let one wait for the other where tiles overlap.
    """
    # By sizes alone: groups decide the order of additions.
    most = group_size(tiling.tile, tiling.tiles, images.channels)
    found = spectra_of(tiling, images, most)
    return spectra_of(tiling, images, tiling.in_lattices(most)) if found.packed else found


def spectra_of(tiling: Tiling, images: Views, most: int) -> TileSpectra:
    """Return spectra of the images' tiles in groups of `most`, packed where that saves lanes."""
    packed = images.lanes == LANES and saves_lanes(images.channels, LANES)
    return TileSpectra(tiling, images.channels, most, packed=packed)


def tiling_of(build: Build, edge: Edge, which: PassName) -> Tiling:
    layout, tile = build.layout, tile_of(build, edge, which)
    phases = phases_of_edge(build, edge)
    # By the taps of the first phase, which has the most; the others leave some points to zeros.
    new = new_points(phases.size, tile)
    places = layout.shape(edge.source if is_transposed(edge) else edge.target)
    return Tiling(tile, new, phases.dilation, places, layout.batch)


def tile_of(build: Build, edge: Edge, which: PassName) -> Triple:
    tile, taps = (
        build.layout.plan.layers[edge.name].method(which).tile,
        phases_of_edge(build, edge).size,
    )
    if tile is None or any(n < k for n, k in zip(tile, taps, strict=True)):
        raise PlanError(f"{edge.name}: tiles of {tile} points cannot hold {taps} taps")
    return tile
