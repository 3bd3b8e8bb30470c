"""Names, shapes and initial values of a network's parameters: filters, biases, and what normalisation keeps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from math import prod, sqrt
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from znnpy.layers import normalization
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import Held
from znnpy.network.types import ONCE, Init, Network, Node, Triple

Shapes = dict[str, tuple[int, ...]]

MANY = 1 << 20
"""Numbers, drawn in 13 ms, that are worth threads."""
AT_ONCE = 1 << 16  # numbers of one call, which threads wait for each other between


def parameter_shapes(network: Network) -> Shapes:
    """Return the shapes of all parameters by name: filters, biases, and what nodes keep beside them.

    Filters (out, in / groups, z, y, x) by edge that learns, in the order of the file; then biases (out,) by transfer
    node, and arrays (out,), or (1,) of tied slopes, by `node.what` (`held`), in topological order.
    """
    shapes: Shapes = {}
    for edge in network.edges:
        if filters := edge_kind(edge.kind).learns:
            inputs, outputs = network.node(edge.source).channels, network.node(edge.target).channels
            shapes[edge.name] = filters.shape(edge, inputs, outputs)
    for node in network.nodes:
        if node.kind == "transfer" and node.bias:
            shapes[node.name] = (node.channels,)
    for node in network.nodes:
        shapes |= {name: (1 if it.tied else node.channels,) for name, it in held(node).items()}
    return shapes


def held(node: Node) -> dict[str, Held]:
    """Return the arrays that a node keeps beside its bias, by parameter name: `node.scale` and others."""
    found = {} if node.norm is None else normalization.held(node.norm)
    if node.kind == "transfer" and node.function in FUNCTIONS:  # others are refused later
        own = FUNCTIONS[node.function].held
        found |= {what: it._replace(tied=node.tied) for what, it in own.items()}
    return {f"{node.name}.{what}": array for what, array in found.items()}


def learned(network: Network) -> tuple[str, ...]:
    """Return the names of the parameters that have gradients, in the order of `parameter_shapes`."""
    beside = {name for node in network.nodes for name, it in held(node).items() if not it.learned}
    beside |= fixed(network)
    return tuple(name for name in parameter_shapes(network) if name not in beside)


def fixed(network: Network) -> frozenset[str]:
    """Return the names of filters and of what nodes keep that the network itself says do not learn (`learn`)."""
    edges = {edge.name for edge in network.edges if not edge.learn}
    nodes = [node for node in network.nodes if not node.learn]
    return frozenset(
        edges
        | {n.name for n in nodes if n.bias}
        | {name for node in nodes for name, it in held(node).items() if it.learned}
    )


def initial_parameters(
    network: Network, seed: int, threads: int = 1
) -> dict[str, NDArray[np.float32]]:
    """Return initial values by name: float32, C order, owned by the caller; many are drawn by several threads.

    Each array draws from a generator of its own, seeded by `seed` and its name: adding or removing a layer leaves
    the others as they were. He et al. 2015 (`he`), Glorot and Bengio 2010 (`xavier`). Fan-in counts all taps and
    input channels of the edge, fan-out all taps and output channels.
    """
    inits = {edge.name: edge.init for edge in network.edges}
    for node in network.nodes:
        kept = {name: Init("constant", value=it.start) for name, it in held(node).items()}
        inits |= {node.name: node.init} | kept
    repeats, shapes = repeats_of(network), parameter_shapes(network)

    def drawn(name: str) -> NDArray[np.float32]:
        return repeated(_draw(inits[name], shapes[name], generator(seed, name)), repeats.get(name))

    if threads == 1 or sum(map(prod, shapes.values())) < MANY:
        return {name: drawn(name) for name in shapes}
    # The largest first, so that no thread has one of them left at the end.
    order = sorted(shapes, key=lambda name: prod(shapes[name]), reverse=True)
    with ThreadPoolExecutor(threads) as pool:
        found = dict(zip(order, pool.map(drawn, order), strict=True))
    return {name: found[name] for name in shapes}


def repeats_of(network: Network) -> dict[str, Triple]:
    """Return by conv edge the blocks of taps (z, y, x) that share one number, of edges that have any."""
    return {edge.name: edge.repeat for edge in network.edges if edge.repeat != ONCE}


def repeated(filters: NDArray[Any], repeat: Triple | None) -> NDArray[Any]:
    """Return filters (out, in, z, y, x) in which every tap has the mean of its block of `repeat` taps.

    In the filters' dtype; filters that repeat already keep their bits. None: the array itself.
    """
    if repeat is None:
        return filters
    (*channels, z, y, x), (a, b, c) = filters.shape, repeat
    blocks = filters.reshape(*channels, z // a, a, y // b, b, x // c, c).astype(np.float64)
    # The mean of differences to the first tap: 0 exactly where all are equal, whatever the rounding of a sum.
    first = blocks[..., :1, :, :1, :, :1]
    means = first + (blocks - first).mean(axis=(-5, -3, -1), keepdims=True)
    return np.broadcast_to(means, blocks.shape).reshape(filters.shape).astype(filters.dtype)


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of a name, independent of every other name's."""
    digest = sha256(name.encode()).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _draw(init: Init, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    taps = prod(shape[2:])
    fan_out, fan_in = shape[0] * taps, prod(shape[1:])
    draw: Callable[..., Any]
    match init.kind:
        case "he":
            draw = partial(rng.normal, 0.0, sqrt(2.0 / fan_in))
        case "xavier":
            bound = sqrt(6.0 / (fan_in + fan_out))
            draw = partial(rng.uniform, -bound, bound)
        case "uniform":
            draw = partial(rng.uniform, init.low, init.high)
        case "normal":
            draw = partial(rng.normal, init.mean, init.std)
        case "constant":
            return np.full(shape, init.value, np.float32)
        case _:
            assert_never(init.kind)
    values = np.empty(prod(shape), np.float32)
    # The numbers of one call for all, without as many float64.
    for first in range(0, len(values), AT_ONCE):
        part = values[first : first + AT_ONCE]
        part[...] = draw(len(part))
    return values.reshape(shape)


def trained_nodes(network: Network) -> set[str]:
    """Return the nodes whose gradient is needed: those with parameters at or before them, inputs excluded."""
    trained, moving = set[str](), set(learned(network))
    # In the order of the data: whatever follows something that learns must pass gradients back.
    for node in network.nodes:
        incoming = network.incoming(node.name)
        if (
            node.name in moving
            or any(name in moving for name in held(node))
            or any(edge.name in moving for edge in incoming)
            or any(edge.source in trained for edge in incoming)
        ):
            trained.add(node.name)
    return trained - {node.name for node in network.inputs}
