"""Where the spectra of an edge's passes lie: kept ones, and rings of buffers that all layers share."""

from __future__ import annotations

from collections.abc import Iterable

from znnpy_kernels.lanes import LANES

from znnpy.engine.build import Build
from znnpy.engine.step import Step
from znnpy.engine.tiles import PAIR, Place, TileSpectra, Tiling
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName
from znnpy.plan.tiles import frequencies, group_size, new_points

# Rings of buffers: of spectra that are multiplied, of sums, of filter gradients.
TERMS, SUMS, GRADIENTS = "terms", "sums", "gradients"
MOST_AHEAD = 4  # groups of tiles under way beside the two that one worker alternates between


class Filters:
    """Spectra of an edge's filters or of their gradients: [frequency][input][block][re, im][lane]."""

    def __init__(self, tile: Triple, inputs: int, blocks: int) -> None:
        self.tile, self.inputs, self.blocks = tile, inputs, blocks
        self.input_stride = blocks * PAIR
        self.frequency_stride = (inputs * blocks | 1) * PAIR
        self.floats = self.frequency_stride * frequencies(tile)
        self.place = Place(0, ())

    def at(self, image: int = 0, block: int = 0, frequency: int = 0) -> int:
        """Address of a complex vector."""
        floats = frequency * self.frequency_stride + image * self.input_stride + block * PAIR
        return self.place.address + 4 * floats


def slot(step: Step, build: Build, ring: str) -> Place:
    """The next buffer of a ring, large enough for all layers: the more workers, the more buffers."""
    slots = 1 if ring == GRADIENTS else 2 + min(build.layout.workers, MOST_AHEAD)
    key = ("tile ring", ring, step.turn(ring, slots))
    return Place(build.scratch(key, ring_floats(build, ring)), key)


def ring_floats(build: Build, ring: str) -> int:
    """Floats of the buffers of one ring: what the layer that needs most needs."""
    if not build.ring_sizes:
        for edge in build.layout.network.edges:
            for name, floats in _ring_needs(build, edge) if edge.kind == "conv" else ():
                build.ring_sizes[name] = max(floats, build.ring_sizes.get(name, 0))
    return build.ring_sizes[ring]


def _ring_needs(build: Build, edge: Edge) -> Iterable[tuple[str, int]]:
    """(ring, floats) of every buffer that an edge's passes take."""
    outputs, inputs = (-(-n // LANES) for n in build.parameters[edge.name].shape[:2])
    layer, training = build.layout.plan.layers[edge.name], build.layout.training
    if layer.forward == "spectral":
        x = source_spectra(build, edge, "forward")
        yield TERMS, 0 if x.places else x.floats
        yield SUMS, TileSpectra(x.tiling, outputs, x.most).floats
    if training and layer.weight == "spectral":
        x = source_spectra(build, edge, "weight")
        yield TERMS, 0 if x.places else x.floats
        yield TERMS, TileSpectra(x.tiling, outputs, x.most).floats
        rows = build.parameters[edge.name].shape[1]
        yield GRADIENTS, Filters(x.tiling.tile, rows, outputs).floats
    if edge.name in build.images.backward and layer.gradient == "spectral":
        tiling = tiling_of(build, edge, "gradient")
        most = group_size(tiling.tile, tiling.tiles, outputs)
        yield TERMS, TileSpectra(tiling, outputs, most).floats
        yield SUMS, TileSpectra(tiling, inputs, most).floats


def source_spectra(build: Build, edge: Edge, step: PassName) -> TileSpectra:
    """Spectra of the source's tiles: kept where the forward pass and the weight gradient share them."""
    tiling = tiling_of(build, edge, step)
    blocks = -(-build.value(edge.source).images // LANES)
    spectra = TileSpectra(tiling, blocks, group_size(tiling.tile, tiling.tiles, blocks))
    layer = build.layout.plan.layers[edge.name]
    if build.layout.training and layer.method("forward") == layer.method("weight"):
        for group in range(spectra.groups):
            key = ("tiles", edge.source, tiling.tile, tiling.step, tiling.dilation, group)
            spectra.places[group] = Place(build.scratch(key, spectra.floats), key)
    return spectra


def tiling_of(build: Build, edge: Edge, step: PassName) -> Tiling:
    layout, full = build.layout, step == "gradient"
    tile = tile_of(build, edge, step)
    extents = layout.shape(edge.source if full else edge.target)
    dilation = layout.geometry.dilations[edge.name]
    new = new_points(extents, edge.size, dilation, tile, full=full)
    return Tiling(tile, new, dilation, extents, layout.batch)


def tile_of(build: Build, edge: Edge, step: PassName) -> Triple:
    tile = build.layout.plan.layers[edge.name].method(step).tile
    if tile is None or any(n < k for n, k in zip(tile, edge.size, strict=True)):
        raise PlanError(f"{edge.name}: tiles of {tile} points cannot hold {edge.size} taps")
    return tile
