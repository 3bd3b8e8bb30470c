"""Operations of an update by the textbook, by name of task; padding of lanes and tiles is not counted.

A real transform of n points counts 2.5 n log2 n, a complex multiply-add 8, a real one 2. Minimal
filtering counts its products, and 2 for each coefficient of its transforms that is not 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import log2, prod

from znnpy.engine import Model
from znnpy.engine.convolution.fft.filters import spectra_stay_cached
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd import POINTS, backward_shape, tile_layers
from znnpy.plan.fftw import good_size
from znnpy.plan.tiles import frequencies, tiles_of
from znnpy.plan.types import PASSES, PassName

DIRECT_NAMES: dict[PassName, str] = {
    "forward": "",
    "gradient": " backward",
    "weight": " weight gradient",
}
# Of Winograd's transforms of a cube: coefficients of a line, lines along all axes.
SOURCE_FLOPS = 2 * 22 * (36 + 36 + 36)  # 6^3 points from as many voxels
TARGET_FLOPS = 2 * 18 * (36 + 24 + 16)  # 4^3 voxels from 6^3 points, or back
FILTER_FLOPS = 2 * 14 * (9 + 18 + 36)  # 6^3 points from 3^3 taps, or back


def convolution_flops(model: Model) -> dict[str, float]:
    """Operations of one pass of each conv edge if it ran by direct convolution."""
    return {
        edge.name: _direct(_shape(model, edge))
        for edge in model.network.edges
        if edge.kind == "conv"
    }


def flops_by_name(model: Model) -> dict[str, float]:
    """Operations of all tasks of a name together, in one update, where they are known."""
    found: dict[str, float] = defaultdict(float, whole_image_flops(model))
    shared: set[object] = set()
    for edge in model.network.edges:
        if edge.kind != "conv":
            continue
        shape, layer = _shape(model, edge), model.plan.layers[edge.name]
        for step in PASSES:
            algorithm, tile = layer.method(step)
            if algorithm == "direct":
                found[edge.name + DIRECT_NAMES[step]] += _direct(shape)
            elif algorithm == "winograd":
                found |= _winograd(edge, shape, step)
            elif tile:
                parts = _products(edge, shape, step, tile)
                parts |= _transforms(edge, shape, step, tile, shared)
                for name, flops in parts.items():
                    found[name] += flops
    return dict(found)


def _winograd(edge: Edge, shape: ConvShape, step: PassName) -> dict[str, float]:
    pairs = shape.inputs * shape.outputs
    run = backward_shape(shape) if step == "gradient" else shape
    tiles = shape.batch * prod(map(tile_layers, run.target, run.dilation))
    flops = tiles * (2.0 * POINTS * pairs + run.inputs * SOURCE_FLOPS + run.outputs * TARGET_FLOPS)
    name = edge.name + DIRECT_NAMES[step]
    if step == "weight":
        return {name: flops + pairs * FILTER_FLOPS}
    filters = f"{edge.name} filter points{DIRECT_NAMES[step]}"
    return {name: flops, filters: pairs * FILTER_FLOPS}


def whole_image_flops(model: Model) -> dict[str, float]:
    """The same for layers that run by FFT of whole images, which share spectra and sums at nodes."""
    found: dict[str, float] = defaultdict(float)
    images: dict[tuple[str, Triple], int] = {}
    for edge in model.network.edges:
        passes = [
            step
            for step in PASSES
            if edge.kind == "conv" and model.plan.layers[edge.name].method(step).algorithm == "fft"
        ]
        if passes:
            shape = _shape(model, edge)
            grid = _grid(model, edge)
            images |= _image_transforms(edge, shape, grid, passes)
            for name, flops in _whole_products(edge, shape, grid, passes).items():
                found[name] += flops
    for (name, grid), count in images.items():
        found[name] += count * _transform(grid)
    return dict(found)


def _grid(model: Model, edge: Edge) -> Triple:
    z, y, x = (good_size(size) for size in model.geometry.nodes[edge.source].shape)
    return z, y, x


def _image_transforms(
    edge: Edge, shape: ConvShape, grid: Triple, passes: Collection[PassName]
) -> dict[tuple[str, Triple], int]:
    """Transforms by name and grid: what edges with a node in common share counts once."""
    sources, targets = shape.batch * shape.inputs, shape.batch * shape.outputs
    counts: dict[str, int] = {}
    if "forward" in passes:
        counts[f"{edge.target} inverse"] = targets
    if "gradient" in passes:
        counts[f"{edge.source} gradient inverse"] = sources
    if "forward" in passes or "weight" in passes:
        counts[f"{edge.source} spectra"] = sources
    if "gradient" in passes or "weight" in passes:
        counts[f"{edge.target} gradient spectra"] = targets
    return {(name, grid): count for name, count in counts.items()}


def _whole_products(
    edge: Edge, shape: ConvShape, grid: Triple, passes: Collection[PassName]
) -> dict[str, float]:
    """Products, with the filters' transforms where these are made on the way."""
    words = {"forward": "products", "gradient": "backward products", "weight": "weight gradient"}
    pairs = shape.inputs * shape.outputs
    product = 8.0 * frequencies(grid) * shape.batch * pairs
    filters = pairs * _transform(grid)
    kept = spectra_stay_cached(pairs, grid)
    flops = {
        f"{edge.name} {words[step]}": product + (filters if step == "weight" or not kept else 0.0)
        for step in passes
    }
    return flops | ({f"{edge.name} filter spectra": filters} if kept else {})


def _transform(size: Triple) -> float:
    return 2.5 * voxels(size) * log2(max(2, voxels(size)))


def _shape(model: Model, edge: Edge) -> ConvShape:
    return ConvShape.of(edge, model.network, model.geometry, model.batch)


def _direct(shape: ConvShape) -> float:
    pairs = shape.batch * shape.inputs * shape.outputs
    return 2.0 * pairs * voxels(shape.size) * voxels(shape.target)


def _products(edge: Edge, shape: ConvShape, step: PassName, tile: Triple) -> dict[str, float]:
    words = {"forward": "products", "gradient": "backward products", "weight": "weight products"}
    tiles = tiles_of(shape, tile)
    flops = 8.0 * frequencies(tile) * tiles * shape.inputs * shape.outputs
    return {f"{edge.name} {words[step]}": flops}


def _transforms(
    edge: Edge, shape: ConvShape, step: PassName, tile: Triple, shared: set[object]
) -> dict[str, float]:
    """Tiles of a source that are kept are transformed once for all passes and edges that use them."""
    one = _transform(tile)
    tiles = tiles_of(shape, tile)
    pairs = shape.inputs * shape.outputs
    counts: dict[str, int]
    if step == "gradient":
        counts = {
            f"{edge.name} gradient tiles": tiles * shape.outputs,
            f"{edge.name} backward inverse": tiles * shape.inputs,
            f"{edge.name} filter tiles backward": pairs,
        }
    elif step == "weight":
        counts = {
            f"{edge.name} output tiles": tiles * shape.outputs,
            f"{edge.name} weight inverse": pairs,
        }
    else:
        counts = {
            f"{edge.name} inverse": tiles * shape.outputs,
            f"{edge.name} filter tiles": pairs,
        }
    if step != "gradient":  # where nobody keeps them for the other pass
        counts[f"{edge.name} {step} tiles"] = tiles * shape.inputs
    key = (edge.source, tile, edge.size, shape.dilation)
    if step != "gradient" and key not in shared:
        shared.add(key)
        counts[f"{edge.source} tiles"] = tiles * shape.inputs
    return {name: count * one for name, count in counts.items()}
