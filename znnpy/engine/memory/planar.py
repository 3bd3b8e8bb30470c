"""Which nodes lie planar, having too few channels to fill lanes."""

from __future__ import annotations

from collections.abc import Callable

from znnpy_kernels.direct.few_channels import FEW

from znnpy.network.types import Edge, Network
from znnpy.plan import PASSES, PassName
from znnpy.plan.algorithms import Traits
from znnpy.plan.cost import may_lie_planar

# The abilities of the algorithm that computes one pass of a conv edge.
TraitsOf = Callable[[Edge, PassName], Traits]
# Whether all passes of a conv edge run between planar channels at both ends (`Algorithm.between_planar`).
Between = Callable[[Edge], bool]


def planar_nodes(
    network: Network, traits: TraitsOf, between: Between, *, training: bool = True
) -> frozenset[str]:
    """Return the nodes that lie planar: few channels, where all that writes and reads them can.

    Inputs among them are used as they are staged. Other nodes lie between convolutions: of many channels, over which
    lanes go then, or of few whose lanes go over tiles, and which lie planar, too.
    """
    # FEW is what the kernels for few channels write.
    found = {
        node.name
        for node in network.nodes
        if may_lie_planar(network, node.name, training=training)
        and (node.kind == "input" or node.channels <= FEW)
    }
    # A node that has lanes may take the others with it, one after the other.
    while left := {name for name in found if not _stays(network, name, found, traits, between)}:
        found -= left
    return frozenset(found)


def _stays(
    network: Network, name: str, found: set[str], traits: TraitsOf, between: Between
) -> bool:
    """Return whether all edges of a node take it planar, if of the others those `found` are."""
    if network.node(name).kind == "input":
        # What reads an input can read it planar, but for passes that do so between planar channels alone.
        readers: tuple[PassName, ...] = ("forward", "weight")
        return all(
            edge.target in found or all(traits(edge, which).reads_planar for which in readers)
            for edge in network.outgoing(name)
            if edge.kind == "conv"
        )
    edges = network.incoming(name) + network.outgoing(name)
    return all(_takes(network, edge, edge.target == name, found, traits, between) for edge in edges)


def _takes(
    network: Network,
    edge: Edge,
    target: bool,
    found: set[str],
    traits: TraitsOf,
    between: Between,
) -> bool:
    """Return whether all passes of an edge support a planar target (or, with `target` false, a planar source)."""
    other = edge.source if target else edge.target
    if edge.kind == "conv_transpose":  # in prediction, of blocks
        return network.node(other).channels > FEW and traits(edge, "forward").spreads_planar
    if edge.kind != "conv":  # a crop of an input, or a shortcut
        return other in found
    # Lanes go over the channels of one side, or over tiles.
    if other in found or network.node(other).channels <= FEW:
        return other in found and between(edge)
    forward, gradient, weight = (traits(edge, which) for which in PASSES)
    if target:
        reads = gradient.reads_planar_gradients and weight.reads_planar_gradients
        return forward.writes_planar and reads
    return gradient.writes_planar and forward.reads_planar and weight.reads_planar
