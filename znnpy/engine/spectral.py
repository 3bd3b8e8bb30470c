"""Tiled spectral convolution as tasks: transforms of tiles, products of each frequency, and back.

Images are cut into overlapping tiles (overlap-save); see docs/design/spectral.md. Forward and
weight gradient share the spectra of the source's tiles where their tiles are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from znnpy_kernels.filter_tiles import filter_gradient_tiles, filter_tiles
from znnpy_kernels.lanes import LANES
from znnpy_kernels.spectral_gemm import spectral_gradients, spectral_products
from znnpy_kernels.tile_spectra import scratch_floats, tile_images, tile_spectra

from znnpy.engine.build import Build
from znnpy.engine.dependencies import Region
from znnpy.engine.step import Step
from znnpy.engine.tensors import Tensor
from znnpy.engine.tiles import (
    PAIR,
    Place,
    Share,
    TileSpectra,
    Tiling,
    Window,
    planes_of,
)
from znnpy.errors import PlanError
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName, parts
from znnpy.plan.tiles import (
    FILTER_RATE,
    PRODUCT_RATE,
    frequencies,
    group_size,
    new_points,
    tile_seconds,
)

ORIGIN = (0, 0, 0)
# Rings of buffers: of spectra that are multiplied, of sums, of filter gradients.
TERMS, SUMS, GRADIENTS = "terms", "sums", "gradients"
MOST_AHEAD = 4  # groups of tiles under way beside the two that one worker alternates between


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Correlation of the source's tiles with the filters, into the edge's contribution."""
    target = build.images.contributions[edge.name]
    x = _source_spectra(build, edge, "forward")
    y = TileSpectra(x.tiling, target.blocks, x.most)
    w = _filters_of(build, edge, backward=False)
    for group in range(x.groups):
        _emit_source(step, build, edge, x, group)
        y.places[group] = _slot(step, build, SUMS)
        _products(step, edge, x, w, y, group, "products")
        _emit_images(step, build, y, target, ORIGIN, group, f"{edge.name} inverse")


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient's tiles with the filters, into what goes back to the source."""
    target, tiling = build.images.backward[edge.name], _tiling(build, edge, "gradient")
    dy = TileSpectra(
        tiling, gradient.blocks, group_size(tiling.tile, tiling.tiles, gradient.blocks)
    )
    dx = TileSpectra(tiling, target.blocks, dy.most)
    w = _filters_of(build, edge, backward=True)
    z, y, x = tiling.overlap
    window = Window((-z, -y, -x), tiling.tile)
    for group in range(dy.groups):
        dy.places[group] = _slot(step, build, TERMS)
        dx.places[group] = _slot(step, build, SUMS)
        _emit_spectra(step, build, dy, gradient, window, 0, group, f"{edge.name} gradient tiles")
        _products(step, edge, dy, w, dx, group, "backward products")
        _emit_images(
            step, build, dx, target, tiling.overlap, group, f"{edge.name} backward inverse"
        )


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient tiles summed over all tiles, then back to filters."""
    x = _source_spectra(build, edge, "weight")
    dy = TileSpectra(x.tiling, gradient.blocks, x.most)
    window = Window(ORIGIN, x.tiling.step)
    w = _gradients_of(step, build, edge)
    for group in range(x.groups):
        _emit_source(step, build, edge, x, group)
        dy.places[group] = _slot(step, build, TERMS)
        _emit_spectra(step, build, dy, gradient, window, 1, group, f"{edge.name} output tiles")
        _weight_products(step, edge, x, w, dy, group)
    _emit_gradients(step, build, edge, w)


def derive(step: Step, build: Build, edge: Edge, *, backward: bool) -> None:
    """Spectra of all filters, after each update; `backward`: with inputs and outputs exchanged."""
    parameter = build.parameters[edge.name]
    w = _filters_of(build, edge, backward=backward)
    outputs = parameter.shape[0]
    for piece in parameter.pieces:
        if backward:
            images = min(piece.width, outputs - piece.first_output)
            starts = [(0, piece.first_output, piece.first_input // LANES)]
            lanes = {"source_input": 1, "source_lane": piece.width, "lanes": piece.inputs}
        else:
            images = piece.inputs
            starts = [
                (v * LANES, piece.first_input, piece.first_output // LANES + v)
                for v in range(piece.width // LANES)
            ]
            lanes = {"source_input": piece.width, "source_lane": 1, "lanes": LANES}
        source_z, source_y, source_x = parameter.tap_strides(piece.first_output, piece.first_input)
        for offset, first, block in starts:
            for low, high in parts(images, images * tile_seconds(w.tile, FILTER_RATE)):
                step.add(
                    filter_tiles,
                    {
                        **lanes,
                        "source": parameter.values
                        + 4 * (piece.start + offset + low * lanes["source_input"]),
                        "source_z": source_z,
                        "source_y": source_y,
                        "source_x": source_x,
                        "inputs": high - low,
                        **_sizes("taps", edge.size),
                        **_sizes("size", w.tile),
                        "target": w.at(first + low, block),
                        "target_frequency": w.frequency_stride,
                        "target_input": w.input_stride,
                        "conjugate": 0 if backward else 1,
                        **build.worker_scratch(scratch_floats(w.tile)),
                    },
                    name=f"{edge.name} filter tiles{' backward' if backward else ''}",
                    kind="transform",
                    cost=(high - low) * tile_seconds(w.tile, FILTER_RATE),
                    reads=[parameter.values_region()],
                    writes=[w.place.region(lane=(first + low) * w.blocks + block)],
                )


class _Filters:
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


def _filters_of(build: Build, edge: Edge, *, backward: bool) -> _Filters:
    """Room for the spectra of an edge's filters, kept from one update to the next."""
    outputs, inputs = build.parameters[edge.name].shape[:2]
    tile = _tile(build, edge, "gradient" if backward else "forward")
    terms, images = (outputs, inputs) if backward else (inputs, outputs)
    w = _Filters(tile, terms, -(-images // LANES))
    key = ("tile filters", edge.name, backward)
    w.place = Place(build.scratch(key, w.floats), key)
    return w


def _gradients_of(step: Step, build: Build, edge: Edge) -> _Filters:
    """Room for the spectra of an edge's filter gradients."""
    outputs, inputs = build.parameters[edge.name].shape[:2]
    w = _Filters(_tile(build, edge, "weight"), inputs, -(-outputs // LANES))
    w.place = _slot(step, build, GRADIENTS)
    return w


def _slot(step: Step, build: Build, ring: str) -> Place:
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
        x = _source_spectra(build, edge, "forward")
        yield TERMS, 0 if x.places else x.floats
        yield SUMS, TileSpectra(x.tiling, outputs, x.most).floats
    if training and layer.weight == "spectral":
        x = _source_spectra(build, edge, "weight")
        yield TERMS, 0 if x.places else x.floats
        yield TERMS, TileSpectra(x.tiling, outputs, x.most).floats
        rows = build.parameters[edge.name].shape[1]
        yield GRADIENTS, _Filters(x.tiling.tile, rows, outputs).floats
    if edge.name in build.images.backward and layer.gradient == "spectral":
        tiling = _tiling(build, edge, "gradient")
        most = group_size(tiling.tile, tiling.tiles, outputs)
        yield TERMS, TileSpectra(tiling, outputs, most).floats
        yield SUMS, TileSpectra(tiling, inputs, most).floats


def _tile(build: Build, edge: Edge, step: PassName) -> Triple:
    tile = build.layout.plan.layers[edge.name].method(step).tile
    if tile is None or any(n < k for n, k in zip(tile, edge.size, strict=True)):
        raise PlanError(f"{edge.name}: tiles of {tile} points cannot hold {edge.size} taps")
    return tile


def _tiling(build: Build, edge: Edge, step: PassName) -> Tiling:
    layout, full = build.layout, step == "gradient"
    tile = _tile(build, edge, step)
    extents = layout.shape(edge.source if full else edge.target)
    dilation = layout.geometry.dilations[edge.name]
    new = new_points(extents, edge.size, dilation, tile, full=full)
    return Tiling(tile, new, dilation, extents, layout.batch)


def _source_spectra(build: Build, edge: Edge, step: PassName) -> TileSpectra:
    """Spectra of the source's tiles: kept where the forward pass and the weight gradient share them."""
    tiling = _tiling(build, edge, step)
    blocks = -(-build.value(edge.source).images // LANES)
    spectra = TileSpectra(tiling, blocks, group_size(tiling.tile, tiling.tiles, blocks))
    layer = build.layout.plan.layers[edge.name]
    if build.layout.training and layer.method("forward") == layer.method("weight"):
        for group in range(spectra.groups):
            key = ("tiles", edge.source, tiling.tile, tiling.step, tiling.dilation, group)
            spectra.places[group] = Place(build.scratch(key, spectra.floats), key)
    return spectra


def _emit_source(step: Step, build: Build, edge: Edge, x: TileSpectra, group: int) -> None:
    """Transforms of a group of the source's tiles; kept ones once a step for all that ask."""
    if group not in x.places:
        x.places[group] = _slot(step, build, TERMS)
    elif not step.once(x.places[group].key):
        return
    source, window = build.value(edge.source), Window(ORIGIN, x.tiling.tile)
    _emit_spectra(step, build, x, source, window, 0, group, f"{edge.source} tiles")


def _emit_spectra(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    tensor: Tensor,
    window: Window,
    conjugate: int,
    group: int,
    name: str,
) -> None:
    """Transforms of a group of a tensor's tiles; zeros stand where a tile reaches beyond it."""
    tiling = spectra.tiling
    planar = tensor.lanes == 1
    seconds = tile_seconds(tiling.tile)
    words = {
        "source_block": tensor.block_stride * (LANES if planar else 1),
        **_strides("source", tensor, tiling),
        "source_lane": tensor.block_stride if planar else 1,
        **_sizes("origin", window.origin),
        **_sizes("count", window.count),
        "target_frequency": spectra.frequency_stride,
        "target_tile": spectra.tile_stride,
        "target_block": PAIR,
        "conjugate": conjugate,
        **build.worker_scratch(scratch_floats(tiling.tile)),
    }
    for number, (share, first, last) in enumerate(_cuts(spectra, group, seconds)):
        held = range(first * LANES, min(tensor.images, last * LANES)) if planar else None
        planes = planes_of(tensor, tiling, share, window)
        step.add(
            tile_spectra,
            {
                **words,
                **_tile_words(tiling, share),
                "source": tensor.at(
                    share.grid.batch, first * (LANES if planar else 1), *share.grid.lattice
                ),
                "channels": tensor.images - first * LANES,
                "blocks": last - first,
                **_sizes("limit", tiling.lattice_shape(tensor.shape, share.grid.lattice)),
                "target": spectra.at(share.group, share.grid.first - share.start, first),
            },
            name=name,
            kind="transform",
            cost=seconds * (share.high - share.low) * (last - first),
            reads=[
                tensor.region(share.grid.batch, block, *planes)
                for block in held or range(first, last)
                if planes
            ],
            # The first waits until the buffer is free; what was declared before it need not be kept.
            writes=[spectra.places[group].region(lane=number if number else -1)],
        )


def _emit_images(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    tensor: Tensor,
    first: Triple,
    group: int,
    name: str,
) -> None:
    """Transforms back of a group; the `step` points of each tile from `first` on are written."""
    tiling = spectra.tiling
    seconds = tile_seconds(tiling.tile)
    window = Window(ORIGIN, tiling.step)
    words = {
        "source_frequency": spectra.frequency_stride,
        "source_tile": spectra.tile_stride,
        "source_block": PAIR,
        **_sizes("first", first),
        **_sizes("origin", ORIGIN),
        **_sizes("count", tiling.step),
        "target_block": tensor.block_stride,
        **_strides("target", tensor, tiling),
        "accumulate": 0,
        "scale": 1.0 / voxels(tiling.tile),
        **build.worker_scratch(scratch_floats(tiling.tile)),
    }
    for share, low, high in _cuts(spectra, group, seconds):
        planes = planes_of(tensor, tiling, share, window)
        assert planes is not None
        batch, lattice = share.grid.batch, share.grid.lattice
        step.add(
            tile_images,
            {
                **words,
                **_tile_words(tiling, share),
                "source": spectra.at(share.group, share.grid.first - share.start, low),
                "blocks": high - low,
                **_sizes("limit", tiling.lattice_shape(tensor.shape, lattice)),
                "target": tensor.at(batch, low, *lattice),
            },
            name=name,
            kind="transform",
            cost=seconds * (share.high - share.low) * (high - low),
            reads=[spectra.places[group].region()],
            writes=[
                tensor.region(batch, block, *planes)._replace(lane=share.grid.first + share.low)
                for block in range(low, high)
            ],
        )


def _products(
    step: Step, edge: Edge, x: TileSpectra, w: _Filters, y: TileSpectra, group: int, name: str
) -> None:
    """Spectra of the sums over images, of one group of tiles."""
    count = x.tiling.frequencies
    seconds = _product_seconds(x, w, group)
    for low, high in parts(count, seconds):
        step.add(
            spectral_products,
            _product_words(x, w, y, group, low, high),
            name=f"{edge.name} {name}",
            kind="product",
            cost=seconds * (high - low) / count,
            reads=[x.places[group].region(), w.place.region()],
            writes=[_claimed(y.places[group], low, high)],
        )


def _weight_products(
    step: Step, edge: Edge, x: TileSpectra, w: _Filters, dy: TileSpectra, group: int
) -> None:
    """Add one group of tiles to the spectra of filter gradients."""
    count = x.tiling.frequencies
    seconds = _product_seconds(x, w, group)
    for low, high in parts(count, _product_seconds(x, w, 0)):
        step.add(
            spectral_gradients,
            {**_product_words(x, w, dy, group, low, high), "accumulate": int(group > 0)},
            name=f"{edge.name} weight products",
            kind="product",
            cost=seconds * (high - low) / count,
            reads=[x.places[group].region(), dy.places[group].region()],
            writes=[
                w.place.region(low, high) if group else _claimed(w.place, low, high),
            ],
        )


def _claimed(place: Place, low: int, high: int) -> Region:
    """What a product writes; the first of a buffer waits until all of it is free."""
    return place.region(low, high) if low else place.region()


def _product_words(
    x: TileSpectra, w: _Filters, y: TileSpectra, group: int, low: int, high: int
) -> dict[str, int]:
    return {
        "x": x.at(group, frequency=low),
        "x_frequency": x.frequency_stride,
        "x_tile": x.tile_stride,
        "x_block": PAIR,
        "w": w.at(frequency=low),
        "w_frequency": w.frequency_stride,
        "w_input": w.input_stride,
        "w_block": PAIR,
        "y": y.at(group, frequency=low),
        "y_frequency": y.frequency_stride,
        "y_tile": y.tile_stride,
        "y_block": PAIR,
        "frequencies": high - low,
        "tiles": x.count(group),
        "inputs": w.inputs,
        "blocks": y.blocks,
    }


def _emit_gradients(step: Step, build: Build, edge: Edge, w: _Filters) -> None:
    """Transforms back of the sums over tiles, into the packed gradient."""
    parameter = build.parameters[edge.name]
    seconds = tile_seconds(w.tile, FILTER_RATE)
    for index, piece in enumerate(parameter.pieces):
        target_z, target_y, target_x = parameter.tap_strides(piece.first_output, piece.first_input)
        for vector in range(piece.width // LANES):
            block = piece.first_output // LANES + vector
            for low, high in parts(piece.inputs, piece.inputs * seconds):
                step.add(
                    filter_gradient_tiles,
                    {
                        "source": w.at(piece.first_input + low, block),
                        "source_frequency": w.frequency_stride,
                        "source_input": w.input_stride,
                        "inputs": high - low,
                        **_sizes("taps", edge.size),
                        **_sizes("size", w.tile),
                        "target": parameter.gradient
                        + 4 * (piece.start + vector * LANES + low * piece.width),
                        "target_input": piece.width,
                        "target_z": target_z,
                        "target_y": target_y,
                        "target_x": target_x,
                        "accumulate": 0,
                        "scale": 1.0 / voxels(w.tile),
                        **build.worker_scratch(scratch_floats(w.tile)),
                    },
                    name=f"{edge.name} weight inverse",
                    kind="transform",
                    cost=(high - low) * seconds,
                    reads=[w.place.region()],
                    writes=[
                        parameter.gradient_region(index, index + 1, vector * piece.inputs + low)
                    ],
                )


def _cuts(spectra: TileSpectra, group: int, seconds: float) -> list[tuple[Share, int, int]]:
    """(tiles, first block, last block) of each transform task; `seconds` for a tile of one block."""
    found = []
    for share in spectra.shares(group):
        tiles = share.high - share.low
        for low, high in parts(tiles, tiles * spectra.blocks * seconds):
            part = Share(share.grid, share.low + low, share.low + high, group, share.start)
            for first, last in parts(spectra.blocks, (high - low) * spectra.blocks * seconds):
                found.append((part, first, last))
    return found


def _tile_words(tiling: Tiling, share: Share) -> dict[str, int]:
    return {
        "tiles_y": share.grid.counts[1],
        "tiles_x": share.grid.counts[2],
        "tile0": share.low,
        "tile1": share.high,
        **_sizes("step", tiling.step),
        **_sizes("size", tiling.tile),
    }


def _strides(prefix: str, tensor: Tensor, tiling: Tiling) -> dict[str, int]:
    """Strides of a lattice."""
    z, y, x = tiling.dilation
    return {
        f"{prefix}_z": tensor.z_stride * z,
        f"{prefix}_y": tensor.y_stride * y,
        f"{prefix}_x": tensor.lanes * x,
    }


def _sizes(prefix: str, triple: Triple) -> dict[str, int]:
    return {f"{prefix}_{axis}": size for axis, size in zip("zyx", triple, strict=True)}


def _product_seconds(x: TileSpectra, w: _Filters, group: int) -> float:
    return 8.0 * x.count(group) * x.tiling.frequencies * w.inputs * w.blocks * LANES / PRODUCT_RATE
