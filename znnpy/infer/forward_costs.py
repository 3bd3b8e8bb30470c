"""Estimates the cost of a forward pass, and chooses its algorithms, for patches of any size."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, partial
from math import inf

from znnpy.geometry import Geometry, voxels
from znnpy.layers.edges import edge_kind
from znnpy.network.types import Network, Node
from znnpy.plan import ALGORITHMS, Choice, ConvShape, LayerPlan, Method, Plan, choose
from znnpy.plan.algorithms.winograd import FILTER_RATE, filter_bytes
from znnpy.plan.choose import DIRECT, competes
from znnpy.plan.cost import STREAM_RATE, convolutions, padded
from znnpy.plan.types import AlgorithmName

# Within forward passes of large patches, whose feature maps no cache holds.
MAXIMUM_SECONDS = 2.7e-10  # of one value, along one axis of a max-filter
STATISTICS_SECONDS = 4e-10  # of one value of which a normalisation takes statistics
FUNCTION_SECONDS = 6e-10  # of one value of what no convolution does in passing
SPECTRA: tuple[AlgorithmName, ...] = ("spectral", "fft")
HARDLY = 1.4  # times as long at most, for less memory
ROOM = 1.0  # images of the largest node that a layer's transformed filters may take, while that node waits
PASSED = ("linear", "relu")  # activation functions that convolutions apply in passing


def forward_plan(
    network: Network,
    geometry: Geometry,
    conv: Choice,
    without: Collection[AlgorithmName] = (),
    batch: int = 1,
) -> Plan:
    """Return the cheapest algorithm of each layer by estimate, or the one that `conv` names; for a batch of patches.

    Of `auto`, none of those that it shall be `without`. Depends on network and sizes alone, so that the same patch is
    computed the same everywhere.
    """
    if conv != "auto":
        return choose(network, geometry, batch, conv, lambda _: ({}, ""), training=False)
    # Deep nets have many layers of one shape.
    cheapest = cache(partial(_cheapest, without=without))
    return Plan({name: cheapest(shape) for name, shape in _convolutions(network, geometry, batch)})


def lean_plan(network: Network, geometry: Geometry, conv: Choice, batch: int = 1) -> Plan:
    """Return a plan for passes that make what is derived from filters anew, in little memory, and hardly slower.

    Without spectra, which take several times the memory of Winograd's transforms. These share the memory of the
    images: layers of small images run directly where their transforms would take more than that, or longer to make
    than they gain, those first that lose least. The quickest plan where all that costs much. Depends on network and
    sizes alone.
    """
    quickest = forward_plan(network, geometry, conv, batch=batch)
    lean = forward_plan(network, geometry, conv, without=SPECTRA, batch=batch)
    most = HARDLY * forward_seconds(network, geometry, quickest, batch)
    spent = forward_seconds(network, geometry, lean, batch)
    if spent > most:
        return quickest
    layers, more, made = dict(lean.layers), dict[str, float](), dict[str, float]()
    for name, shape in _convolutions(network, geometry, batch):
        if layers[name].forward == "winograd" and (needed := filter_bytes(shape)):
            more[name] = seconds_by(DIRECT, shape) - seconds_by(Method("winograd"), shape)
            made[name] = needed
    room = ROOM * batch * largest_image(network, geometry)
    for name in sorted(more, key=lambda name: more[name] / made[name]):
        costs = made[name] > room or more[name] <= made[name] / FILTER_RATE
        if spent + more[name] <= most and costs:
            layers[name] = LayerPlan.of(DIRECT, DIRECT, DIRECT, "takes less memory")
            spent += more[name]
    return Plan(layers)


def largest_image(network: Network, geometry: Geometry) -> int:
    """Return the bytes of the largest node of one patch."""
    shapes = geometry.nodes
    return max(4 * node.channels * voxels(shapes[node.name].shape) for node in network.nodes)


def forward_seconds(network: Network, geometry: Geometry, plan: Plan, batch: int = 1) -> float:
    """Return the estimated seconds of one forward pass of a batch of patches on one core."""
    layers = sum(
        seconds_by(plan.layers[name].method("forward"), shape)
        for name, shape in _convolutions(network, geometry, batch)
    )
    return layers + batch * sum(_node_seconds(network, geometry, node) for node in network.nodes)


def _node_seconds(network: Network, geometry: Geometry, node: Node) -> float:
    """Return the estimated seconds of all but convolution: pooling, sums of edges, activation functions, copies."""
    edges = network.incoming(node.name)
    values = padded(node.channels) * voxels(geometry.nodes[node.name].shape)
    seconds = 0.0
    for edge in edges:
        if edge.kind in ("max_filter", "max_pool"):
            seconds += values * MAXIMUM_SECONDS * sum(size > 1 for size in edge.size)
        elif not edge_kind(edge.kind).learns and edge.kind != "identity":
            seconds += 8 * values / STREAM_RATE
    # Two operands read and one written for each further edge.
    seconds += 12 * values * max(0, len(edges) - 1) / STREAM_RATE
    alone = len(edges) == 1 and edge_kind(edges[0].kind).learns
    passed = alone and node.function in PASSED and node.norm is None
    if node.norm is not None and not node.norm.running:
        seconds += STATISTICS_SECONDS * values
    return seconds + (FUNCTION_SECONDS * values if node.kind == "transfer" and not passed else 0.0)


def seconds_by(method: Method, shape: ConvShape) -> float:
    """Return the estimated seconds of a layer's forward pass by one method."""
    algorithm = ALGORITHMS[method.algorithm]
    times = len(shape.bands) if algorithm.traits.bands and shape.bands else 1
    return times * algorithm.patch_seconds(shape if times == 1 else shape.band, method.tile)


def _convolutions(
    network: Network, geometry: Geometry, batch: int
) -> Iterator[tuple[str, ConvShape]]:
    for edge in convolutions(network):
        yield edge.name, ConvShape.of(edge, network, geometry, batch, training=False)


def _cheapest(shape: ConvShape, without: Collection[AlgorithmName]) -> LayerPlan:
    costs: dict[Method, float] = {}
    for name, algorithm in ALGORITHMS.items():
        if name not in without and competes(algorithm, shape):
            # What is slower than the best so far need not be looked at closely.
            least = min(costs.values(), default=inf)
            for method in algorithm.patch_methods(shape, least):
                costs[method] = seconds_by(method, shape)
    # The first of equals, in the order of the registry.
    best = min(costs, key=costs.__getitem__)
    told = [method for method in (DIRECT, best) if method in costs]
    words = ", ".join(f"{method} {costs[method] * 1e3:.3g} ms" for method in told)
    # The other passes are not made; what they would share with this one decides how channels lie.
    shared = ALGORITHMS[best.algorithm].traits.shares_spectra or shape.depthwise
    others = best if shared else DIRECT
    return LayerPlan.of(best, others, others, f"forward, estimated: {words}")
