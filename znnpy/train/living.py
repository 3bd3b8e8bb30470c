"""Which channels of a network live: those of relus that are not 0 for all voxels, by the float64 definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import Config
from znnpy.geometry import fit, smallest, trained_geometry
from znnpy.geometry.shape_inference import Geometry
from znnpy.network import parameter_shapes
from znnpy.network.types import Network
from znnpy.reference.evaluate import forward

Array = NDArray[Any]
RATE = 4e8  # products a second of the float64 definition, roughly
SMALL = (4, 12, 12)  # output voxels of the parts of patches that are looked at, at least


def has_relus(network: Network) -> bool:
    """Return whether any channel could be dead."""
    return any(node.function == "relu" for node in network.nodes)


def living_channels(
    config: Config,
    network: Network,
    parameters: Mapping[str, Array],
    patches: Iterable[Mapping[str, Array]],
) -> dict[str, Array]:
    """Return for each node of relus which of its channels are not 0 everywhere, on the middle of some patches.

    `patches`: inputs by node, (batch, channel, z, y, x).
    """
    living: dict[str, Array] = {}
    relus = [node.name for node in network.nodes if node.function == "relu"]
    if not relus:
        return living
    geometry = _part(config, network)
    for inputs in patches:
        parts = {name: middle(it, geometry.input_shapes[name]) for name, it in inputs.items()}
        values = forward(network, geometry, parameters, parts)
        for name in relus:
            seen = (values[name] != 0).any(axis=(0, 2, 3, 4))
            living[name] = living.get(name, np.False_) | seen
    return living


def expected_seconds(config: Config, network: Network) -> float:
    """Return about how long one patch takes."""
    geometry, shapes = _part(config, network), parameter_shapes(network)
    products = sum(
        prod(shapes[edge.name]) * prod(geometry.nodes[edge.target].shape)
        for edge in network.edges
        if edge.name in shapes
    )
    return products / RATE


def _part(config: Config, network: Network) -> Geometry:
    trained = trained_geometry(config, network).output_shapes
    z, y, x = (min(axis) for axis in zip(SMALL, *trained.values(), strict=True))
    return fit(network, smallest(network, (z, y, x)))


def share(living: Mapping[str, Array]) -> float:
    """Return the share of channels that live."""
    return sum(int(it.sum()) for it in living.values()) / sum(map(len, living.values()))


def middle(array: Array, shape: tuple[int, int, int]) -> Array:
    """Return the middle (…, z, y, x) of an array, of a shape that it is at least as large as."""
    corner = [(n - size) // 2 for n, size in zip(array.shape[2:], shape, strict=True)]
    return array[:, :, *(slice(at, at + size) for at, size in zip(corner, shape, strict=True))]
