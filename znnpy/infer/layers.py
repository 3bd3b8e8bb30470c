"""Algorithms and estimated cost of a forward pass alone, for patches of any size."""

from __future__ import annotations

from collections.abc import Iterator

from znnpy_kernels.fft.lines import MOST_TAPS

from znnpy.geometry import Geometry, voxels
from znnpy.network.types import Network, Node
from znnpy.plan import (
    Choice,
    ConvShape,
    LayerPlan,
    Method,
    Plan,
    choose,
    fft_seconds,
)
from znnpy.plan.choose import MOST_BYTES
from znnpy.plan.cost import FEW_IMAGES, LANES_COUNTED, direct_flops, fft_bytes
from znnpy.plan.tiles import best_tiles, spectral_costs
from znnpy.plan.winograd import takes, winograd_seconds

TILES = 8  # sizes of tiles that are compared
# Rates of one core within forward passes of large patches, whose images no cache holds.
DIRECT_RATE, FEW_INPUTS_RATE = 170e9, 85e9  # flop/s, lanes included
STREAM_RATE = 14e9  # bytes/s
MAXIMUM_SECONDS = 2.7e-10  # of one value, along one axis of a max-filter
FUNCTION_SECONDS = 6e-10  # of one value of what no convolution does in passing
PASSED = ("linear", "relu")


def forward_plan(network: Network, geometry: Geometry, conv: Choice) -> Plan:
    """The cheapest algorithm of each layer by estimate, or the one that `conv` names.

    Depends on network and sizes alone, so that the same patch is computed the same everywhere.
    """
    planar = {e.name for e in network.edges if network.node(e.source).kind == "input"}
    if conv != "auto":
        return choose(network, geometry, 1, conv, lambda _: {}, training=False)
    return Plan(
        {
            name: _cheapest(shape, planar=name in planar)
            for name, shape in _convolutions(network, geometry)
        }
    )


def forward_seconds(network: Network, geometry: Geometry, plan: Plan) -> float:
    """Estimated seconds of one forward pass on one core."""
    layers = sum(
        seconds_by(plan.layers[name].method("forward"), shape)
        for name, shape in _convolutions(network, geometry)
    )
    return layers + sum(_node_seconds(network, geometry, node) for node in network.nodes)


def _node_seconds(network: Network, geometry: Geometry, node: Node) -> float:
    """What is not convolution: maxima, sums of edges, functions, copies."""
    edges = network.incoming(node.name)
    values = _padded(node.images) * voxels(geometry.nodes[node.name].shape)
    seconds = 0.0
    for edge in edges:
        if edge.kind.startswith("max"):
            seconds += values * MAXIMUM_SECONDS * sum(size > 1 for size in edge.size)
        elif edge.kind != "conv":
            seconds += 8 * values / STREAM_RATE
    seconds += 12 * values * max(0, len(edges) - 1) / STREAM_RATE
    passed = len(edges) == 1 and edges[0].kind == "conv" and node.function in PASSED
    return seconds + (FUNCTION_SECONDS * values if node.kind == "transfer" and not passed else 0.0)


def _padded(images: int) -> int:
    return images if images <= FEW_IMAGES else -(-images // LANES_COUNTED) * LANES_COUNTED


def seconds_by(method: Method, shape: ConvShape) -> float:
    """Estimated seconds of a layer's forward pass by one method."""
    if method.algorithm == "direct":
        rate = DIRECT_RATE if shape.inputs >= FEW_IMAGES else FEW_INPUTS_RATE
        values = _padded(shape.inputs) * voxels(shape.source)
        values += _padded(shape.outputs) * voxels(shape.target)
        return max(direct_flops(shape) / rate, 4 * shape.batch * values / STREAM_RATE)
    if method.algorithm == "winograd":
        return winograd_seconds(shape)
    if method.algorithm == "fft" or method.tile is None:
        return fft_seconds(shape)
    costs = spectral_costs(shape, method.tile)
    return costs["images"] + costs["forward"]


def _convolutions(network: Network, geometry: Geometry) -> Iterator[tuple[str, ConvShape]]:
    for edge in network.edges:
        if edge.kind == "conv":
            yield edge.name, ConvShape.of(edge, network, geometry, 1, training=False)


def _cheapest(shape: ConvShape, *, planar: bool) -> LayerPlan:
    """`planar`: the source is an input, without lanes."""
    direct = Method("direct")
    methods = [direct]
    if takes(shape) and not planar:
        methods.append(Method("winograd"))
    if max(shape.stride) == 1:
        least = min(seconds_by(method, shape) for method in methods)
        tiles = best_tiles(shape, TILES, MOST_BYTES, least)
        methods += [Method("spectral", tile) for tile in tiles]
        if max(shape.size) <= MOST_TAPS and fft_bytes(shape) <= MOST_BYTES:
            methods.append(Method("fft"))
    costs = {method: seconds_by(method, shape) for method in methods}
    best = min(methods, key=costs.__getitem__)
    words = ", ".join(f"{method} {costs[method] * 1e3:.3g} ms" for method in (direct, best))
    others = direct if best.algorithm == "winograd" else best
    return LayerPlan.of(best, others, others, f"forward, estimated: {words}")
