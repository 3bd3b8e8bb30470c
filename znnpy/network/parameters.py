"""Names, shapes and start values of what a network learns."""

from __future__ import annotations

from hashlib import sha256
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from znnpy.network.types import Init, Network

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(network: Network) -> Shapes:
    """Shapes by name: filters (out, in, z, y, x) by conv edge, then biases (out,) by transfer node.

    Filters come in the order of the file, biases in topological order.
    """
    shapes: Shapes = {}
    for edge in network.edges:
        if edge.kind == "conv":
            images = (network.node(edge.target).images, network.node(edge.source).images)
            shapes[edge.name] = (*images, *edge.size)
    for node in network.nodes:
        if node.kind == "transfer" and node.bias:
            shapes[node.name] = (node.images,)
    return shapes


def initial_parameters(network: Network, seed: int) -> dict[str, NDArray[np.float32]]:
    """Start values by name, float32, C order, owned by the caller.

    Each array draws from its own generator, seeded by `seed` and its name: adding or removing a
    layer leaves the others as they were. He et al. 2015 (`he`), Glorot and Bengio 2010 (`xavier`).
    Fan-in counts all taps and input images of the edge, fan-out all taps and output images.
    """
    inits = {edge.name: edge.init for edge in network.edges}
    inits |= {node.name: node.init for node in network.nodes}
    return {
        name: _draw(inits[name], shape, generator(seed, name))
        for name, shape in parameter_shapes(network).items()
    }


def generator(seed: int, name: str) -> np.random.Generator:
    """The random generator of a name, independent of every other name's."""
    digest = sha256(name.encode()).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _draw(init: Init, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    taps = prod(shape[2:])
    fan_out, fan_in = shape[0] * taps, prod(shape[1:])
    match init.kind:
        case "he":
            values = rng.normal(0.0, sqrt(2.0 / fan_in), shape)
        case "xavier":
            bound = sqrt(6.0 / (fan_in + fan_out))
            values = rng.uniform(-bound, bound, shape)
        case "uniform":
            values = rng.uniform(init.low, init.high, shape)
        case "normal":
            values = rng.normal(init.mean, init.std, shape)
        case "constant":
            values = np.full(shape, init.value)
    return values.astype(np.float32)
