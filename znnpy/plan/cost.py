"""What the cost of a convolution depends on, and rates of one core that estimates use.

Only ratios matter: they cut layers into tasks of 20 microseconds to 2 milliseconds and order tasks
before anything was measured. Rates are rounded down from measurements on AVX-512 cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from znnpy.geometry import Geometry
from znnpy.layers.edges import edge_kind
from znnpy.layers.padding import sides
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.network.types import Edge, Network, Triple
from znnpy.plan.polyphase import Phases, phases_of
from znnpy.plan.types import PASSES, PassName

TRANSFORM_RATE = 5e9  # flop/s
PRODUCT_RATE = 20e9
MEMORY_RATE = 4e9  # bytes/s of elementwise work
STREAM_RATE = 14e9  # bytes/s within forward passes of large patches, whose images no cache holds
LANES_COUNTED = 16  # widest vector: fewer output images cost as much as this many
FEW_IMAGES = 8  # but these lie planar, without lanes
# Where the estimates differ by more than this, measuring cannot change the choice.
CLEAR_RATIO = 6.0
# Spectra of a layer's filters grow with inputs x outputs x voxels: beyond this, `auto` does not try.
MOST_BYTES = 2.0 * 2**30


def convolutions(network: Network) -> list[Edge]:
    """Edges with filters, transposed ones too: those that plans are for."""
    return [edge for edge in network.edges if edge_kind(edge.kind).learns]


def is_depthwise(edge: Edge, network: Network) -> bool:
    """Whether an edge is a convolution of each image by a filter of its own."""
    images = network.node(edge.source).channels, network.node(edge.target).channels
    return edge.kind == "conv" and edge.groups > 1 and images == (edge.groups, edge.groups)


def lies_planar(network: Network, name: str) -> bool:
    """Whether a node is an input that only feeds convolutions and crops: its staged images are used, without lanes.

    Depthwise convolutions read blocks of images.
    """
    if network.node(name).kind != "input":
        return False
    planar = {"conv", "crop"}
    edges = network.outgoing(name)
    return all(edge.kind in planar and not is_depthwise(edge, network) for edge in edges)


@dataclass(frozen=True)
class ConvShape:
    """All that the cost of one conv edge, or transposed one, depends on.

    `planar`: its source's images lie without lanes, as those of an input do that only feeds convolutions.
    """

    inputs: int
    outputs: int
    size: Triple
    dilation: Triple
    stride: Triple
    source: Triple
    target: Triple
    batch: int
    passes: tuple[PassName, ...] = PASSES  # what is needed of it
    padding: Sides = BARE
    border: BorderName = "zeros"
    transposed: bool = False
    groups: int = 1
    planar: bool = False

    @property
    def depthwise(self) -> bool:
        """Whether each image has a filter of its own, which meets no other."""
        return (
            self.groups > 1 and self.inputs == self.outputs == self.groups and not self.transposed
        )

    @property
    def places(self) -> Triple:
        """Where filters stand: voxels of the image that each meet every tap."""
        return self.source if self.transposed else self.target

    @property
    def phases(self) -> Phases:
        """How its filters, or those that go the other way, are taken apart into dense ones."""
        return phases_of(self.size, self.stride, self.dilation)

    @property
    def seen(self) -> Triple:
        """The source's images with what is seen round them."""
        z, y, x = (sum(sides, size) for size, sides in zip(self.source, self.padding, strict=True))
        return z, y, x

    @property
    def training(self) -> bool:
        """Whether filters change: what is derived from them is made once otherwise, and costs nothing."""
        return "weight" in self.passes

    @classmethod
    def of(
        cls, edge: Edge, network: Network, geometry: Geometry, batch: int, training: bool = True
    ) -> ConvShape:
        """The shape of one conv edge in a fitted network; no data gradient goes into an input."""
        learns = network.node(edge.source).kind != "input"
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
        )


def padded(channels: int) -> int:
    """Images with the lanes that they leave idle."""
    return channels if channels <= FEW_IMAGES else -(-channels // LANES_COUNTED) * LANES_COUNTED
