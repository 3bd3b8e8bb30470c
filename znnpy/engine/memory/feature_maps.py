"""`Layout` decides how each node's feature map lies in memory (blocked, planar, padding); `FeatureMaps` reserves them.

Blocked: LANES channels side by side. Planar: one channel after the other, for nodes of few channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from znnpy_kernels.direct.few_channels import FEW
from znnpy_kernels.direct.forward import gradient_halo
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Replica
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.memory.tensors import Tensor, new_tensor
from znnpy.geometry import Geometry
from znnpy.layers.activation_functions import function_of
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import BARE, ONCE, BorderName, Sides
from znnpy.layers.windows import sides
from znnpy.network.parameters import held, learned
from znnpy.network.types import Edge, Network, Node, Triple
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, Grain, PassName, Plan, cut_axis
from znnpy.plan.algorithms import Traits
from znnpy.plan.choose import planned_seconds
from znnpy.plan.cost import Band, convolutions, lies_planar

SUMS = ("sum", "transfer")  # nodes that add what their edges bring
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
    """

    cut: int
    activations: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[tuple[str, BorderName], Tensor] = field(default_factory=dict)
    contributions: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    backward: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """Everything that decides the shape of buffers: network, sizes, plan, batch, training or not.

    `batch`: samples of one microbatch. `numbers`: the microbatches of an update that are computed here, of
    `microbatches` in all. `replicas`: how many of them may be in flight at once, each with feature maps of its own.
    `filters_kept`: what is derived from filters (spectra, transposed copies) is made once for all microbatches.
    `cut_for`: workers that have enough tasks; 0: `workers`. `planned`: microbatches for which each of `numbers` stands,
    as all are alike where memory is planned.
    """

    network: Network
    geometry: Geometry
    plan: Plan
    batch: int
    training: bool
    seed: int = 0
    workers: int = 1
    numbers: range = range(1)
    microbatches: int = 1
    replicas: int = 1
    filters_kept: bool = False
    cut_for: int = 0
    planned: int = 1

    @classmethod
    def of_batch(
        cls,
        network: Network,
        geometry: Geometry,
        plan: Plan,
        batch: int,
        microbatch: int,
        seed: int = 0,
        workers: int = 1,
    ) -> Layout:
        """Return the layout of updates by `batch` samples in microbatches, of which one is in flight at a time."""
        count = batch // microbatch
        return cls(
            network, geometry, plan, microbatch, True, seed, workers, range(count), count
        )  # fmt: skip

    @property
    def sharers(self) -> int:
        """Workers that tasks are cut for."""
        return self.cut_for or self.workers

    @cached_property
    def grain(self) -> Grain:
        """The length of tasks that split no sum: by the estimated work of all convolutions, and the workers."""
        work = sum(
            planned_seconds(
                self.conv_shape(edge), self.plan.layers[edge.name], training=self.training
            )
            for edge in convolutions(self.network)
        )
        return Grain.of(work * len(self.numbers) * self.planned, self.sharers)

    @property
    def filters_pass(self) -> bool:
        """Whether passes derive what they need from filters just before use, in memory that serves others too."""
        # In prediction filters never change, so what is derived from them is made once and kept.
        return self.training and not self.filters_kept

    @property
    def samples(self) -> int:
        """Samples of an update that are computed here."""
        return self.batch * len(self.numbers)

    @property
    def slots(self) -> int:
        """How many sums over microbatches exist at once (gradient accumulation).

        A binary tree whose pairs are added as soon as possible needs one for each level, and each microbatch in
        flight needs its own.
        """
        count = len(self.numbers)
        # One slot for each level of the tree holds a finished subtree; each microbatch in flight
        # fills another.
        return min(count, (count - 1).bit_length() + self.replicas)

    @property
    def cut(self) -> int:
        """The axis along which feature maps are cut into ranges of planes."""
        # One axis for the whole network: tasks of neighbouring layers count the same planes.
        return cut_axis(next(iter(self.geometry.output_shapes.values())))

    def shape(self, node: str) -> Triple:
        """Return the shape of a node's channels, (z, y, x)."""
        return self.geometry.nodes[node].shape

    def stays_planar(self, node: str) -> bool:
        """Return whether an input is used in place, planar, as it is staged."""
        return lies_planar(self.network, node)

    def lanes(self, node: str) -> int:
        """Return how many channels of a node lie side by side: LANES, or 1 if it is planar."""
        return 1 if self.stays_planar(node) or is_planar(self, node) else LANES

    def padding(self, edge: Edge) -> Sides:
        """Return the padding of a convolution, in voxels before and after, z y x."""
        return sides(edge, self.geometry.dilations[edge.name])

    def frames(self, node: str) -> dict[BorderName, Sides]:
        """Return the padding that convolutions need around a node, by border.

        The first lies around the activation itself, the others around copies.
        """
        found: dict[BorderName, Sides] = {}
        for edge in self.network.outgoing(node):
            # Pooling tests at the border instead of reading what lies there. The widest frame of a
            # kind serves the narrower paddings, too.
            if edge.kind == "conv" and self.padding(edge) != BARE:
                found[edge.border] = _wider(found.get(edge.border, BARE), self.padding(edge))
        return found

    def frame(self, node: str) -> Sides:
        """Return the padding around a node's activation in memory, wide enough for all that lies in its blocks."""
        frame = next(iter(self.frames(node).values()), BARE)
        for edge in self.network.incoming(node):
            if self.home(edge.source) is edge:
                frame = _wider(frame, next(iter(self.frames(edge.source).values()), BARE))
        return frame

    def stacked(self, edge: Edge) -> int | None:
        """Return the block of a concat node at which an edge's channels begin; None if they share a block."""
        node, first = self.network.node(edge.target), 0
        if node.kind != "concat":
            return None
        for other in self.network.incoming(node.name):
            if other is edge:
                break
            first += self.contributed(other)
        end = first + self.contributed(edge)
        # Lanes behind the last channel are idle, so only the last part may end within a block.
        whole = first % LANES == 0 and (end % LANES == 0 or end == node.channels)
        return first // LANES if whole else None

    def handed(self, edge: Edge) -> int | None:
        """Return `stacked` for an identity edge, whose source may lie in the concat node's memory; else None."""
        same = edge.kind == "identity" and self.lanes(edge.source) == LANES
        return self.stacked(edge) if same else None

    def home(self, node: str) -> Edge | None:
        """Return the identity edge to the concat node in whose memory a node's activation lies, if any."""
        if self.network.node(node).kind in ("input", "concat"):
            return None
        own = [*self.frames(node)][:1]
        for edge in self.network.outgoing(node):
            whole = [*self.frames(edge.target)][:1]
            # In the memory of two concat nodes at once it cannot lie: the first edge wins. Its
            # frame must be of the same kind as theirs.
            if self.handed(edge) is not None and (not own or own == whole):
                return edge
        return None

    def folded(self, edge: Edge) -> bool:
        """Return whether a data gradient is computed with the padding, which is then folded back into the inside."""
        padded = edge.kind == "conv" and self.padding(edge) != BARE
        # Zeros outside bring nothing back, so an algorithm that can leave these voxels out need not
        # compute them.
        return padded and not (edge.border == "zeros" and self.traits(edge, "gradient").crops)

    def covers(self, edge: Edge) -> bool:
        """Return whether filters are as large as the source: then the samples of a batch are treated as a row."""
        ends = (edge.source, edge.target)
        return (
            edge.kind == "conv"
            and self.batch > 1
            and edge.groups == 1
            and self.padding(edge) == BARE
            and self.shape(edge.source) == edge.size
            and self.shape(edge.target) == self.geometry.dilations[edge.name] == ONCE
            and all(self.lanes(node) == LANES for node in ends)
        )

    def reads_halo(self, edge: Edge) -> bool:
        """Return whether a direct data gradient reads a halo of zeros at both ends of rows; strided ones do not."""
        return edge.kind == "conv" and max(edge.stride) == 1 and not self.covers(edge)

    def cropped(self, edge: Edge) -> Sides:
        """Return how many voxels of the full correlation a data gradient leaves out, before and after, z y x."""
        return BARE if self.folded(edge) else self.padding(edge)

    def conv_shape(self, edge: Edge) -> ConvShape:
        """Return what the cost of a conv edge depends on, for all its passes."""
        return ConvShape.of(edge, self.network, self.geometry, self.batch)

    def bands(self, edge: Edge) -> tuple[Band, ...]:
        """Return the bands of groups that a convolution is computed in; none if it is computed as a whole."""
        traits = [self.traits(edge, which) for which in PASSES]
        return self.conv_shape(edge).bands if all(it.bands for it in traits) else ()

    def narrowed(self, edge: Edge, band: Band) -> Layout:
        """Return the layout in which the ends of a convolution have the channels of one of its bands alone."""
        channels = {edge.source: band.inputs, edge.target: band.outputs}
        nodes = tuple(
            replace(node, channels=channels.get(node.name, node.channels))
            for node in self.network.nodes
        )
        found = replace(self, network=replace(self.network, nodes=nodes))
        # The grain is that of the whole network.
        vars(found)["grain"] = self.grain
        return found

    def traits(self, edge: Edge, which: PassName) -> Traits:
        """Return the abilities of the algorithm that computes one pass of a conv edge."""
        return ALGORITHMS[self.plan.layers[edge.name].method(which).algorithm].traits

    def contributed(self, edge: Edge) -> int:
        """Return how many channels an edge brings to its target."""
        ends = (self.network.node(name).channels for name in (edge.source, edge.target))
        return edge_kind(edge.kind).brings(edge, *ends)


def _wider(one: Sides, other: Sides) -> Sides:
    z, y, x = ((max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return z, y, x


def is_planar(layout: Layout, name: str) -> bool:
    """Return whether a node lies planar: few channels, between convolutions of many, so that lanes would be idle."""
    node, network = layout.network.node(name), layout.network
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
        and all(_takes_planar(layout, edge, edge.target == name) for edge in edges)
    )


def first_of(edges: Sequence[Edge]) -> Edge:
    """Return the edge whose output the others are added to: the first that is no identity, else the first."""
    # An identity's output is its source's activation, which other nodes read: it cannot be added
    # to.
    return next((edge for edge in edges if edge.kind != "identity"), edges[0])


def first_back(network: Network, edges: Sequence[Edge]) -> Edge:
    """Return the outgoing edge whose data gradient the others are added to: the first that is no identity.

    Of identities alone, the first whose node has no other edge: that node's gradient can take the sum itself.
    """
    found = first_of(edges)
    return next(
        (edge for edge in edges if found.kind == "identity" and is_alone(network, edge)), found
    )


def is_alone(network: Network, edge: Edge) -> bool:
    """Return whether an identity edge is the only one into a node that would add others."""
    target = network.node(edge.target)
    return (
        edge.kind == "identity" and target.kind in SUMS and len(network.incoming(target.name)) == 1
    )


def is_read_there(layout: Layout, edge: Edge) -> bool:
    """Return whether a node's own pass reads its source's values through an identity edge: before a norm or a function.

    So pre-activation nets copy nothing.
    """
    node, function = layout.network.node(edge.target), layout.network.node(edge.target).function
    # Without a norm, what is linear without a bias has no pass; softmax works in place, and functions that need the
    # sum leave it, bias included, where it lay.
    entry = function_of(function)
    plain = entry.pointwise and not entry.needs_sum and (function != "linear" or node.bias)
    return (
        is_alone(layout.network, edge)
        and node.kind == "transfer"
        and (node.norm is not None or plain)
        and layout.lanes(edge.source) == layout.lanes(node.name)
    )


def is_passed_on(network: Network, edge: Edge) -> bool:
    """Return whether an edge's output is its source's activation itself, without a copy."""
    into = network.node(edge.target).kind
    arriving = network.incoming(edge.target)
    added = into in SUMS and edge is not first_of(arriving)
    # Factors are only read: the product is written elsewhere, as the way back needs them.
    multiplied = into == "product" and len(arriving) > 1
    return edge.kind == "identity" and (into == "concat" or added or multiplied)


def is_passed_back(network: Network, edge: Edge) -> bool:
    """Return whether an edge's data gradient is its target's gradient itself, without a copy."""
    added = edge is not first_back(network, network.outgoing(edge.source))
    return edge.kind == "identity" and network.node(edge.target).kind in SUMS and added


def keeps_sum(layout: Layout, node: Node) -> bool:
    """Return whether a node's sum is kept beside its values, because the backward pass needs both."""
    needed = node.norm is not None or function_of(node.function).needs_sum
    return layout.training and node.kind == "transfer" and needed


def apart(layout: Layout, node: Node) -> bool:
    """Return whether what a node's first edge brings is kept beside the node's values."""
    factors = node.kind == "product" and len(layout.network.incoming(node.name)) > 1
    return node.kind == "concat" or factors or keeps_sum(layout, node)


def _takes_planar(layout: Layout, edge: Edge, target: bool) -> bool:
    """Return whether all passes of an edge support a planar target (or, with `target` false, a planar source)."""
    other = edge.source if target else edge.target
    if edge.kind != "conv":
        return edge.kind == "crop" and target and layout.stays_planar(other)
    if max(edge.stride) > 1 or layout.stays_planar(other):
        return False
    # Lanes must be on one side at least, or nothing is left to vectorise.
    if layout.network.node(other).channels <= FEW:
        return False
    forward, gradient, weight = (layout.traits(edge, which) for which in PASSES)
    if target:
        reads = gradient.reads_planar_gradients and weight.reads_planar_gradients
        return forward.writes_planar and reads
    return gradient.writes_planar and forward.reads_planar and weight.reads_planar


def trained_nodes(network: Network) -> set[str]:
    """Return the nodes whose gradient is needed: those with parameters at or before them, inputs excluded."""
    trained, moving = set[str](), set(learned(network))
    # In the order of the data: whatever follows something that learns must pass gradients back.
    for node in network.nodes:
        incoming = network.incoming(node.name)
        if (
            node.name in moving
            or any(name in moving for name in held(node))
            or any(edge.name in moving for edge in incoming)
            or any(edge.source in trained for edge in incoming)
        ):
            trained.add(node.name)
    return trained - {node.name for node in network.inputs}


def reserve_feature_maps(replica: Replica, layout: Layout) -> FeatureMaps:
    """Reserve all tensors of a forward pass, and of the backward pass when training."""
    maps = FeatureMaps(layout.cut)
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
        elif edge is first_of(incoming) and not apart(layout, node):
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
            )
        maps.contributions[edge.name] = brought


def _passes(layout: Layout, node: Node) -> bool:
    """Return whether a node's values may be overwritten within the step; users read outputs after it."""
    return node.kind != "input" and bool(layout.network.outgoing(node.name))


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
        )


def _reserve_gradient(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    network = layout.network
    make = partial(
        new_tensor,
        replica,
        batch=layout.batch,
        channels=network.node(name).channels,
        shape=layout.shape(name),
        cut=maps.cut,
        lanes=layout.lanes(name),
        frame=_gradient_frame(layout, name),
        shared=True,
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
    """Return the gradient in which a node's lies: of the only node that it is handed to, or a part of a concat node's.

    The latter only if it needs no padding of its own.
    """
    outgoing = layout.network.outgoing(name)
    if not outgoing:
        return None
    first = first_back(layout.network, outgoing)
    if is_alone(layout.network, first) and layout.lanes(name) == layout.lanes(first.target):
        # That node has passed it on by then, in this memory.
        behind = maps.gradients[first.target]
        return behind if behind.frame == _gradient_frame(layout, name) else None
    return None if _gradient_frame(layout, name) != BARE else _handed_back(layout, maps, first)


def hands_back(network: Network, edge: Edge) -> bool:
    """Return whether the memory of a node's gradient becomes, once the node is done, that of an edge's source."""
    alone = is_alone(network, edge) and network.node(edge.source).kind != "input"
    return alone and edge is first_back(network, network.outgoing(edge.source))


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
            frame = _wider(frame, layout.padding(edge))
        goes_on = layout.network.node(edge.source).kind != "input"
        if goes_on and layout.reads_halo(edge) and layout.traits(edge, "gradient").reads_halos:
            reach = (edge.size[2] - 1) * layout.geometry.dilations[edge.name][2]
            before, after = (max(0, reach - left_out) for left_out in layout.cropped(edge)[2])
            seen = gradient_halo(before + 1, 1, planar), gradient_halo(after + 1, 1, planar)
            frame = _wider(frame, ((0, 0), (0, 0), seen))
    return frame
