"""Which nodes inside a network lie planar, having too few channels to fill lanes."""

from __future__ import annotations

from collections.abc import Callable

from znnpy_kernels.direct.few_channels import FEW

from znnpy.layers.activation_functions import function_of
from znnpy.network.types import Edge, Network
from znnpy.plan import PASSES, PassName
from znnpy.plan.algorithms import Traits
from znnpy.plan.cost import lies_planar

# The abilities of the algorithm that computes one pass of a conv edge.
TraitsOf = Callable[[Edge, PassName], Traits]


def is_planar(network: Network, name: str, traits: TraitsOf) -> bool:
    """Return whether a node lies planar: few channels, between convolutions of many, so that lanes would be idle."""
    node = network.node(name)
    edges = network.incoming(name) + network.outgoing(name)
    return (
        # FEW is what the kernels for few channels take. Functions over channels, learned slopes and
        # norms need lanes.
        node.channels <= FEW
        and node.kind in ("transfer", "sum")
        and function_of(node.function).pointwise
        and not function_of(node.function).held
        and node.norm is None
        and any(edge.kind == "conv" for edge in edges)
        and all(_takes_planar(network, edge, edge.target == name, traits) for edge in edges)
    )


def _takes_planar(network: Network, edge: Edge, target: bool, traits: TraitsOf) -> bool:
    """Return whether all passes of an edge support a planar target (or, with `target` false, a planar source)."""
    other = edge.source if target else edge.target
    if edge.kind != "conv":
        return edge.kind == "crop" and target and lies_planar(network, other)
    if max(edge.stride) > 1 or lies_planar(network, other):
        return False
    # Lanes must be on one side at least, or nothing is left to vectorise.
    if network.node(other).channels <= FEW:
        return False
    forward, gradient, weight = (traits(edge, which) for which in PASSES)
    if target:
        reads = gradient.reads_planar_gradients and weight.reads_planar_gradients
        return forward.writes_planar and reads
    return gradient.writes_planar and forward.reads_planar and weight.reads_planar
