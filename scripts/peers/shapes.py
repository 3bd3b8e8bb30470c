"""Layers of the shapes that other people's nets have: three equal ones with bias and relu. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from peers.cases import ZERO, Case
from znnpy.network import load_network
from znnpy.network.types import Edge, Network, Node, Triple

LAYERS = 3


@dataclass(frozen=True)
class Layers:
    """One size of a row of the table: `channels` in and out, images of `extent` padded to the same size."""

    channels: int
    size: Triple
    extent: Triple
    batch: int = 1
    groups: int = 1
    sparsity: int = 1

    @property
    def name(self) -> str:
        """What tells it from the others."""
        more = {"batch": self.batch, "groups": self.groups, "sparsity": self.sparsity}
        words = [f" {word} {value}" for word, value in more.items() if value > 1]
        size, extent = ("x".join(map(str, sizes)) for sizes in (self.size, self.extent))
        return f"{self.channels} {size} {extent}{''.join(words)}"

    def case(self, *, training: bool) -> Case:
        """An update or a forward pass of them; images of one plane are convolved in two dimensions by peers."""
        nodes, edges = [Node("input", "input", self.channels)], []
        z, y, x = (self.sparsity if taps > 1 else 1 for taps in self.size)
        steps = (z, y, x)
        pad_z, pad_y, pad_x = (
            (taps // 2 * step, taps // 2 * step)
            for taps, step in zip(self.size, steps, strict=True)
        )
        for index in range(1, LAYERS + 1):
            source, name = nodes[-1].name, f"n{index}"
            nodes.append(Node(name, "transfer", self.channels, "relu", init=ZERO))
            edges.append(
                Edge(
                    f"e{index}",
                    "conv",
                    source,
                    name,
                    size=self.size,
                    sparsity=steps,
                    padding=(pad_z, pad_y, pad_x),
                    groups=self.groups,
                )
            )
        flat = self.extent[0] == self.size[0] == 1
        network = Network(tuple(nodes), tuple(edges))
        return Case(self.name, network, self.extent, "square", training, self.batch, flat)


def _square(taps: int, side: int) -> tuple[Triple, Triple]:
    return (1, taps, taps), (1, side, side)


def _cube(taps: int, side: int) -> tuple[Triple, Triple]:
    return (taps, taps, taps), (side, side, side)


@dataclass(frozen=True)
class UNet:
    """A U-Net of filters of 1x3x3 without norms, from one channel to two; images of `extent`."""

    widths: tuple[int, ...]
    extent: Triple

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"U-Net {'-'.join(map(str, self.widths))} {'x'.join(map(str, self.extent))}"

    def case(self, *, training: bool) -> Case:
        """An update or a forward pass."""
        keys = {"widths": list(self.widths), "size": [1, 3, 3], "down": [1, 2, 2], "norm": None}
        network = load_network({"unet": {**keys, "outputs": 2}})
        flat = self.extent[0] == 1
        return Case(self.name, network, self.extent, "square", training, 1, flat)


SHAPES: dict[str, list[Layers | UNet]] = {
    "flat": [
        Layers(16, (1, 3, 3), (16, 128, 128)),
        Layers(32, (1, 3, 3), (16, 128, 128)),
        Layers(96, (1, 3, 3), (16, 64, 64)),
        Layers(32, *_square(3, 256)),
        Layers(64, *_square(3, 128)),
        Layers(256, *_square(3, 32), batch=8),
    ],
    "unets": [
        UNet((32, 64, 128, 256), (1, 256, 256)),
        UNet((24, 48, 96), (20, 128, 128)),
    ],
    "lines": [
        Layers(24, (3, 1, 1), (32, 64, 64)),
        Layers(48, (3, 1, 1), (32, 48, 48)),
        Layers(128, (3, 1, 1), (32, 24, 24)),
    ],
    "pointwise": [
        Layers(32, *_cube(1, 48)),
        Layers(128, *_cube(1, 32)),
        Layers(384, *_cube(1, 12)),
    ],
    "few": [
        Layers(4, *_cube(3, 96)),
        Layers(8, *_cube(3, 96)),
        Layers(12, *_cube(3, 64)),
    ],
    "groups": [
        Layers(32, *_cube(3, 48), groups=8),
        Layers(64, *_cube(3, 32), groups=8),
        Layers(128, *_cube(3, 24), groups=8),
    ],
    "depthwise": [
        Layers(64, *_cube(3, 48), groups=64),
        Layers(64, *_cube(5, 32), groups=64),
        Layers(32, *_cube(7, 32), groups=32),
        Layers(96, *_square(7, 96), groups=96),
    ],
    "wide": [
        Layers(256, *_cube(3, 8)),
        Layers(320, *_cube(3, 8)),
        Layers(512, *_cube(3, 4)),
    ],
    "dilated": [Layers(32, *_cube(3, 48), sparsity=2)],
}
"""Sizes by row of the table."""
