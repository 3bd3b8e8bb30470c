"""Operations of an update by the textbook, by task; padding of lanes and tiles is not counted.

A real transform of n points counts 2.5 n log2 n, a complex multiply-add 8, a real one 2. Minimal
filtering counts its products, and 2 for each coefficient of its transforms that is not 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import log2, prod

from znnpy.engine import Model
from znnpy.engine.convolution.fft.filters import spectra_stay_cached
from znnpy.engine.convolution.fft.passes import output_identity, source_identity
from znnpy.engine.tasks.identity import PASS_OF, Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd import POINTS, backward_shape, tile_layers
from znnpy.plan.fftw import good_size
from znnpy.plan.tiles import frequencies, tiles_of
from znnpy.plan.types import PASSES, PassName

Flops = dict[Identity, float]
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


def flops_by_task(model: Model) -> Flops:
    """Operations of all tasks that are the same together, in one update, where they are known."""
    found: Flops = defaultdict(float, whole_image_flops(model))
    shared: set[object] = set()
    for edge in model.network.edges:
        if edge.kind != "conv":
            continue
        shape, layer = _shape(model, edge), model.plan.layers[edge.name]
        for step in PASSES:
            algorithm, tile = layer.method(step)
            if algorithm == "direct":
                found[Identity(edge.name, PASS_OF[step], Part.DIRECT)] += _direct(shape)
            elif algorithm == "winograd":
                found |= _winograd(edge, shape, step)
            elif tile:
                parts = _products(edge, shape, step, tile)
                parts |= _transforms(edge, shape, step, tile, shared)
                for task, flops in parts.items():
                    found[task] += flops
    return dict(found)


def _winograd(edge: Edge, shape: ConvShape, step: PassName) -> Flops:
    pairs = shape.inputs * shape.outputs
    run = backward_shape(shape) if step == "gradient" else shape
    tiles = shape.batch * prod(map(tile_layers, run.target, run.dilation))
    flops = tiles * (2.0 * POINTS * pairs + run.inputs * SOURCE_FLOPS + run.outputs * TARGET_FLOPS)
    task = Identity(edge.name, PASS_OF[step], Part.WINOGRAD)
    if step == "weight":
        return {task: flops + pairs * FILTER_FLOPS}
    return {task: flops, task._replace(part=Part.FILTER_POINTS): pairs * FILTER_FLOPS}


def whole_image_flops(model: Model) -> Flops:
    """The same for layers that run by FFT of whole images, which share spectra and sums at nodes."""
    found: Flops = defaultdict(float)
    images: dict[tuple[Identity, Triple], int] = {}
    for edge in model.network.edges:
        passes = [
            step
            for step in PASSES
            if edge.kind == "conv" and model.plan.layers[edge.name].method(step).algorithm == "fft"
        ]
        if passes:
            shape = _shape(model, edge)
            grid = _grid(model, edge)
            images |= _image_transforms(model, edge, shape, grid, passes)
            for task, flops in _whole_products(edge, shape, grid, passes).items():
                found[task] += flops
    for (task, grid), count in images.items():
        found[task] += count * _transform(grid)
    return dict(found)


def _grid(model: Model, edge: Edge) -> Triple:
    z, y, x = (good_size(size) for size in model.geometry.nodes[edge.source].shape)
    return z, y, x


def _image_transforms(
    model: Model, edge: Edge, shape: ConvShape, grid: Triple, passes: Collection[PassName]
) -> dict[tuple[Identity, Triple], int]:
    """Transforms by task and grid: what edges with a node in common share counts once."""
    sources, targets = shape.batch * shape.inputs, shape.batch * shape.outputs
    counts: dict[Identity, int] = {}
    if "forward" in passes:
        counts[Identity(edge.target, Pass.FORWARD, Part.INVERSE)] = targets
    if "gradient" in passes:
        counts[Identity(edge.source, Pass.BACKWARD, Part.INVERSE)] = sources
    if "forward" in passes or "weight" in passes:
        counts[source_identity(model.network, model.plan, edge)] = sources
    if "gradient" in passes or "weight" in passes:
        counts[output_identity(model.network, model.plan, edge)] = targets
    return {(task, grid): count for task, count in counts.items()}


def _whole_products(
    edge: Edge, shape: ConvShape, grid: Triple, passes: Collection[PassName]
) -> Flops:
    """Products, with the filters' transforms where these are made on the way."""
    pairs = shape.inputs * shape.outputs
    product = 8.0 * frequencies(grid) * shape.batch * pairs
    filters = pairs * _transform(grid)
    kept = spectra_stay_cached(pairs, grid)
    flops = {
        Identity(edge.name, PASS_OF[step], Part.PRODUCTS): product
        + (filters if step == "weight" or not kept else 0.0)
        for step in passes
    }
    serves = Pass.FORWARD if "forward" in passes else Pass.BACKWARD
    return flops | ({Identity(edge.name, serves, Part.FILTER_SPECTRA): filters} if kept else {})


def _transform(size: Triple) -> float:
    return 2.5 * voxels(size) * log2(max(2, voxels(size)))


def _shape(model: Model, edge: Edge) -> ConvShape:
    return ConvShape.of(edge, model.network, model.geometry, model.batch)


def _direct(shape: ConvShape) -> float:
    pairs = shape.batch * shape.inputs * shape.outputs
    return 2.0 * pairs * voxels(shape.size) * voxels(shape.target)


def _products(edge: Edge, shape: ConvShape, step: PassName, tile: Triple) -> Flops:
    tiles = tiles_of(shape, tile)
    flops = 8.0 * frequencies(tile) * tiles * shape.inputs * shape.outputs
    return {Identity(edge.name, PASS_OF[step], Part.PRODUCTS): flops}


def _transforms(
    edge: Edge, shape: ConvShape, step: PassName, tile: Triple, shared: set[object]
) -> Flops:
    """Tiles of a source that are kept are transformed once for all passes and edges that use them."""
    one = _transform(tile)
    tiles = tiles_of(shape, tile)
    pairs = shape.inputs * shape.outputs
    inputs, outputs = tiles * shape.inputs, tiles * shape.outputs
    counts: dict[Part, int]
    if step == "gradient":
        counts = {Part.OUTPUT_TILES: outputs, Part.INVERSE: inputs, Part.FILTER_TILES: pairs}
    elif step == "weight":  # source tiles where nobody keeps them from the forward pass
        counts = {Part.OUTPUT_TILES: outputs, Part.INVERSE: pairs, Part.TILES: inputs}
    else:
        counts = {Part.INVERSE: outputs, Part.FILTER_TILES: pairs, Part.TILES: inputs}
    found = {Identity(edge.name, PASS_OF[step], part): n * one for part, n in counts.items()}
    key = (edge.source, tile, edge.size, shape.dilation)
    if step != "gradient" and key not in shared:
        shared.add(key)
        found[Identity(edge.source, Pass.FORWARD, Part.KEPT_TILES)] = inputs * one
    return found
