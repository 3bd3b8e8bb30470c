"""The shape on which the cost of a convolution depends (`ConvShape`), and rates of one core for estimates.

Only ratios of rates matter: they cut layers into tasks of 20 microseconds to 2 milliseconds and order tasks before
anything is measured. Rates are rounded down from measurements on AVX-512 cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES

from znnpy.geometry import Geometry, voxels
from znnpy.layers.activation_functions import function_of
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.layers.windows import sides
from znnpy.network.types import Edge, Network, Triple
from znnpy.plan.polyphase import Phases, phases_of
from znnpy.plan.types import PASSES, PassName

# Larger rates: estimates are shorter, so passes are cut into fewer and longer tasks, whose ends
# workers wait for. Smaller: more tasks than scheduling is worth.
TRANSFORM_RATE = 5e9  # flop/s of whole-image FFTs
PRODUCT_RATE = 20e9  # flop/s of products of their spectra
MEMORY_RATE = (
    4e9  # bytes/s of elementwise work where it is cut: short tasks, since whole layers wait for it
)
ELEMENTWISE_RATE = 20e9  # bytes/s that it runs at: 14e9 from and to memory, 45e9 within caches
# Bytes/s within forward passes of large patches, whose feature maps no cache holds.
STREAM_RATE = 14e9
LANES_COUNTED = 16  # of the widest vector, AVX-512: fewer output channels cost as much as this many
# Channels at both ends of a layer whose lanes go over tiles: with more, channels fill half of the lanes.
# Vectors of 4 have no room for the voxels behind four units (`znnpy_kernels.winograd.planar_lines`).
MOST_PLANAR = LANES // 2 if LANES > 4 else 0
TAPS = 3  # of filters that have tiles along an axis
FEW_IMAGES = 8  # channels; so few lie planar, without idle lanes (docs/design/convolution.md)
# Channels of an input that is read as it is staged; more fill half of the lanes, and are packed into blocks, which
# every algorithm reads.
PLANAR_INPUTS = min(FEW_IMAGES, LANES // 2)
# Where the estimates differ by more than this, measuring cannot change the choice.
# Larger: more hopeless layers are measured, which takes time at a first start. Smaller: an estimate
# that is off decides alone.
CLEAR_RATIO = 6.0
# Bytes of a layer's spectra, which grow with inputs x outputs x voxels: beyond this `auto` does not try.
# Larger spectra would leave the rest of a network little memory.
MOST_BYTES = 2.0 * 2**30
# Taps for each band: with more of them tiles of the dense layer, whose cost hardly depends on taps, take less time
# than direct convolution of its bands.
BAND_TAPS = 27


def convolutions(network: Network) -> list[Edge]:
    """Return the edges that plans are for: those with filters, transposed ones included."""
    return [edge for edge in network.edges if edge_kind(edge.kind).learns]


def is_depthwise(edge: Edge, network: Network) -> bool:
    """Return whether an edge is a depthwise convolution: each channel by a filter of its own."""
    channels = network.node(edge.source).channels, network.node(edge.target).channels
    return edge.kind == "conv" and edge.groups > 1 and channels == (edge.groups, edge.groups)


def lies_planar(network: Network, name: str) -> bool:
    """Return whether a node lies planar, without lanes: an input of few channels that only feeds conv and crop.

    Its staged data are used as they are. Depthwise convolutions read blocks of channels.
    """
    node = network.node(name)
    if node.kind != "input" or node.channels > PLANAR_INPUTS:
        return False
    planar = {"conv", "crop"}
    edges = network.outgoing(name)
    return all(edge.kind in planar and not is_depthwise(edge, network) for edge in edges)


def may_lie_planar(network: Network, name: str, *, training: bool = True) -> bool:
    """Return whether a node could lie planar, by what it is, with its inputs and outputs.

    In prediction more can: there are no gradients of slopes, shortcuts and transposed convolutions.
    """
    node = network.node(name)
    if node.kind == "input":
        return lies_planar(network, name)
    edges = network.incoming(name) + network.outgoing(name)
    slopes = function_of(node.function).held and (training or not node.tied)
    return (
        # Functions over channels, slopes of channels and norms need lanes.
        node.channels <= FEW_IMAGES
        and node.kind in ("transfer", "sum")
        and function_of(node.function).pointwise
        and not slopes
        and node.norm is None
        and any(edge.kind == "conv" or not training for edge in edges if edge.kind != "crop")
        and all(_may_meet_planar(network, edge, name, training=training) for edge in edges)
    )


def _may_meet_planar(network: Network, edge: Edge, name: str, *, training: bool) -> bool:
    """Return whether an edge could read or write a node that lies planar."""
    match edge.kind:
        case "conv":
            return max(edge.stride) == 1
        case "crop":  # of an input that lies planar, too
            return edge.target == name and lies_planar(network, edge.source)
        case "identity":  # other ends are other nodes' matter
            return not training and network.node(edge.source).kind != "input"
        case "conv_transpose":
            channels = network.node(name).channels
            few = edge.target == name and channels <= MOST_PLANAR
            return not training and few and edge.groups == 1 and edge.stride[2] > 1
        case _:
            return False


def planar_candidates(network: Network, *, training: bool = True) -> frozenset[str]:
    """Return the nodes that may lie planar with all around them, by the network alone: inputs, and what is between few.

    Between few channels at both ends lanes go over tiles along x, or nowhere: a layer that has none takes the chain
    that it belongs to back to blocks.
    """
    # Kept with the network: as a key of a cache it would be hashed for each layer and question, all of it.
    key = f"_planar_candidates_{training}"
    kept: frozenset[str] | None = vars(network).get(key)
    if kept is None:
        found = {
            node.name
            for node in network.nodes
            if may_lie_planar(network, node.name, training=training)
        }
        while left := {name for name in found if not _is_between(network, name, found)}:
            found -= left
        kept = vars(network)[key] = frozenset(found)
    return kept


def _is_between(network: Network, name: str, found: set[str]) -> bool:
    """Return whether all layers between a node and others of few channels could run between planar channels."""
    if network.node(name).kind == "input":
        return True
    edges = network.incoming(name) + network.outgoing(name)
    others = [edge.source if edge.target == name else edge.target for edge in edges]
    return all(
        (network.node(other).channels > FEW_IMAGES and edge.kind != "identity")
        or (other in found and edge.kind != "conv_transpose" and _has_tiles(edge))
        for edge, other in zip(edges, others, strict=True)
    )


def _has_tiles(edge: Edge) -> bool:
    """Return whether an edge has no filters, or three taps along x, one or three along others: tiles of Winograd's."""
    if edge.kind != "conv":
        return True
    return edge.size[2] == TAPS and set(edge.size) <= {1, TAPS} and edge.groups == 1


class Band(NamedTuple):
    """Neighbouring groups of a convolution, and their channels at both ends, which begin whole blocks."""

    first_input: int
    inputs: int
    first_output: int
    outputs: int
    groups: int


def bands_of(inputs: int, outputs: int, groups: int) -> tuple[Band, ...]:
    """Return the bands of as few groups as fill whole blocks at both ends; the last one may end within a block."""
    each, made = inputs // groups, outputs // groups
    # LANES is a power of two, so the larger of both is a multiple of the other.
    together = max(LANES // gcd(LANES, each), LANES // gcd(LANES, made))
    counts = [(first, min(together, groups - first)) for first in range(0, groups, together)]
    return tuple(
        Band(first * each, count * each, first * made, count * made, count)
        for first, count in counts
    )


@dataclass(frozen=True)
class ConvShape:
    """All that the cost of one convolution, transposed or not, depends on.

    `inputs`, `outputs`: channels. `size`, `dilation`, `stride`: of the filters; `source`, `target`: voxels of the
    nodes; all (z, y, x). `planar`: the source's channels lie without lanes (`lies_planar`); `between`: those of both
    ends may (`planar_candidates`).
    """

    inputs: int
    outputs: int
    size: Triple
    dilation: Triple
    stride: Triple
    source: Triple
    target: Triple
    batch: int
    # Fields with defaults are those that a plain valid convolution does not need. Wisdom's keys are
    # the `repr` of all fields: a new field makes measurements of before unknown.
    passes: tuple[PassName, ...] = PASSES  # that are needed
    padding: Sides = BARE
    border: BorderName = "zeros"
    transposed: bool = False
    groups: int = 1
    planar: bool = False
    between: bool = False

    @property
    def depthwise(self) -> bool:
        """Whether each channel has a filter of its own, which meets no other."""
        return (
            self.groups > 1 and self.inputs == self.outputs == self.groups and not self.transposed
        )

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands that it is computed in, if it is not computed as the dense layer with zeros between groups."""
        if self.groups == 1 or self.depthwise or self.planar:
            return ()
        found = bands_of(self.inputs, self.outputs, self.groups)
        return found if len(found) > 1 and voxels(self.size) <= BAND_TAPS * len(found) else ()

    @property
    def band(self) -> ConvShape:
        """The shape of its first band; itself without bands."""
        if not self.bands:
            return self
        _, inputs, _, outputs, groups = self.bands[0]
        return replace(self, inputs=inputs, outputs=outputs, groups=groups)

    @property
    def places(self) -> Triple:
        """The positions of filters (z, y, x): voxels that each meet every tap."""
        return self.source if self.transposed else self.target

    @property
    def phases(self) -> Phases:
        """The phases into which its strided filters, or those of the reverse direction, are split to be dense."""
        return phases_of(self.size, self.stride, self.dilation)

    @property
    def seen(self) -> Triple:
        """The extent of the source with its padding (z, y, x)."""
        z, y, x = (sum(sides, size) for size, sides in zip(self.source, self.padding, strict=True))
        return z, y, x

    @property
    def training(self) -> bool:
        """Whether filters change; if not, their transforms are made once and cost nothing."""
        return "weight" in self.passes

    @classmethod
    def of(
        cls, edge: Edge, network: Network, geometry: Geometry, batch: int, training: bool = True
    ) -> ConvShape:
        """Return the shape of one convolution in a fitted network; inputs get no data gradient."""
        learns = network.node(edge.source).kind != "input"
        # Nobody asks for the gradient by an input.
        updates: tuple[PassName, ...] = PASSES if learns else ("forward", "weight")
        return cls(
            network.node(edge.source).channels,
            network.node(edge.target).channels,
            edge.size,
            geometry.dilations[edge.name],
            edge.stride,
            geometry.nodes[edge.source].shape,
            geometry.nodes[edge.target].shape,
            batch,
            updates if training else ("forward",),
            sides(edge, geometry.dilations[edge.name]),
            edge.border,
            edge.kind == "conv_transpose",
            edge.groups,
            lies_planar(network, edge.source),
            {edge.source, edge.target} <= planar_candidates(network, training=training),
        )


def padded(channels: int) -> int:
    """Return the number of channels with those of idle lanes added."""
    return channels if channels <= FEW_IMAGES else -(-channels // LANES_COUNTED) * LANES_COUNTED
