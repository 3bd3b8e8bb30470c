"""U-Nets written out: names, numbers of weights that publications name, crops, and what is refused."""

from __future__ import annotations

from math import prod
from typing import Any

from znnpy import load_network
from znnpy.network import Network, parameter_shapes

RSUNET = {
    "widths": [28, 36, 48, 64, 80],
    "down": [1, 2, 2],
    "stem": [1, 5, 5],
    "convs": 3,
    "first_size": [1, 3, 3],
    "block": "residual",
    "up": "linear",
    "join": "sum",
    "norm": "batch",
    "function": "elu",
    "output_size": [1, 5, 5],
    "outputs": 3,
}
CICEK = {
    "widths": [[32, 64], [64, 128], [128, 256], [256, 512]],
    "up_widths": [64, 128, 256],
    "up": {"kind": "transposed", "images": "same"},
    "padding": "valid",
    "norm": "batch",
    "outputs": 3,
}
LSD = {"widths": [12, 60, 300], "padding": "valid", "outputs": 10}
RESIDUAL = {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"}


def unet(**keys: Any) -> Network:
    return load_network({"unet": keys})


def names(network: Network, level: str) -> list[str]:
    return [edge.name for edge in network.edges if edge.name.startswith(level)]


def weights(network: Network) -> int:
    return sum(prod(shape) for shape in parameter_shapes(network).values() if len(shape) == 5)


def crops(network: Network) -> dict[str, int]:
    return {edge.name: edge.offset[0] for edge in network.edges if edge.kind == "crop"}


def test_names_of_levels() -> None:
    network = unet(widths=[4, 6, 8], blocks=[1, 2, 1])
    assert names(network, "down1") == [
        "down1.pool",
        "down1.block1.conv1",
        "down1.block1.conv2",
        "down1.block2.conv1",
        "down1.block2.conv2",
    ]
    assert names(network, "up1") == ["up1.skip", "up1.below", "up1.grow", "up1.conv1", "up1.conv2"]
    assert {"down2.layer2", "up1.join", "up0.layer2", "output"} <= {n.name for n in network.nodes}
    assert [node.name for node in network.outputs] == ["output"]


def test_rsunet() -> None:
    """Lee et al. 2017: 1.46 million weights, sums before norm and function, from the first convolution."""
    network = unet(**RSUNET)
    assert weights(network) == 1_456_896
    assert [edge.kind for edge in network.incoming("down2.layer3")] == ["conv", "identity"]
    assert network.incoming("down2.layer3")[1].source == "down2.layer1"
    assert [edge.kind for edge in network.incoming("up1.join")] == ["identity", "upsample"]
    norm = network.node("up1.join").norm
    assert norm is not None
    assert norm.kind == "batch"
    assert not network.node("up1.join").bias
    assert network.node("output").bias
