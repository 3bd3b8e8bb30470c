"""What is measured: ZNN's benchmark networks and single layers, as znnpy networks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from znnpy.config import load_config
from znnpy.geometry import fit
from znnpy.network import trained_network
from znnpy.network.types import Edge, Init, Network, Node, Triple

ZERO = Init("constant")
NETWORKS = ("3x10", "3x40", "5x10", "5x40", "7x10", "2d-11x20")
# ZNNi's benchmark networks (arXiv 1606.05688): convolutions C and poolings P of cubes; 80 images, 3 at
# the output, relu after each convolution. Pooling is dense here: a max-filter, and sparse filters after it.
INFERENCE = {
    "n337": "C2 P2 C3 P2 C3 P2 C3 C3 C3 C3",
    "n537": "C4 P2 C5 P2 C5 P2 C5 C5 C5 C5",
    "n726": "C6 P2 C7 P2 C7 C7 C7 C7",
    "n926": "C8 P2 C9 P2 C9 C9 C9 C9",
}
INFERENCE_IMAGES = 80
INFERENCE_OUTPUT: Triple = (16, 16, 16)
RECIPES = {"lenet": "mnist_lenet.yaml", "cifar10_quick": "cifar10_quick.yaml"}
"""Classification of images: recipes in `volumes/`."""
_FOLDER = Path(__file__).parents[2] / "volumes"


@dataclass(frozen=True)
class Case:
    """A network, the shape (z, y, x) of its output, and the loss of its training update.

    `flat`: peers convolve its single planes in two dimensions.
    """

    name: str
    network: Network
    output_shape: Triple
    loss: str
    training: bool = True
    batch: int = 1
    flat: bool = False

    def sample(self, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Inputs and targets of zeros and ones, (batch, channel, z, y, x) float32."""
        rng = np.random.default_rng(seed)
        geometry = fit(self.network, self.output_shape)
        (source,), (output,) = self.network.inputs, self.network.outputs
        shape = (self.batch, source.channels, *geometry.input_shapes[source.name])
        target = rng.integers(0, 2, (self.batch, output.channels, *self.output_shape))
        return rng.standard_normal(shape).astype(np.float32), target.astype(np.float32)

    @property
    def flops(self) -> float:
        """Operations of the convolutions of one update, or forward pass, counted directly.

        Two a multiplication. A data gradient counts only where something before it learns.
        """
        geometry, total = fit(self.network, self.output_shape), 0.0
        learned: set[str] = set()
        for node in self.network.nodes[1:]:
            for edge in self.network.incoming(node.name):
                if edge.kind == "conv":
                    source = self.network.node(edge.source)
                    taps = source.channels * node.channels // edge.groups * prod(edge.size)
                    passes = (3 if edge.source in learned else 2) if self.training else 1
                    total += 2.0 * passes * taps * prod(geometry.nodes[node.name].shape)
                if edge.source in learned or node.kind == "transfer":
                    learned.add(node.name)
        return self.batch * total


def network_case(spec: str) -> Case:
    """ZNN's pattern CTMCTMCTCT from `3x10` (filter 3^3, width 10) or `2d-11x20` (filter 11^2)."""
    found = re.fullmatch(r"(2d-)?(\d+)x(\d+)", spec)
    if not found:
        raise SystemExit(f"network {spec!r} is not FILTERxWIDTH such as 3x10, or 2d-11x20")
    size, width, flat = int(found[2]), int(found[3]), found[1] is not None
    filters: Triple = (1, size, size) if flat else (size, size, size)
    window: Triple = (1, 2, 2) if flat else (2, 2, 2)
    shape: Triple = (1, 48, 48) if flat else (12, 12, 12)
    return Case(spec, _pattern(filters, window, width), shape, "binomial_cross_entropy")


def inference_case(name: str, output_shape: Triple = INFERENCE_OUTPUT) -> Case:
    """A forward pass of one of ZNNi's networks, dense, with random weights."""
    parts = [(word[0], int(word[1:])) for word in INFERENCE[name].split()]
    widths = [INFERENCE_IMAGES] * (len(parts) - 1) + [3]
    operations = [(kind, (n, n, n), width) for (kind, n), width in zip(parts, widths, strict=True)]
    network = _chain(operations)
    shape = "" if output_shape == INFERENCE_OUTPUT else f", {_named(output_shape)} out"
    return Case(f"{name}, dense{shape}", network, output_shape, "square", training=False)


def ten_layers() -> Case:
    """An update of ten layers of as many shapes: 12 to 32 images, filters of 3^3 and 5^3."""
    widths = (12, 12, 12, 16, 16, 16, 24, 24, 24, 32, 32, 3)
    kinds = zip("CCPCCPCCCCCC", (3, 3, 2, 3, 5, 2, 3, 3, 5, 3, 3, 3), widths, strict=True)
    network = _chain([(kind, (size,) * 3, width) for kind, size, width in kinds])
    return Case("ten layers", network, (16, 16, 16), "square")


def _pattern(filters: Triple, window: Triple, width: int) -> Network:
    """conv, relu, max-filter, conv, relu, max-filter, conv, relu, conv to three images."""
    letters = "CPCPCC"
    return _chain(
        [
            ("C", filters, 3 if index == len(letters) else width)
            if letter == "C"
            else ("P", window, width)
            for index, letter in enumerate(letters, start=1)
        ]
    )


def _chain(operations: Sequence[tuple[str, Triple, int]]) -> Network:
    """(C or P, filter or window, images) in turn; relu after each convolution but the last."""
    nodes, edges = [Node("input", "input", 1)], []
    for index, (kind, size, images) in enumerate(operations, start=1):
        source, name = nodes[-1].name, f"n{index}"
        if kind == "P":
            nodes.append(Node(name, "sum", images))
            edges.append(Edge(f"e{index}", "max_filter", source, name, size=size, sparsens=size))
        else:
            function = "linear" if index == len(operations) else "relu"
            nodes.append(Node(name, "transfer", images, function, init=ZERO))
            edges.append(Edge(f"e{index}", "conv", source, name, size=size))
    return Network(tuple(nodes), tuple(edges))


def layer(
    images: int,
    out: int,
    size: int | Triple,
    extent: int | Triple,
    *,
    sparsity: int = 1,
    stride: int = 1,
    batch: int = 1,
) -> Case:
    """One conv edge behind a node with a bias, so that its data gradient is wanted as well.

    Numbers stand for cubes.
    """
    filters, shape = _triple(size), _triple(extent)
    nodes = (
        Node("input", "input", images),
        Node("before", "transfer", images, init=ZERO),
        Node("out", "transfer", out, init=ZERO),
    )
    dilation, strides = _along(filters, sparsity), _along(filters, stride)
    edges = (
        Edge("pass", "crop", "input", "before"),
        Edge("conv", "conv", "before", "out", size=filters, stride=strides, sparsity=dilation),
    )
    more = {"sparsity": sparsity, "stride": stride, "batch": batch}
    words = [f", {word} {value}" for word, value in more.items() if value > 1]
    name = f"{images}->{out}, {_named(filters)}, {_named(shape)} out{''.join(words)}"
    return Case(name, Network(nodes, edges), shape, "square", batch=batch)


def _triple(size: int | Triple) -> Triple:
    return (size, size, size) if isinstance(size, int) else size


def _along(filters: Triple, step: int) -> Triple:
    """A step along the axes that have a filter."""
    z, y, x = (step if taps > 1 else 1 for taps in filters)
    return z, y, x


def _named(size: Triple) -> str:
    return f"{size[0]}^3" if len(set(size)) == 1 else "x".join(map(str, size))


def layer_cases() -> list[Case]:
    """The layers that PyTorch is measured on in docs/performance.md."""
    return [
        layer(1, 16, 3, 64),
        layer(16, 16, 3, 64),
        layer(32, 32, 3, 48),
        layer(64, 64, 3, 32),
        layer(80, 80, 3, 32),
        layer(40, 40, 3, 24, sparsity=2),
        layer(40, 40, 3, 24, sparsity=4),
        layer(32, 32, 5, 32),
        layer(64, 64, 5, 24),
        layer(16, 16, 7, 32),
        layer(80, 80, 7, 24),
        layer(20, 20, (1, 11, 11), (1, 96, 96)),
        layer(20, 20, (1, 40, 40), (1, 96, 96)),
    ]


@dataclass(frozen=True)
class ImageCase(Case):
    """A network that says one class for each image of a batch."""

    def sample(self, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Images, and one class of each as ones among zeros, (batch, channel, z, y, x) float32."""
        image, target = super().sample(seed)
        classes = np.random.default_rng(seed).integers(0, target.shape[1], self.batch)
        target[...] = (np.arange(target.shape[1]) == classes[:, None])[:, :, None, None, None]
        return image, target


def image_case(name: str, batch: int | None = None) -> ImageCase:
    """The network of a recipe, with its batch unless another is given."""
    config = load_config(_FOLDER / RECIPES[name])
    batch = batch or config.training.batch
    network, shape = trained_network(config), config.training.output_shape
    return ImageCase(f"{name}, batch {batch}", network, shape, "softmax", batch=batch)
