"""Decides which convolution, pooling or loss also applies a node's bias and activation function, or their gradients."""

from __future__ import annotations

from dataclasses import replace

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.memory.winners import is_pair_filter, is_plain
from znnpy.layers.activation_functions import FunctionName
from znnpy.layers.edges import edge_kind
from znnpy.learning.loss import Objective
from znnpy.network.types import Edge, Node

TIED_SLOPES = Use("tied slopes", SMALL)


def slope_of(node: Node) -> float:
    """Return the slope of a node's activation function where its values are not positive."""
    # All three functions that kernels apply in passing are x or slope * x.
    return {"linear": 1.0, "relu": 0.0}.get(node.function, node.slope)


def function_words(build: Build, node: Node) -> dict[str, float]:
    """Return the words of `direct.epilogue` for a node's function: its slope, or where a tied one lies."""
    slopes = repeated_slope(build, node).address if is_tied(node) else 0
    return PLAIN | {"slope": slope_of(node), "slopes": slopes}


def function_reads(build: Build, node: Node) -> list[Region]:
    """Return what a task reads for that."""
    return [repeated_slope(build, node).region()] if is_tied(node) else []


def is_tied(node: Node) -> bool:
    """Return whether a node's function has one slope for all channels, which is learned."""
    return node.tied and node.function == "prelu"


def repeated_slope(build: Build, node: Node) -> Buffer:
    """Return where a tied slope lies once for each lane."""
    # Bands of a layer have it in common.
    return replace(build, band=-1).scratch(Name(TIED_SLOPES, node.name), LANES)


def applied_forward(layout: Layout, edge: Edge) -> Node | None:
    """Return the node whose bias and function an edge's forward pass applies: one with no other edge into it."""
    node = layout.network.node(edge.target)
    traits = layout.traits(edge, "forward")
    known = traits.forward_functions
    if edge.kind == "conv_transpose" and traits.overlaps:
        # Tiles that overlap are added up, and a function of a part of a sum is not the function of
        # the sum.
        known = ()
    alone = len(layout.network.incoming(node.name)) == 1
    return node if alone and is_plain(node) and _sloped(layout, node) in known else None


def _sloped(layout: Layout, node: Node) -> FunctionName:
    """Return a node's function as a forward pass applies it.

    In prediction one slope for all channels is that of leaky_relu, which lies elsewhere; training keeps the sum.
    """
    return "leaky_relu" if is_tied(node) and not layout.training else node.function


def masked_by_maxima(layout: Layout, edge: Edge) -> Node | None:
    """Return the node whose function's gradient a max filter applies: one that no other edge reads.

    A maximum is the value of the voxel that won, so it shows whether a relu let that one through.
    """
    node = layout.network.node(edge.source)
    alone = len(layout.network.outgoing(node.name)) == 1
    known = is_plain(node) and node.function in ("linear", "relu")
    return node if alone and known and is_pair_filter(edge) else None


def finished_forward(layout: Layout, node: Node) -> bool:
    """Return whether an edge into a node applies the node's bias and function."""
    return any(
        edge_kind(edge.kind).learns and applied_forward(layout, edge) is node
        for edge in layout.network.incoming(node.name)
    )


def finished_backward(layout: Layout, node: Node, objective: Objective | None) -> bool:
    """Return whether a node's gradient and that of its bias need no pass of their own."""
    outgoing = layout.network.outgoing(node.name)
    if not outgoing:
        return objective is not None and finished_in_loss(node, objective)
    if masked_by_maxima(layout, outgoing[0]) is node:
        return True
    return any(
        edge_kind(edge.kind).learns and applied_backward(layout, edge) is node for edge in outgoing
    )


def finished_in_loss(node: Node, objective: Objective) -> bool:
    """Return whether the loss applies an output node's function backward, and adds up the gradient of its bias."""
    known = is_plain(node) and node.function in ("linear", "relu", "leaky_relu")
    return known and objective.kernel is not None and objective.kernel.biases
