"""The network as a graph of nodes and edges: read from YAML or .znn files, checked, and its parameters listed."""

from znnpy.network.build import (
    blamed_on_loss,
    build_network,
    load_network,
    losses_of,
    network_to_section,
    self_contained,
    trained_network,
    training_losses,
)
from znnpy.network.objectives import doubtful_outputs, logits_network, objectives
from znnpy.network.parameters import initial_parameters, learned, parameter_shapes
from znnpy.network.types import Edge, Init, Network, Node, network_digest

__all__ = [
    "Edge",
    "Init",
    "Network",
    "Node",
    "blamed_on_loss",
    "build_network",
    "doubtful_outputs",
    "initial_parameters",
    "learned",
    "load_network",
    "logits_network",
    "losses_of",
    "network_digest",
    "network_to_section",
    "objectives",
    "parameter_shapes",
    "self_contained",
    "trained_network",
    "training_losses",
]
