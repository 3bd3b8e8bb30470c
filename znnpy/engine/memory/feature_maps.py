"""`FeatureMaps` holds the tensors of nodes and edges; `reserve_feature_maps` reserves them as a `Layout` has them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from znnpy_kernels.direct.forward import gradient_halo

from znnpy.engine.memory.arena import Replica
from znnpy.engine.memory.early_edges import early_edges
from znnpy.engine.memory.joined_gradients import lies_over_values
from znnpy.engine.memory.layout import Layout, wider
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.memory.tensor_aliases import (
    adds,
    apart,
    first_back,
    first_of,
    hands_back,
    is_alone,
    is_passed_back,
    is_passed_on,
    is_read_there,
    sum_in_place,
)
from znnpy.engine.memory.tensors import Tensor, new_tensor
from znnpy.engine.memory.winners import weighed_by_maxima
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.network.parameters import trained_nodes
from znnpy.network.types import Edge, Node

ACTIVATIONS = Use("activations")
COPIES = Use("copies with other frames", "activations")
CONTRIBUTIONS = Use("contributions")
GRADIENTS = Use("gradients")
EDGE_GRADIENTS = Use("gradients brought back", "gradients")


@dataclass
class FeatureMaps:
    """Tensors by node or edge name, shared by the even and the odd step; several names may have one tensor.

    `activations`: values of nodes; inputs that only feed convolutions stay where they are staged. `copies`: copies of
    them by node and border, for convolutions whose padding differs from the one around the activation itself.
    `contributions`: the output of each edge. The first of several edges into a node writes into the activation itself,
    unless the backward pass needs the sum as well; edges that fill whole blocks of a concat node write into these;
    an identity that is not the first is its source's activation. `gradients`: of the loss by a node's value, later by
    the sum of its edges. `backward`: each edge's gradient by its source; for such an identity its target's gradient.
    Some gradients lie over the values of their nodes (`joined_gradients.lies_over_values`).
    Gradients that are not made (`winners.weighed_by_maxima`) have no memory.
    `early`: by node the edges whose outputs are made once it has its values, before their targets' turn.
    """

    cut: int
    activations: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[tuple[str, BorderName], Tensor] = field(default_factory=dict)
    contributions: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    backward: dict[str, Tensor] = field(default_factory=dict)
    early: dict[str, tuple[Edge, ...]] = field(default_factory=dict)


def reserve_feature_maps(replica: Replica, layout: Layout) -> FeatureMaps:
    """Reserve all tensors of a forward pass, and of the backward pass when training."""
    maps = FeatureMaps(layout.cut, early=early_edges(layout))
    # Backwards: a concat node's memory is reserved before the nodes that lie in it.
    for node in reversed(layout.network.nodes):
        if not layout.stays_planar(node.name):
            _reserve_activation(replica, layout, maps, node.name)
        _reserve_copies(replica, layout, maps, node.name)
    for node in layout.network.nodes:
        if node.name in maps.activations:
            _reserve_contributions(replica, layout, maps, node.name)
    if layout.training:
        trained = trained_nodes(layout.network)
        for node in reversed(layout.network.nodes):
            if node.name in trained:
                _reserve_gradient(replica, layout, maps, node.name)
    return maps


def _reserve_activation(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    """Reserve a node's values, or take them from the concat node in whose memory they lie."""
    node, home = layout.network.node(name), layout.home(name)
    if home:
        maps.activations[name] = _brought_to(layout, maps, home)
        return
    if (target := sum_in_place(layout, name)) is not None:
        maps.activations[name] = maps.activations[target]
        return
    maps.activations[name] = new_tensor(
        replica,
        Name(ACTIVATIONS, name),
        layout.batch,
        node.channels,
        layout.shape(name),
        cut=maps.cut,
        lanes=layout.lanes(name),
        frame=layout.frame(name),
        shared=_passes(layout, node),
        apart=layout.grain.many,
    )


def _brought_to(layout: Layout, maps: FeatureMaps, edge: Edge) -> Tensor:
    """Return the blocks of a concat node's values that an edge fills."""
    block = layout.stacked(edge)
    assert block is not None
    return maps.activations[edge.target].part(block, layout.contributed(edge))


def _reserve_contributions(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    """Reserve the outputs of a node's edges, where they do not lie in another tensor."""
    network = layout.network
    node, own = network.node(name), maps.activations[name]
    for edge in (incoming := network.incoming(name)):
        if is_passed_on(network, edge) or is_read_there(layout, edge):
            brought = maps.activations[edge.source]
        elif layout.stacked(edge) is not None:
            brought = _brought_to(layout, maps, edge)
        elif adds(layout, edge) or (edge is first_of(incoming) and not apart(layout, node)):
            brought = own
        else:
            brought = new_tensor(
                replica,
                Name(CONTRIBUTIONS, edge.name),
                layout.batch,
                layout.contributed(edge),
                layout.shape(name),
                cut=maps.cut,
                lanes=layout.lanes(name),
                shared=True,
                apart=layout.grain.many,
            )
        maps.contributions[edge.name] = brought


def _passes(layout: Layout, node: Node) -> bool:
    """Return whether a node's values may be overwritten within the step; users read outputs after it.

    Of those that do not lie planar they read the copy that is staged.
    """
    if node.kind == "input":
        return False
    staged = layout.lean and layout.lanes(node.name) != 1
    return staged or bool(layout.network.outgoing(node.name))


def _reserve_copies(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    """Reserve copies of a node's values for every kind of padding but the first."""
    node = layout.network.node(name)
    for border, frame in [*layout.frames(name).items()][1:]:
        maps.copies[name, border] = new_tensor(
            replica,
            Name(COPIES, name, (border,)),
            layout.batch,
            node.channels,
            layout.shape(name),
            cut=maps.cut,
            lanes=layout.lanes(name),
            frame=frame,
            shared=_passes(layout, node),
            apart=layout.grain.many,
        )


def _reserve_gradient(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    network = layout.network
    needed = weighed_by_maxima(layout, network.node(name)) is None
    make = partial(
        new_tensor,
        replica if needed else None,
        batch=layout.batch,
        channels=network.node(name).channels,
        shape=layout.shape(name),
        cut=maps.cut,
        lanes=layout.lanes(name),
        frame=_gradient_frame(layout, name),
        shared=True,
        apart=layout.grain.many,
    )
    # Nodes come in reverse, so a concat node's gradient exists before those that lie in it.
    own = _own_gradient(layout, maps, name) or make(Name(GRADIENTS, name))
    maps.gradients[name] = own
    for edge in (outgoing := network.outgoing(name)):
        # The first edge writes the gradient itself, and the others are added to it.
        if edge is first_back(network, outgoing):
            maps.backward[edge.name] = own
        elif is_passed_back(network, edge):
            maps.backward[edge.name] = maps.gradients[edge.target]
        else:
            handed = _handed_back(layout, maps, edge)
            maps.backward[edge.name] = handed or make(Name(EDGE_GRADIENTS, edge.name))


def _own_gradient(layout: Layout, maps: FeatureMaps, name: str) -> Tensor | None:
    """Return where a node's gradient lies that has no memory of its own.

    Over its values (`lies_over_values`), in the gradient of the only node that it is handed to, or in a part of a
    concat node's, if it needs no padding of its own.
    """
    outgoing = layout.network.outgoing(name)
    if not outgoing:
        return None
    if lies_over_values(layout, name):
        # Zeros around the values are none of it: who reads zeros around a gradient needs one apart.
        bare = replace(maps.activations[name], frame=BARE)
        return bare if _gradient_frame(layout, name) == BARE else None
    first = first_back(layout.network, outgoing)
    if is_alone(layout.network, first) and layout.lanes(name) == layout.lanes(first.target):
        # That node has passed it on by then, in this memory.
        behind = maps.gradients[first.target]
        return behind if behind.frame == _gradient_frame(layout, name) else None
    return None if _gradient_frame(layout, name) != BARE else _handed_back(layout, maps, first)


def _handed_back(layout: Layout, maps: FeatureMaps, edge: Edge) -> Tensor | None:
    """Return the blocks of a concat node's gradient that belong to an identity edge into it."""
    block, whole = layout.handed(edge), maps.gradients.get(edge.target)
    return whole.part(block, layout.contributed(edge)) if whole and block is not None else None


def _gradient_frame(layout: Layout, name: str) -> Sides:
    """Return the halo of zeros around a gradient that edges read.

    At both ends of rows it is for direct data gradients, on all sides for the voxels that transposed convolutions
    cut off.
    """
    # The widest that any edge needs: narrower readers see zeros of the same frame.
    frame, planar = BARE, layout.lanes(name) == 1
    for edge in layout.network.incoming(name):
        if hands_back(layout.network, edge):
            return _gradient_frame(layout, edge.source)
        if edge.kind == "conv_transpose":
            frame = wider(frame, layout.padding(edge))
        goes_on = layout.network.node(edge.source).kind != "input"
        if goes_on and layout.reads_halo(edge) and layout.traits(edge, "gradient").reads_halos:
            reach = (edge.size[2] - 1) * layout.geometry.dilations[edge.name][2]
            before, after = (max(0, reach - left_out) for left_out in layout.cropped(edge)[2])
            seen = gradient_halo(before + 1, 1, planar), gradient_halo(after + 1, 1, planar)
            frame = wider(frame, ((0, 0), (0, 0), seen))
    return frame
