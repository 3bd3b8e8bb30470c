"""Every tensor of one update: activations, gradients, and where each edge leaves its contribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from znnpy_kernels.direct.few_channels import FEW
from znnpy_kernels.direct.forward import gradient_halo
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.arena import Replica
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.memory.tensors import Tensor, new_tensor
from znnpy.geometry import Geometry
from znnpy.layers.activation_functions import function_of
from znnpy.layers.edges import edge_kind
from znnpy.layers.padding import sides
from znnpy.layers.types import BARE, ONCE, BorderName, Sides
from znnpy.network.parameters import held
from znnpy.network.types import Edge, Network, Node, Triple
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, PassName, Plan, cut_axis
from znnpy.plan.algorithms import Traits
from znnpy.plan.cost import lies_planar

SUMS = ("sum", "transfer")  # nodes that add what their edges bring
ACTIVATIONS = Use("activations")
COPIES = Use("copies with other frames", "activations")
CONTRIBUTIONS = Use("contributions")
GRADIENTS = Use("gradients")
EDGE_GRADIENTS = Use("gradients brought back", "gradients")


@dataclass
class FeatureMaps:
    """Tensors by node or edge name, shared by the even and the odd step.

    `activations`: values of nodes; inputs that only feed convolutions stay where they are staged. `copies`:
    the same once more, by node and border, where convolutions that read them take other voxels for what
    lies beyond than those that the images' own frame holds.
    `contributions`: what an edge brings to its target; the first of converging edges writes into the
    activation itself, unless the backward pass needs their sum too, and what fills whole blocks of a
    concat node's into these; identities bring their source's activation where another edge is the first,
    and bring back their target's gradient. `gradients`: of the loss by a node's value, later by the sum
    of its edges. `backward`: what an edge brings to its source's gradient.
    """

    cut: int
    activations: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[tuple[str, BorderName], Tensor] = field(default_factory=dict)
    contributions: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    backward: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """What decides the shape of all buffers: network, sizes, plan, batch, and the passes wanted.

    `batch`: the samples of one microbatch. `numbers`: the microbatches of an update that are computed here,
    of `microbatches` in all; `replicas`: how many of them may be under way at once, each with images of its own.
    `filters_kept`: what passes need of filters beside themselves is made once an update and kept for all
    microbatches.
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
        """Of updates by so many samples, computed in microbatches; one of them is under way at a time."""
        count = batch // microbatch
        return cls(
            network, geometry, plan, microbatch, True, seed, workers, range(count), count
        )  # fmt: skip

    @property
    def filters_pass(self) -> bool:
        """Whether passes make what they need of filters: just before, in memory that others have too."""
        return self.training and not self.filters_kept

    @property
    def samples(self) -> int:
        """Samples of an update that are computed here."""
        return self.batch * len(self.numbers)

    @property
    def slots(self) -> int:
        """Sums over microbatches that are kept side by side.

        A tree that is added up as soon as that can be needs one for each of its levels, and what is under way
        needs its own.
        """
        count = len(self.numbers)
        return min(count, (count - 1).bit_length() + self.replicas)

    @property
    def cut(self) -> int:
        """Axis along which all images are cut into ranges."""
        return cut_axis(next(iter(self.geometry.output_shapes.values())))

    def shape(self, node: str) -> Triple:
        """Shape of a node's images, z y x."""
        return self.geometry.nodes[node].shape

    def stays_planar(self, node: str) -> bool:
        """Whether a node's images are used as they are staged."""
        return lies_planar(self.network, node)

    def lanes(self, node: str) -> int:
        """Lanes of a node's images and gradients: 1 where they are planar."""
        return 1 if self.stays_planar(node) or is_planar(self, node) else LANES

    def padding(self, edge: Edge) -> Sides:
        """Voxels beyond the source's images that a convolution sees."""
        return sides(edge, self.geometry.dilations[edge.name])

    def frames(self, node: str) -> dict[BorderName, Sides]:
        """Voxels that convolutions see round a node's images, by what they are.

        The first are the frame of the images, the others those of copies.
        """
        found: dict[BorderName, Sides] = {}
        for edge in self.network.outgoing(node):
            if edge.kind == "conv" and self.padding(edge) != BARE:
                found[edge.border] = _wider(found.get(edge.border, BARE), self.padding(edge))
        return found

    def frame(self, node: str) -> Sides:
        """Voxels round a node's images in the same memory, and round those that lie there with them."""
        frame = next(iter(self.frames(node).values()), BARE)
        for edge in self.network.incoming(node):
            if self.home(edge.source) is edge:
                frame = _wider(frame, next(iter(self.frames(edge.source).values()), BARE))
        return frame

    def stacked(self, edge: Edge) -> int | None:
        """The block of a concat node's at which an edge's images begin; None where they share blocks."""
        node, first = self.network.node(edge.target), 0
        if node.kind != "concat":
            return None
        for other in self.network.incoming(node.name):
            if other is edge:
                break
            first += self.contributed(other)
        end = first + self.contributed(edge)
        whole = first % LANES == 0 and (end % LANES == 0 or end == node.channels)
        return first // LANES if whole else None

    def handed(self, edge: Edge) -> int | None:
        """The same where the images are those of the edge's source, as they are."""
        same = edge.kind == "identity" and self.lanes(edge.source) == LANES
        return self.stacked(edge) if same else None

    def home(self, node: str) -> Edge | None:
        """The edge that hands a node's images to the concat node in whose memory they lie."""
        if self.network.node(node).kind in ("input", "concat"):
            return None
        own = [*self.frames(node)][:1]
        for edge in self.network.outgoing(node):
            whole = [*self.frames(edge.target)][:1]
            if self.handed(edge) is not None and (not own or own == whole):
                return edge
        return None

    def folded(self, edge: Edge) -> bool:
        """Whether a data gradient is made for the images with what is round them, then for the images alone."""
        padded = edge.kind == "conv" and self.padding(edge) != BARE
        return padded and not (edge.border == "zeros" and self.traits(edge, "gradient").crops)

    def covers(self, edge: Edge) -> bool:
        """Whether a filter sees all of each image at once: then samples of a batch are places of a row."""
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
        """Whether a direct data gradient reads zeros on both sides of rows; on lattices it leaves them out."""
        return edge.kind == "conv" and max(edge.stride) == 1 and not self.covers(edge)

    def cropped(self, edge: Edge) -> Sides:
        """Voxels of its full correlation that a data gradient leaves out."""
        return BARE if self.folded(edge) else self.padding(edge)

    def conv_shape(self, edge: Edge) -> ConvShape:
        """What the cost of a conv edge depends on, all its passes wanted."""
        return ConvShape.of(edge, self.network, self.geometry, self.batch)

    def traits(self, edge: Edge, which: PassName) -> Traits:
        """What the algorithm of one pass of a conv edge can do."""
        return ALGORITHMS[self.plan.layers[edge.name].method(which).algorithm].traits

    def contributed(self, edge: Edge) -> int:
        """Images that an edge brings to its target: those of its source, or of its filters."""
        end = edge.target if edge_kind(edge.kind).learns else edge.source
        return self.network.node(end).channels


def _wider(one: Sides, other: Sides) -> Sides:
    z, y, x = ((max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return z, y, x


def is_planar(layout: Layout, name: str) -> bool:
    """Whether a node has so few images, all between convolutions with many, that they lie planar."""
    node, network = layout.network.node(name), layout.network
    edges = network.incoming(name) + network.outgoing(name)
    return (
        node.channels <= FEW
        and node.kind in ("transfer", "sum")
        and function_of(node.function).pointwise
        and not function_of(node.function).held
        and node.norm is None
        and any(edge.kind == "conv" for edge in edges)
        and all(_takes_planar(layout, edge, edge.target == name) for edge in edges)
    )


def first_of(edges: Sequence[Edge]) -> Edge:
    """Of edges that converge, the one whose images become the sum: it makes some, if any of them does."""
    return next((edge for edge in edges if edge.kind != "identity"), edges[0])


def is_passed_on(network: Network, edge: Edge) -> bool:
    """Whether what an edge brings is its source's images themselves, without a copy."""
    into = network.node(edge.target).kind
    added = into in SUMS and edge is not first_of(network.incoming(edge.target))
    return edge.kind == "identity" and (into == "concat" or added)


def is_passed_back(network: Network, edge: Edge) -> bool:
    """Whether what an edge brings back is its target's gradient itself."""
    added = edge is not first_of(network.outgoing(edge.source))
    return edge.kind == "identity" and network.node(edge.target).kind in SUMS and added


def keeps_sum(layout: Layout, node: Node) -> bool:
    """Whether a node's sum lies beside its values, because the backward pass needs both."""
    needed = node.norm is not None or function_of(node.function).needs_sum
    return layout.training and node.kind == "transfer" and needed


def _takes_planar(layout: Layout, edge: Edge, target: bool) -> bool:
    """Whether an edge's passes can have a planar target, or else a planar source."""
    other = edge.source if target else edge.target
    if edge.kind != "conv":
        return edge.kind == "crop" and target and layout.stays_planar(other)
    if max(edge.stride) > 1 or layout.stays_planar(other):
        return False
    if layout.network.node(other).channels <= FEW:
        return False
    forward, gradient, weight = (layout.traits(edge, which) for which in PASSES)
    if target:
        reads = gradient.reads_planar_gradients and weight.reads_planar_gradients
        return forward.writes_planar and reads
    return gradient.writes_planar and forward.reads_planar and weight.reads_planar


def trained_nodes(network: Network) -> set[str]:
    """Nodes whose gradient something that is learned needs."""
    trained: set[str] = set()
    for node in network.nodes:
        incoming = network.incoming(node.name)
        if (
            (node.kind == "transfer" and node.bias)
            or any(array.learned for array in held(node).values())
            or any(edge_kind(edge.kind).learns for edge in incoming)
            or any(edge.source in trained for edge in incoming)
        ):
            trained.add(node.name)
    return trained - {node.name for node in network.inputs}


def reserve_feature_maps(replica: Replica, layout: Layout) -> FeatureMaps:
    """Reserve all tensors of a forward pass, and of the backward pass when training."""
    maps = FeatureMaps(layout.cut)
    # Backwards: what lies in a concat node's memory finds it there.
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
    """A node's values."""
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
    """The blocks of a concat node's values that an edge's images fill."""
    block = layout.stacked(edge)
    assert block is not None
    return maps.activations[edge.target].part(block, layout.contributed(edge))


def _reserve_contributions(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    """What edges bring to a node beside what lies elsewhere already."""
    network = layout.network
    node, own = network.node(name), maps.activations[name]
    for edge in (incoming := network.incoming(name)):
        if is_passed_on(network, edge):
            brought = maps.activations[edge.source]
        elif layout.stacked(edge) is not None:
            brought = _brought_to(layout, maps, edge)
        elif node.kind != "concat" and edge is first_of(incoming) and not keeps_sum(layout, node):
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
    """Whether values are needed within a step alone: users ask for those of outputs after it."""
    return node.kind != "input" and bool(layout.network.outgoing(node.name))


def _reserve_copies(replica: Replica, layout: Layout, maps: FeatureMaps, name: str) -> None:
    """Room for a node's values with every frame but the first."""
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
    own = _own_gradient(layout, maps, name) or make(Name(GRADIENTS, name))
    maps.gradients[name] = own
    for edge in (outgoing := network.outgoing(name)):
        if edge is first_of(outgoing):
            maps.backward[edge.name] = own
        elif is_passed_back(network, edge):
            maps.backward[edge.name] = maps.gradients[edge.target]
        else:
            handed = _handed_back(layout, maps, edge)
            maps.backward[edge.name] = handed or make(Name(EDGE_GRADIENTS, edge.name))


def _own_gradient(layout: Layout, maps: FeatureMaps, name: str) -> Tensor | None:
    """Where a node's gradient lies in that of a concat node: only identities leave it, and it needs no frame."""
    outgoing = layout.network.outgoing(name)
    if not outgoing or _gradient_frame(layout, name) != BARE:
        return None
    return _handed_back(layout, maps, first_of(outgoing))


def _handed_back(layout: Layout, maps: FeatureMaps, edge: Edge) -> Tensor | None:
    """The blocks of a concat node's gradient that belong to what an edge handed to it as it was."""
    block, whole = layout.handed(edge), maps.gradients.get(edge.target)
    return whole.part(block, layout.contributed(edge)) if whole and block is not None else None


def _gradient_frame(layout: Layout, name: str) -> Sides:
    """Zeros round a gradient that its edges may read.

    Those on both sides of its rows are for direct data gradients, others for what transposed convolutions
    leave out of their images.
    """
    frame, planar = BARE, layout.lanes(name) == 1
    for edge in layout.network.incoming(name):
        if edge.kind == "conv_transpose":
            frame = _wider(frame, layout.padding(edge))
        goes_on = layout.network.node(edge.source).kind != "input"
        if goes_on and layout.reads_halo(edge) and layout.traits(edge, "gradient").reads_halos:
            reach = (edge.size[2] - 1) * layout.geometry.dilations[edge.name][2]
            before, after = (max(0, reach - left_out) for left_out in layout.cropped(edge)[2])
            seen = gradient_halo(before + 1, 1, planar), gradient_halo(after + 1, 1, planar)
            frame = _wider(frame, ((0, 0), (0, 0), seen))
    return frame
