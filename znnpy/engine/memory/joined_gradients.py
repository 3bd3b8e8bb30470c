"""Decides which layers make data and weight gradient in the same tasks, and whose gradients lie over values."""

from __future__ import annotations

from znnpy_kernels.winograd import cubes
from znnpy_kernels.winograd.cubes import CUBE
from znnpy_kernels.winograd.flat import TAPS_OF_PLANES
from znnpy_kernels.winograd.flat_back import PLANE_SUMS_BYTES, plane_sums_bytes

from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.winners import is_plain
from znnpy.layers.edges import edge_kind
from znnpy.network.types import ONCE, Edge, Node
from znnpy.plan import PassName
from znnpy.plan.algorithms.winograd_tiles import tile_count

FEWEST_TILES = 512
"""Of cubes: each task transforms sums of its own to taps, and of small layers there are tasks of a dozen tiles."""


def joins(layout: Layout, edge: Edge) -> bool:
    """Return whether data and weight gradient go in the same tasks where both are wanted."""
    back: tuple[PassName, ...] = ("gradient", "weight")
    shape, planned = layout.conv_shape(edge), edge.learn
    planned = planned and all(layout.algorithm(edge, it) == "winograd" for it in back)
    planned = planned and edge.stride == ONCE
    planned = planned and all(layout.takes_joined(edge, it) for it in back)
    if not planned or layout.bands(edge) or layout.folded(edge):
        return False
    if layout.lanes(edge.source) == 1:
        return True
    if edge.size == TAPS_OF_PLANES:
        return plane_sums_bytes(shape.inputs, shape.outputs) <= PLANE_SUMS_BYTES
    near = edge.size == CUBE and layout.geometry.dilations[edge.name] == ONCE
    small = cubes.sums_bytes(shape.inputs, shape.outputs) <= cubes.SUMS_BYTES
    many = shape.batch * tile_count(shape) >= FEWEST_TILES
    return (near and small and many) or layout.sums_lines(edge)


def applied_backward(layout: Layout, edge: Edge) -> Node | None:
    """Return the node whose function's gradient an edge's data gradient applies: one that no other edge reads."""
    # The gradient with padding is folded later; the function's gradient must come after that.
    if layout.folded(edge):
        return None
    node = layout.network.node(edge.source)
    known = layout.traits(edge, "gradient").backward_functions
    alone = len(layout.network.outgoing(node.name)) == 1
    return node if alone and is_plain(node) and node.function in known else None


def lies_over_values(layout: Layout, name: str) -> bool:
    """Return whether a node's gradient takes the place of its values, if both lie alike.

    Its only reader makes both gradients in one task, which reads values of a tile, and whether its function let them
    through, before it writes their gradients; nobody needs the values after that.
    """
    outgoing, incoming = layout.network.outgoing(name), layout.network.incoming(name)
    if len(outgoing) != 1 or outgoing[0].kind != "conv" or not incoming:
        return False
    # Maxima, products and norms are taken back by the values that they made.
    linear = all(edge_kind(edge.kind).learns for edge in incoming)
    (edge,) = outgoing
    return linear and joins(layout, edge) and applied_backward(layout, edge) is not None
