"""Algorithms and estimated cost of a forward pass alone, for patches of any size."""

from __future__ import annotations

from collections.abc import Iterator

from znnpy_kernels.fft_lines import MOST_TAPS

from znnpy.geometry import Geometry, voxels
from znnpy.network.types import Network
from znnpy.plan import (
    Choice,
    ConvShape,
    LayerPlan,
    Method,
    Plan,
    choose,
    direct_seconds,
    fft_seconds,
)
from znnpy.plan.choose import MOST_BYTES
from znnpy.plan.cost import MEMORY_RATE, fft_bytes
from znnpy.plan.tiles import best_tiles, spectral_costs
from znnpy.plan.winograd import takes, winograd_seconds

TILES = 8  # sizes of tiles that are compared
TOUCHED = 12  # bytes that an elementwise operation moves for each value


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
    elementwise = sum(
        node.images * voxels(geometry.nodes[node.name].shape) * (1 + 3 * pooled)
        for node in network.nodes
        for pooled in (any(e.kind.startswith("max") for e in network.incoming(node.name)),)
    )
    layers = sum(
        seconds_by(plan.layers[name].method("forward"), shape)
        for name, shape in _convolutions(network, geometry)
    )
    return layers + TOUCHED * elementwise / MEMORY_RATE


def seconds_by(method: Method, shape: ConvShape) -> float:
    """Estimated seconds of a layer's forward pass by one method."""
    if method.algorithm == "direct":
        return direct_seconds(shape)
    if method.algorithm == "winograd":
        return winograd_seconds(shape)
    if method.algorithm == "fft" or method.tile is None:
        return fft_seconds(shape)
    costs = spectral_costs(shape, method.tile)
    return costs[f"{method} images"] + costs[f"{method} forward"]


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
        methods += [Method("spectral", tile) for tile in best_tiles(shape, TILES, MOST_BYTES)]
        if max(shape.size) <= MOST_TAPS and fft_bytes(shape) <= MOST_BYTES:
            methods.append(Method("fft"))
    costs = {method: seconds_by(method, shape) for method in methods}
    best = min(methods, key=costs.__getitem__)
    words = ", ".join(
        f"{method} {costs[method] * 1e3:.3g} ms" for method in (direct, best)
    )
    others = direct if best.algorithm == "winograd" else best
    return LayerPlan.of(best, others, others, f"forward, estimated: {words}")
