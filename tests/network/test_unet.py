"""U-Nets written out: names, numbers of weights that publications name, crops, and what is refused."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy import load_network, reference
from znnpy.errors import ConfigError, NetworkError
from znnpy.geometry import fit_input
from znnpy.network import Network, initial_parameters, parameter_shapes
from znnpy.network.build import network_to_section

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
    "up": {"kind": "transposed", "channels": "same"},
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


def test_cicek() -> None:
    """Cicek et al. 2016: 132 x 132 x 116 voxels in give 44 x 44 x 28 out."""
    network = unet(**CICEK)
    assert crops(network) == {"up2.skip": 4, "up1.skip": 16, "up0.skip": 40}
    shapes = fit_input(network, (116, 132, 132)).output_shapes
    assert shapes == {"output": (28, 44, 44)}
    assert 19.0e6 < weights(network) < 19.1e6


def test_lsd() -> None:
    network = unet(**LSD)
    assert crops(network) == {"up1.skip": 4, "up0.skip": 16}
    assert fit_input(network, (88, 88, 88)).output_shapes == {"output": (48, 48, 48)}
    assert weights(network) == 3_489_996


@pytest.mark.parametrize(
    ("taps", "step", "cut", "more"),
    [
        (2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0), (5, 2, 2, 1), (6, 2, 2, 0), (1, 2, 0, 1), (1, 4, 0, 3), (2, 3, 0, 1),
        (3, 3, 0, 0), (4, 3, 1, 1), (5, 3, 1, 0), (3, 1, 1, 0), (5, 1, 2, 0),
    ],
)  # fmt: skip
def test_growth_is_cut_by_half_of_what_it_makes_too_much(
    taps: int, step: int, cut: int, more: int
) -> None:
    """At the start the larger half; what is missing then is added at the end, and nothing where taps are few."""
    network = unet(widths=[2, 2], down=step, up={"kind": "transposed", "size": taps})
    (grows,) = (edge for edge in network.edges if edge.name == "up0.grow")
    assert grows.padding == ((cut, cut),) * 3
    assert grows.output_padding == (more,) * 3
    assert fit_input(network, 3 * step).output_shapes == {"output": (3 * step,) * 3}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"pool": "average", "up": "nearest"},
        {"pool": "strided", "up": {"kind": "transposed", "size": 3}},
        {"pool": "strided", "block": RESIDUAL, "norm": "instance", "down": [[1, 2, 2], 2]},
        {"up": {"kind": "linear", "size": 3}, "border": "reflect", "size": [1, 3, 3]},
        {"join": "sum", "up": {"kind": "linear", "size": [1, 3, 3]}, "block": "residual"},
        {"up": {"kind": "nearest", "channels": "same"}, "stem": 3, "dropout": 0.5},
        {"block": {"kind": "residual", "from": "input", "add": "function"}},
    ],
)
def test_padded_ones_keep_the_size(keys: dict[str, Any]) -> None:
    network = unet(widths=[2, 3, 4], **keys)
    assert fit_input(network, (8, 12, 8)).output_shapes == {"output": (8, 12, 8)}


@pytest.mark.parametrize(
    ("keys", "size", "lost"),
    [
        ({"block": "residual"}, 44, 40),
        ({"block": {"kind": "residual", "from": "input"}, "join": "sum"}, 44, 40),
        ({"up": {"kind": "linear", "size": 3}}, 48, 46),
        ({"up": {"kind": "transposed", "size": 4}}, 44, 34),
        ({"size": [1, 3, 3]}, 44, 0),
        ({"block": RESIDUAL, "pool": "strided", "down": 3, "size": [[3, 3, 3], 5]}, 30, 22),
    ],
)
def test_valid_ones_crop_what_they_join(keys: dict[str, Any], size: int, lost: int) -> None:
    widths = [2, 3] if "down" in keys else [2, 3, 4]
    network = unet(widths=widths, padding="valid", **keys)
    (shape,) = fit_input(network, (size, size, size)).output_shapes.values()
    assert shape[0] == size - lost


def test_supervised_levels() -> None:
    network = unet(widths=[2, 3, 4, 5], supervise=2, outputs=3)
    shapes = fit_input(network, (16, 16, 16)).output_shapes
    assert shapes == {"output2": (4,) * 3, "output1": (8,) * 3, "output": (16,) * 3}
    assert all(node.channels == 3 for node in network.outputs)


def test_a_small_convolution_stands_before_the_resize_and_says_the_same() -> None:
    """Both are linear, and the shares of neighbours sum to 1: so a bias passes unchanged too."""
    ours = unet(widths=[2, 3], up="linear")
    data = network_to_section(ours).model_dump(mode="json", by_alias=True, exclude_none=True)
    grow, narrow = data["edges"]["up0.grow"], data["edges"]["up0.narrow"]
    data["nodes"]["up0.wide"] = {"kind": "sum", "channels": 3}
    data["edges"]["up0.after"] = {"kind": "identity", "from": "up0.narrowed", "to": "up0.join"}
    grow["from"], grow["to"] = narrow["from"], "up0.wide"
    narrow["from"] = "up0.wide"
    order = [name for name in data["edges"] if name != "up0.after"]
    order.insert(order.index("up0.skip") + 1, "up0.after")
    data["edges"] = {name: data["edges"][name] for name in order}
    after = load_network({key: data[key] for key in ("nodes", "edges")})
    rng = np.random.default_rng(0)
    parameters = {
        name: value + rng.normal(0, 0.1, value.shape)
        for name, value in initial_parameters(ours, 0).items()
    }
    image = {"input": rng.normal(0, 1, (1, 1, 4, 8, 8))}
    values = [
        reference.forward(network, fit_input(network, (4, 8, 8)), parameters, image)["output"]
        for network in (ours, after)
    ]
    np.testing.assert_allclose(values[0], values[1], atol=1e-12)


def test_what_cannot_be_cropped_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "network:\n  name: x\n  unet: {widths: [2, 3], padding: valid, pool: strided}\n"
    )
    with pytest.raises(
        NetworkError, match=r"config.yaml:3: network.unet: .* level 0 .* along z by 5"
    ):
        load_network(path)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"size": 1, "up": {"kind": "transposed", "size": 3}}, "level 0 is larger along z by 1"),
        ({"size": 1, "up": {"kind": "transposed", "size": 4}}, "level 0 is larger along z by 2"),
        (
            {
                "size": [3, 1],
                "down": 4,
                "convs": 1,
                "pool": "strided",
                "block": RESIDUAL,
                "up": {"kind": "linear", "size": 4},
            },
            "shortcut over the average",
        ),
    ],
)
def test_what_would_have_to_grow_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(NetworkError, match=words):
        unet(widths=[2, 3], padding="valid", **keys)


def test_its_full_form_is_the_same_network() -> None:
    network = unet(**RSUNET)
    data = network_to_section(network).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert load_network(data) == network


def test_a_slope_is_of_the_nodes_with_the_function_of_the_net() -> None:
    network = unet(widths=[2, 3], function="leaky_relu", slope=0.3, output_function="leaky_relu")
    slopes = {node.name: node.slope for node in network.nodes if node.function == "leaky_relu"}
    assert {slopes[name] for name in ("down0.layer1", "up0.layer2")} == {0.3}
    other = unet(widths=[2, 3], function="elu", slope=0.3)
    found = {node.name: node.slope for node in other.nodes if node.kind == "transfer"}
    assert found["down1.layer2"] == 0.3
    assert (
        found["output"]
        == load_network({"layers": [{"conv": {"channels": 1, "size": 1}}]}).nodes[1].slope
    )


@pytest.mark.parametrize("add", ["sum", "norm", "function"])
def test_what_is_added_meets_where_the_block_says(add: str) -> None:
    """Norms and functions of the nodes at the end of a residual block that changes the number of images."""
    block = {"kind": "residual", "from": "input", "add": add}
    network = unet(widths=[2, 3], block=block, norm="batch", function="elu")

    def of(name: str) -> tuple[bool, str]:
        node = network.node(name)
        return node.norm is not None, node.function

    ends = {
        "sum": {"down1.layer2": (True, "elu")},
        "norm": {"down1.layer2": (True, "linear"), "down1.projected": (True, "linear"), "down1.sum": (False, "elu")},
        "function": {"down1.layer2": (True, "elu"), "down1.sum": (False, "linear")},
    }  # fmt: skip
    assert {name: of(name) for name in ends[add]} == ends[add]
    present = {node.name for node in network.nodes}
    assert ("down1.sum" in present) == (add != "sum")
    assert ("down1.projected" in present) == (add == "norm")
    arriving = network.incoming("down1.layer2" if add == "sum" else "down1.sum")
    assert {edge.name for edge in arriving} == (
        {"down1.conv2", "down1.shortcut"} if add == "sum"
        else {"down1.add", "down1.project" if add == "norm" else "down1.shortcut"}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pool", "edges"),
    [
        ("max", {"down1.pool": "max_pool", "down1.conv1": "conv"}),
        ("average", {"down1.pool": "avg_pool", "down1.conv1": "conv"}),
        ("strided", {"down1.conv1": "conv"}),
    ],
)
def test_steps_down_are_of_the_kind_that_is_written(pool: str, edges: dict[str, str]) -> None:
    network = unet(widths=[2, 3], convs=1, pool=pool, down=[1, 2, 2])
    found = {edge.name: edge for edge in network.edges if edge.name.startswith("down1")}
    assert {name: edge.kind for name, edge in found.items()} == edges
    assert next(iter(found.values())).stride == (1, 2, 2)


def test_norm_and_function_first() -> None:
    network = unet(
        widths=[4, 8], stem=3, order="pre", norm="instance", join="sum", up="linear", supervise=0,
        block={"kind": "residual", "from": "input"},
    )  # fmt: skip
    bare = [node.name for node in network.nodes if node.kind == "transfer" and node.norm is None]
    assert set(bare) == {
        *("stem.layer", "down0.layer1", "down0.layer2", "down1.layer1", "down1.layer2"),
        *("up0.narrowed", "up0.join", "up0.layer1", "up0.layer2", "output"),
    }
    assert all(network.node(name).function == "linear" for name in bare)
    for edge in network.edges:
        ready = (
            edge.name.rpartition(".")[2] in ("conv1", "conv2", "conv") and edge.source != "input"
        )
        source = network.node(edge.source)
        assert (source.norm is not None and source.function == "relu") == ready, edge.name
    # Sums and shortcuts are of what convolutions have made.
    assert [edge.source for edge in network.incoming("down1.layer2")] == ["down1.ready2", "down1.pooled"]  # fmt: skip
    assert network.incoming("stem.layer")[0].source == "input"
    # Without a stem the first convolution reads the image itself.
    assert unet(widths=[4, 8], order="pre").incoming("down0.layer1")[0].source == "input"


def test_a_sum_has_no_norm_behind_it_where_norms_come_first() -> None:
    block = {"kind": "residual", "from": "input", "add": "norm"}
    with pytest.raises(ConfigError, match="neither norm nor function"):
        unet(widths=[4, 8], order="pre", block=block)
