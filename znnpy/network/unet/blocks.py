"""The sketch of a U-Net, to which nodes and edges are added, and its blocks of convolutions, plain or residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from znnpy.config.unet_section import BlockSection, UnetSection
from znnpy.errors import NetworkError
from znnpy.layers.activation_functions import FunctionName
from znnpy.layers.keys import slope_of
from znnpy.layers.normalization import norm_of
from znnpy.layers.types import EdgeKindName
from znnpy.network.types import ONCE, Edge, Node, Sides, Triple

NOTHING: Triple = (0, 0, 0)


@dataclass
class Sketch:
    """The nodes and edges added so far, in the order in which data flows."""

    section: UnetSection
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """Add a node and return it."""
        self.nodes.append(node)
        return node

    def passing(self, name: str, channels: int) -> Node:
        """Add a node that only sums its edges."""
        return self.add(Node(name, "sum", channels, bias=False))

    def active(self, name: str, channels: int, *, bias: bool = True, normed: bool = True) -> Node:
        """Add a node with the network's activation function, and its bias and norm unless told not to."""
        return self._transfer(name, channels, self.section.function, bias, normed)

    def made(self, name: str, channels: int) -> Node:
        """Add the node that a convolution leads to: with the network's norm and function, unless these come before."""
        if self.section.order == "pre":
            return self.linear(name, channels)
        return self.active(name, channels)

    def ready(self, name: str, source: Node) -> Node:
        """Return what a convolution reads: where norm and function come before it, a node with them, of this name.

        The input of the network is read as it is.
        """
        if self.section.order == "post" or source.kind == "input":
            return source
        return self.hand(f"{name}.in", source, self.active(name, source.channels, bias=False))

    def linear(self, name: str, channels: int, *, bias: bool = True, normed: bool = False) -> Node:
        """Add a node without an activation function, with the network's bias unless told not to."""
        return self._transfer(name, channels, "linear", bias, normed)

    def _transfer(
        self, name: str, channels: int, function: FunctionName, bias: bool, normed: bool
    ) -> Node:
        section = self.section
        slope = slope_of(function, section.slope if function == section.function else None)
        norm = norm_of(section.norm) if normed else None
        bias = bias and section.biased
        return self.add(Node(name, "transfer", channels, function, slope, bias, norm=norm))

    def lead(self, name: str, kind: EdgeKindName, source: Node, to: Node, **numbers: Any) -> Node:
        """Add an edge and return the node that it leads to."""
        self.edges.append(Edge(name, kind, source.name, to.name, **numbers))
        return to

    def hand(self, name: str, source: Node, to: Node, crop: Triple = NOTHING) -> Node:
        """Add an edge that passes a feature map on, cropped by a margin (z, y, x) on each side."""
        if crop == NOTHING:
            return self.lead(name, "identity", source, to)
        return self.lead(name, "crop", source, to, offset=crop)

    def convolve(
        self, name: str, source: Node, to: Node, size: Triple, stride: Triple = ONCE
    ) -> Node:
        """Add a convolution, padded if the network is, and return the node that it leads to."""
        numbers: dict[str, Any] = {"size": size, "stride": stride}
        if self.section.padding == "same" and size != ONCE:
            numbers["padding"] = "same" if stride == ONCE else _around(size)
            numbers["border"] = self.section.border
        return self.lead(name, "conv", source, to, **numbers)


def _around(size: Triple) -> Sides:
    """Return the padding that `same` stands for; the word itself is refused beside a stride."""
    z, y, x = (((taps - 1) // 2, taps // 2) for taps in size)
    return z, y, x


@dataclass(frozen=True)
class Convs:
    """The convolutions of a block in order: output channels, filter size and stride of each."""

    widths: Sequence[int]
    sizes: Sequence[Triple]
    strides: Sequence[Triple]

    @classmethod
    def of(cls, widths: Sequence[int], sizes: Sequence[Triple], stride: Triple) -> Convs:
        """Return convolutions of which the first has the stride; one width stands for all."""
        widths = widths if len(widths) > 1 else [*widths] * len(sizes)
        return cls(widths, sizes, [stride, *[ONCE] * (len(sizes) - 1)])

    def __len__(self) -> int:
        return len(self.sizes)


def block(sketch: Sketch, prefix: str, at: Node, convs: Convs, kind: BlockSection) -> Node:
    """Add a block, then dropout if the network has it; return the last node."""
    made = _plain if kind.kind == "plain" else _residual
    at = made(sketch, prefix, at, convs, kind)
    dropout = sketch.section.dropout
    if dropout is None:
        return at
    dropped = sketch.passing(f"{prefix}.dropped", at.channels)
    return sketch.lead(f"{prefix}.dropout", "dropout", at, dropped, keep=dropout.keep)


def _plain(sketch: Sketch, prefix: str, at: Node, convs: Convs, kind: BlockSection) -> Node:
    for index in range(len(convs)):
        at = _layer(sketch, prefix, at, convs, index)
    return at


def _layer(sketch: Sketch, prefix: str, source: Node, convs: Convs, index: int) -> Node:
    """Add a convolution and the node that it leads to; return that node."""
    to = sketch.made(f"{prefix}.layer{index + 1}", convs.widths[index])
    return _conv(sketch, prefix, source, to, convs, index)


def _conv(sketch: Sketch, prefix: str, source: Node, to: Node, convs: Convs, index: int) -> Node:
    name, source = f"{prefix}.conv{index + 1}", sketch.ready(f"{prefix}.ready{index + 1}", source)
    return sketch.convolve(name, source, to, convs.sizes[index], convs.strides[index])


def _residual(sketch: Sketch, prefix: str, at: Node, convs: Convs, kind: BlockSection) -> Node:
    """Add a residual block: its input, or the output of its first convolution, is added as `kind` says."""
    before = 1 if kind.start == "first" else 0
    start, last = at, len(convs) - 1
    for index in range(last):
        at = _layer(sketch, prefix, at, convs, index)
        if index < before:
            start = at
    across = Convs(convs.widths[before:], convs.sizes[before:], convs.strides[before:])
    fits = start.channels == convs.widths[last] and across.strides[0] == ONCE
    name, width = f"{prefix}.layer{last + 1}", convs.widths[last]
    if kind.add == "sum":
        own = to = sketch.made(name, width)
        _conv(sketch, prefix, at, own, convs, last)
    else:
        own = _last(sketch, name, width, kind)
        _conv(sketch, prefix, at, own, convs, last)
        to = _added(sketch, f"{prefix}.sum", width, kind, projected=not fits)
        sketch.hand(f"{prefix}.add", own, to)
    if fits:
        return sketch.hand(f"{prefix}.shortcut", start, to, _crop(sketch, across))
    return _projected(sketch, prefix, start, to, across, kind)


def _last(sketch: Sketch, name: str, width: int, kind: BlockSection) -> Node:
    """Add the node of the last convolution, where the shortcut is added after it and not in it."""
    if kind.add == "function":
        return sketch.active(name, width)
    return sketch.linear(name, width, bias=sketch.section.biased, normed=True)


def _added(sketch: Sketch, name: str, width: int, kind: BlockSection, *, projected: bool) -> Node:
    """Add the node after it in which block and shortcut are added."""
    if kind.add == "norm":
        return sketch.active(name, width, bias=False, normed=False)
    if projected and sketch.section.biased:
        return sketch.linear(name, width, bias=True)
    return sketch.passing(name, width)


def _projected(
    sketch: Sketch, prefix: str, start: Node, to: Node, across: Convs, kind: BlockSection
) -> Node:
    """Add a shortcut to a feature map of another number of channels or another size; return where it leads."""
    stride, size = across.strides[0], ONCE
    if kind.shortcut == "filter" and stride != ONCE:
        size = across.sizes[0]
    crop = _crop(sketch, across, stride if kind.shortcut == "average" else size)
    if crop != NOTHING:
        start = sketch.hand(
            f"{prefix}.crop", start, sketch.passing(f"{prefix}.cropped", start.channels), crop
        )
    if kind.shortcut == "average" and stride != ONCE:
        if start.channels == to.channels:
            return sketch.lead(
                f"{prefix}.shortcut", "avg_pool", start, to, size=stride, stride=stride
            )
        pooled = sketch.passing(f"{prefix}.averaged", start.channels)
        start = sketch.lead(
            f"{prefix}.average", "avg_pool", start, pooled, size=stride, stride=stride
        )
        stride = ONCE
    if kind.add != "norm" or sketch.section.norm is None:
        return sketch.convolve(f"{prefix}.shortcut", start, to, size, stride)
    normed = sketch.linear(f"{prefix}.projected", to.channels, bias=False, normed=True)
    sketch.convolve(f"{prefix}.shortcut", start, normed, size, stride)
    return sketch.hand(f"{prefix}.project", normed, to)


def _crop(sketch: Sketch, across: Convs, size: Triple = ONCE) -> Triple:
    """Return the voxels (z, y, x) cut from a shortcut on each side to fit convolutions without padding."""
    if sketch.section.padding == "same":
        return NOTHING
    z, y, x = (_centre(across, axis) - (size[axis] - 1) // 2 for axis in range(3))
    if min(z, y, x) < 0:
        raise NetworkError(
            "a shortcut over the average loses more than the strided filters; choose larger ones, or "
            "shortcut: conv"
        )
    return z, y, x


def _centre(across: Convs, axis: int) -> int:
    """Return the voxel of the input on which the first output voxel of these convolutions is centred."""
    centre, step = 0, 1
    for size, stride in zip(across.sizes, across.strides, strict=True):
        centre += (size[axis] - 1) // 2 * step
        step *= stride[axis]
    return centre
