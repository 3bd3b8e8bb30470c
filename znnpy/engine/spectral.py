"""Tiled spectral convolution as tasks: transforms of tiles, products of each frequency, and back.

Images are cut into overlapping tiles (overlap-save); see docs/design/spectral.md. Forward and
weight gradient share the spectra of the source's tiles where their tiles are the same.
"""

from __future__ import annotations

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
    Share,
    TileSpectra,
    Tiling,
    Window,
    group_size,
    planes_of,
)
from znnpy.errors import PlanError
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName, parts
from znnpy.plan.tiles import FILTER_RATE, PRODUCT_RATE, frequencies, new_points, tile_seconds

ORIGIN = (0, 0, 0)


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Correlation of the source's tiles with the filters, into the edge's contribution."""
    target, tiling = build.images.contributions[edge.name], _tiling(build, edge, "forward")
    x = _source_spectra(step, build, edge, tiling)
    y = TileSpectra(build, ("tile sums", edge.name), tiling, target.blocks, x.most)
    _products(step, build, edge, x, y, backward=False)
    _emit_images(step, build, y, target, ORIGIN, f"{edge.name} inverse")


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient's tiles with the filters, into what goes back to the source."""
    target, tiling = build.images.backward[edge.name], _tiling(build, edge, "gradient")
    most = group_size(tiling, gradient.blocks)
    dy = TileSpectra(build, ("tile gradients", edge.name), tiling, gradient.blocks, most)
    z, y, x = tiling.overlap
    window = Window((-z, -y, -x), tiling.tile)
    _emit_spectra(step, build, dy, gradient, window, 0, f"{edge.name} gradient tiles")
    dx = TileSpectra(build, ("tile gradient sums", edge.name), tiling, target.blocks, most)
    _products(step, build, edge, dy, dx, backward=True)
    _emit_images(step, build, dx, target, tiling.overlap, f"{edge.name} backward inverse")


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient tiles summed over all tiles, then back to filters."""
    tiling = _tiling(build, edge, "weight")
    x = _source_spectra(step, build, edge, tiling)
    dy = TileSpectra(build, ("tile outputs", edge.name), tiling, gradient.blocks, x.most)
    window = Window(ORIGIN, tiling.step)
    _emit_spectra(step, build, dy, gradient, window, 1, f"{edge.name} output tiles")
    inputs = build.parameters[edge.name].shape[1]
    w = _Filters(build, edge, tiling.tile, "gradients", inputs, gradient.blocks)
    seconds = _product_seconds(tiling, inputs, gradient.blocks)
    reads = [s.region(group) for s in (x, dy) for group in range(x.groups)]
    for low, high in parts(tiling.frequencies, seconds):
        step.add(
            spectral_gradients,
            {
                **_product_words(x, w, dy, 0, low, high),
                "inputs": inputs,
                "groups": x.groups,
                "x_group": x.group_stride,
                "y_group": dy.group_stride,
                "rest": x.count(x.groups - 1),
            },
            name=f"{edge.name} weight products",
            kind="product",
            cost=seconds * (high - low) / tiling.frequencies,
            reads=reads,
            writes=[Region(w.key, low, high)],
        )
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
                    writes=[w.region(lane=(first + low) * w.blocks + block)],
                )


class _Filters:
    """Spectra of an edge's filters or of their gradients: [frequency][input][block][re, im][lane]."""

    def __init__(
        self, build: Build, edge: Edge, tile: Triple, what: str, inputs: int, blocks: int
    ) -> None:
        self.key = (f"tile {what}", edge.name, tile)
        self.tile, self.inputs, self.blocks = tile, inputs, blocks
        self.input_stride = blocks * PAIR
        self.frequency_stride = (inputs * blocks | 1) * PAIR
        self.address = build.scratch(self.key, self.frequency_stride * frequencies(tile))

    def at(self, image: int = 0, block: int = 0, frequency: int = 0) -> int:
        """Address of a complex vector."""
        floats = frequency * self.frequency_stride + image * self.input_stride + block * PAIR
        return self.address + 4 * floats

    def region(self, lane: int = -1) -> Region:
        """All frequencies; `lane` marks what one task alone writes."""
        return Region(self.key, 0, frequencies(self.tile), lane)


def _filters_of(build: Build, edge: Edge, *, backward: bool) -> _Filters:
    outputs, inputs = build.parameters[edge.name].shape[:2]
    layer = build.layout.plan.layers[edge.name]
    tile = layer.gradient_tile if backward else layer.forward_tile
    assert tile is not None
    if backward:
        return _Filters(build, edge, tile, "filters backward", outputs, -(-inputs // LANES))
    return _Filters(build, edge, tile, "filters", inputs, -(-outputs // LANES))


def _tiling(build: Build, edge: Edge, step: PassName) -> Tiling:
    layout, full = build.layout, step == "gradient"
    tile = layout.plan.layers[edge.name].method(step).tile
    if tile is None or any(n < k for n, k in zip(tile, edge.size, strict=True)):
        raise PlanError(f"{edge.name}: tiles of {tile} points cannot hold {edge.size} taps")
    extents = layout.shape(edge.source if full else edge.target)
    dilation = layout.geometry.dilations[edge.name]
    new = new_points(extents, edge.size, dilation, tile, full=full)
    return Tiling(tile, new, dilation, extents, layout.batch)


def _source_spectra(step: Step, build: Build, edge: Edge, tiling: Tiling) -> TileSpectra:
    """Spectra of the source's tiles; emitted once a step for all that ask."""
    source = build.value(edge.source)
    blocks = -(-source.images // LANES)
    most = group_size(tiling, blocks)
    spectra = TileSpectra(build, ("tiles", edge.source), tiling, blocks, most)
    if step.once(spectra.key):
        name = f"{edge.source} tiles"
        _emit_spectra(step, build, spectra, source, Window(ORIGIN, tiling.tile), 0, name)
    return spectra


def _emit_spectra(
    step: Step,
    build: Build,
    spectra: TileSpectra,
    tensor: Tensor,
    window: Window,
    conjugate: int,
    name: str,
) -> None:
    """Transforms of all tiles of a tensor; zeros stand where a tile reaches beyond it."""
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
    for number, (share, first, last) in enumerate(_cuts(spectra, seconds)):
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
            writes=[spectra.region(share.group, lane=number)],
        )


def _emit_images(
    step: Step, build: Build, spectra: TileSpectra, tensor: Tensor, first: Triple, name: str
) -> None:
    """Transforms back of all tiles; the `step` points of each from `first` on are written."""
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
    for number, (share, low, high) in enumerate(_cuts(spectra, seconds)):
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
            reads=[spectra.region(share.group)],
            writes=[
                tensor.region(batch, block, *planes)._replace(lane=number)
                for block in range(low, high)
            ],
        )


def _products(
    step: Step, build: Build, edge: Edge, x: TileSpectra, y: TileSpectra, *, backward: bool
) -> None:
    """Spectra of sums over images, group by group."""
    w = _filters_of(build, edge, backward=backward)
    count = x.tiling.frequencies
    for group in range(x.groups):
        share = x.count(group) / x.tiling.tiles
        seconds = _product_seconds(x.tiling, w.inputs, w.blocks) * share
        for low, high in parts(count, seconds):
            step.add(
                spectral_products,
                {**_product_words(x, w, y, group, low, high), "inputs": w.inputs},
                name=f"{edge.name}{' backward' if backward else ''} products",
                kind="product",
                cost=seconds * (high - low) / count,
                reads=[x.region(group), w.region()],
                writes=[y.region(group, low, high)],
            )


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
                    reads=[w.region()],
                    writes=[
                        parameter.gradient_region(index, index + 1, vector * piece.inputs + low)
                    ],
                )


def _cuts(spectra: TileSpectra, seconds: float) -> list[tuple[Share, int, int]]:
    """(tiles, first block, last block) of each transform task; `seconds` for a tile of one block."""
    found = []
    for share in spectra.shares():
        tiles = share.high - share.low
        for low, high in parts(tiles, tiles * spectra.blocks * seconds):
            part = Share(share.grid, share.low + low, share.low + high, share.group, share.start)
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


def _product_seconds(tiling: Tiling, terms: int, blocks: int) -> float:
    return 8.0 * tiling.tiles * tiling.frequencies * terms * blocks * LANES / PRODUCT_RATE
