"""`Layout` decides how each node's feature map lies in memory: blocked or planar, its padding, in whose memory.

Blocked: LANES channels side by side. Planar: one channel after the other, for nodes of few channels (`planar`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd import lines

from znnpy.engine.memory.planar import planar_nodes
from znnpy.geometry import Geometry
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import BARE, ONCE, BorderName, Sides
from znnpy.layers.windows import sides
from znnpy.network.types import Edge, Network, Triple
from znnpy.plan import (
    ALGORITHMS,
    PASSES,
    AlgorithmName,
    ConvShape,
    Grain,
    PassName,
    Plan,
    cut_axis,
)
from znnpy.plan.algorithms import Traits
from znnpy.plan.algorithms.winograd import MARCH_KNOWN
from znnpy.plan.choose import planned_seconds
from znnpy.plan.cost import Band, convolutions, lies_planar, planar_candidates


@dataclass(frozen=True)
class Layout:
    """Everything that decides the shape of buffers: network, sizes, plan, batch, training or not.

    `batch`: samples of one microbatch. `numbers`: the microbatches of an update that are computed here, of
    `microbatches` in all. `replicas`: how many of them may be in flight at once, each with feature maps of its own.
    `filters_kept`: what is derived from filters (spectra, transposed copies) is made once for all microbatches.
    `cut_for`: workers that have enough tasks; 0: `workers`. `planned`: microbatches for which each of `numbers` stands,
    as all are alike where memory is planned. `lean`: predictions take as little memory as they can.
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
    lean: bool = False

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
        # In prediction filters never change, so what is derived from them is made once and kept, unless memory counts
        # for more.
        return (self.training or self.lean) and not self.filters_kept

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
        return node in self.planar and lies_planar(self.network, node)

    @cached_property
    def planar(self) -> frozenset[str]:
        """The nodes that lie planar."""
        return planar_nodes(self.network, self.traits, self._runs_between, training=self.training)

    def _runs_between(self, edge: Edge) -> bool:
        """Return whether all passes of a convolution run between planar channels at both ends."""
        shape, layer = self.conv_shape(edge), self.plan.layers[edge.name]
        return all(
            which in ALGORITHMS[layer.method(which).algorithm].between_planar(shape)
            for which in (shape.passes if self.training else PASSES[:1])
        )

    def lanes(self, node: str) -> int:
        """Return how many channels of a node lie side by side: LANES, or 1 if it is planar."""
        return 1 if node in self.planar else LANES

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
            bare = self.padding(edge) == BARE or self.sees_zeros(edge)
            if edge.kind == "conv" and not bare:
                found[edge.border] = wider(found.get(edge.border, BARE), self.padding(edge))
        return found

    def sees_zeros(self, edge: Edge) -> bool:
        """Return whether all passes of a convolution see zeros beyond its source, which then needs no frame of them."""
        if edge.kind != "conv" or edge.border != "zeros":
            return False
        which = PASSES if self.training else PASSES[:1]
        planar = {edge.source, edge.target} <= self.planar
        # Planar ones by masks; tiles of other blocks are copied at borders, which takes longer than a frame.
        known = planar or self._goes_by_lines(edge)
        return known and all(self.traits(edge, it).sees_zeros for it in which)

    def _goes_by_lines(self, edge: Edge) -> bool:
        """Return whether all passes that read a convolution's source go row by row, which copies nothing at borders."""
        # Asked of every task, so what tells most layers comes first.
        blocks = edge.size == lines.TAPS_OF_LINES and self.lanes(edge.target) == LANES
        return blocks and self.takes_joined(edge, "forward") and self.sums_lines(edge)

    def takes_joined(self, edge: Edge, which: PassName) -> bool:
        """Return whether a pass takes the kernels that can make both gradients at once, where there are any.

        Plans without a march, as they are where none was measured, take them where they are known to be faster.
        """
        march = self.plan.layers[edge.name].method(which).march
        return MARCH_KNOWN if march is None else march == "joined"

    def sums_lines(self, edge: Edge) -> bool:
        """Return whether weight gradients go row by row: those by Winograd, made with the data gradient or alone."""
        shape, (_, *others) = self.conv_shape(edge), self.padding(edge)
        plain = not (self.bands(edge) or self.folded(edge) or self.lanes(edge.source) == 1)
        small = lines.sums_bytes(shape.inputs, shape.outputs) <= lines.SUMS_BYTES
        plain = plain and edge.size == lines.TAPS_OF_LINES and not any(map(any, others))
        return plain and small and self.takes_joined(edge, "weight")

    def frame(self, node: str) -> Sides:
        """Return the padding around a node's activation in memory, wide enough for all that lies in its blocks."""
        frame = next(iter(self.frames(node).values()), BARE)
        for edge in self.network.incoming(node):
            if self.home(edge.source) is edge:
                frame = wider(frame, next(iter(self.frames(edge.source).values()), BARE))
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
            # frame must be of the same kind as theirs; where they need none, zeros may be wider than it asks for.
            alike = not own or own == (whole or ["zeros"])
            if self.handed(edge) is not None and alike:
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
        shape = ConvShape.of(edge, self.network, self.geometry, self.batch)
        if self.training:
            return shape
        # Passes are all of them, as estimates ask for; but more nodes may lie planar.
        planar = planar_candidates(self.network, training=False)
        return replace(shape, between={edge.source, edge.target} <= planar)

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
        # The grain is that of the whole network, and nodes lie as there, though fewer channels would lie planar.
        vars(found).update(grain=self.grain, planar=self.planar)
        return found

    def traits(self, edge: Edge, which: PassName) -> Traits:
        """Return the abilities of the algorithm that computes one pass of a conv edge."""
        return ALGORITHMS[self.algorithm(edge, which)].traits

    def algorithm(self, edge: Edge, which: PassName) -> AlgorithmName:
        """Return the algorithm that computes one pass of a conv edge."""
        return self.plan.layers[edge.name].method(which).algorithm

    def contributed(self, edge: Edge) -> int:
        """Return how many channels an edge brings to its target."""
        ends = (self.network.node(name).channels for name in (edge.source, edge.target))
        return edge_kind(edge.kind).brings(edge, *ends)


def wider(one: Sides, other: Sides) -> Sides:
    """Return padding as wide as the wider of two on each side of each axis."""
    z, y, x = ((max(a[0], b[0]), max(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return z, y, x
