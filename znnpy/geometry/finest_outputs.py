"""The shapes that a config trains with, and the network without outputs coarser than the finest (deep supervision)."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.config import Config
from znnpy.errors import ConfigError, NetworkError, ShapeError
from znnpy.geometry.receptive_field import lattice_of
from znnpy.geometry.shape_inference import Geometry, fit, refuse_single_values
from znnpy.network.types import Network


def trained_geometry(config: Config, network: Network) -> Geometry:
    """Return the shapes of a config's `trained_network` for its `training.output_shape`.

    Raises ConfigError: with the line of that key if the size does not fit, with the line of the network if no
    size does.
    """
    training = config.training
    try:
        geometry = fit(network, training.output_shape)
        refuse_single_values(network, geometry, training.at_once)
    except ShapeError as error:
        raise ConfigError(f"{config.place('training', 'output_shape')}: {error}") from None
    except NetworkError as error:
        raise ConfigError(f"{config.place('network')}: {error}") from None
    return geometry


def finest(network: Network) -> Network:
    """Return the network with only its outputs of least stride and what they depend on; itself if that is all.

    Coarser outputs serve training alone (deep supervision); predictions and scores are of the finest.
    """
    strides = lattice_of(network).strides
    apart = {node.name: prod(strides[node.name]) for node in network.outputs}
    # The product over axes compares outputs that are coarser along some axes only.
    needed = {name for name, step in apart.items() if step == min(apart.values())}
    if len(needed) == len(apart):
        return network
    # From the outputs back: a node's readers have been decided on before it is.
    for node in reversed(network.nodes):
        if node.name in needed:
            needed |= {edge.source for edge in network.incoming(node.name)}
    nodes = tuple(node for node in network.nodes if node.name in needed)
    return replace(
        network, nodes=nodes, edges=tuple(e for e in network.edges if e.target in needed)
    )
