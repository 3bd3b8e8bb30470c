"""The network as a graph, from YAML or ZNN's files, and what it learns."""

from znnpy.network.build import build_network, load_network, network_to_section, self_contained
from znnpy.network.parameters import initial_parameters, parameter_shapes
from znnpy.network.types import Edge, Init, Network, Node

__all__ = [
    "Edge",
    "Init",
    "Network",
    "Node",
    "build_network",
    "initial_parameters",
    "load_network",
    "network_to_section",
    "parameter_shapes",
    "self_contained",
]
