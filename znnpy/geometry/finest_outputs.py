"""A network without the outputs that are coarser than others.

Shapes of what a config trains.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.config import Config
from znnpy.errors import ConfigError, NetworkError, ShapeError
from znnpy.geometry.normalization_samples import refuse_single_values
from znnpy.geometry.receptive_field import lattice_of
from znnpy.geometry.shape_inference import Geometry, fit
from znnpy.network.types import Network


def trained_geometry(config: Config, network: Network) -> Geometry:
    """Shapes for `training.output_shape`, of a config's `trained_network`.

    Raises ConfigError with the line of that key where the size does not fit, and with that of the network
    where none does.
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
    """The network with its outputs of least stride alone, and what they need; itself if that is all.

    Coarser outputs help to train (deep supervision); predictions and scores are those of the others.
    """
    strides = lattice_of(network).strides
    apart = {node.name: prod(strides[node.name]) for node in network.outputs}
    needed = {name for name, step in apart.items() if step == min(apart.values())}
    if len(needed) == len(apart):
        return network
    for node in reversed(network.nodes):
        if node.name in needed:
            needed |= {edge.source for edge in network.incoming(node.name)}
    nodes = tuple(node for node in network.nodes if node.name in needed)
    return replace(
        network, nodes=nodes, edges=tuple(e for e in network.edges if e.target in needed)
    )
