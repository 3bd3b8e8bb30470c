"""Networks from the config: names, defaults, order, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.config import load_config
from znnpy.config.export import dump
from znnpy.errors import ConfigError, NetworkError, ZnnpyError
from znnpy.network import (
    build_network,
    initial_parameters,
    load_network,
    network_to_section,
    parameter_shapes,
)
from znnpy.network.check import checked_network
from znnpy.network.types import Edge, Init, Node

LAYERS: dict[str, Any] = {
    "layers": [
        {"conv": {"channels": 4, "size": [1, 3, 3], "function": "leaky_relu", "sparsity": 2}},
        {"max_filter": 2},
        {"conv": {"channels": 6, "size": 3, "stride": [1, 2, 2], "function": "elu", "bias": False}},
        {"max_pool": {"size": 3, "stride": 2}},
        {"dropout": 0.25},
        {"crop": [0, 1, 1]},
        {"max_filter": {"size": [1, 2, 2], "stride": 1}},
        {"conv": {"channels": 3, "size": 1, "init": "msra", "bias_init": 0.5, "sparsens": 2}},
    ],
    "input": 2,
}


def graph(nodes: dict[str, str], edges: dict[str, str]) -> dict[str, Any]:
    """Nodes as `kind images`, edges as `kind from to`."""

    def edge(text: str) -> dict[str, Any]:
        kind, source, target = text.split()
        key = {"dropout": "keep", "crop": "offset"}.get(kind, "size")
        return {"kind": kind, "from": source, "to": target, key: 1}

    return {
        "nodes": {
            name: {"kind": text.split()[0], "channels": int(text.split()[1])}
            for name, text in nodes.items()
        },
        "edges": {name: edge(text) for name, text in edges.items()},
    }


def test_names_and_edges_of_a_chain() -> None:
    net = load_network(LAYERS)
    assert [n.name for n in net.nodes] == ["input", *(f"layer{i}" for i in range(1, 8)), "output"]
    kinds = ["conv1", "max_filter1", "conv2", "max_pool1", "dropout1", "crop1", "max_filter2"]
    assert [e.name for e in net.edges] == [*kinds, "conv3"]
    assert [n.channels for n in net.nodes] == [2, 4, 4, 6, 6, 6, 6, 6, 3]
    ends = [(e.source, e.target) for e in net.edges]
    names = [n.name for n in net.nodes]
    assert ends == list(pairwise(names))


def test_operations_of_a_chain() -> None:
    conv1, filter1, conv2, pool, dropout, crop, filter2, conv3 = load_network(LAYERS).edges
    assert (conv1.size, conv1.sparsity) == ((1, 3, 3), (2, 2, 2))
    assert (filter1.size, filter1.stride, filter1.sparsens) == ((2,) * 3, (1,) * 3, (2,) * 3)
    assert (conv2.stride, conv2.sparsens) == ((1, 2, 2), (1, 1, 1))
    assert (pool.size, pool.stride, pool.sparsens) == ((3,) * 3, (2,) * 3, (1,) * 3)
    assert dropout.keep == 0.25
    assert crop.offset == (0, 1, 1)
    assert (filter2.size, filter2.sparsens) == ((1, 2, 2), (1, 1, 1))
    assert (conv3.stride, conv3.sparsens) == ((1, 1, 1), (2, 2, 2))
    assert (conv1.init, conv3.init) == (Init("he"), Init("he"))


def test_nodes_of_a_chain() -> None:
    net = load_network(LAYERS)
    assert net.node("layer1").slope == 0.01
    assert net.node("layer3").slope == 1.0
    assert not net.node("layer3").bias
    assert net.node("layer2") == Node("layer2", "sum", 4, bias=False)
    assert net.node("output").init == Init("constant", value=0.5)
    assert [n.name for n in net.inputs] == ["input"]
    assert [n.name for n in net.outputs] == ["output"]


def test_a_chain_may_end_without_a_conv() -> None:
    net = load_network({"layers": [{"conv": {"channels": 2, "size": 2}}, {"max_filter": 2}]})
    assert net.node("output").kind == "sum"


def test_the_full_form_and_back() -> None:
    net = load_network(LAYERS)
    section = network_to_section(net)
    assert section.layers is None
    assert build_network(section) == net


def test_whole_config_dict_file_section_file_and_network(tmp_path: Path) -> None:
    (tmp_path / "section.yaml").write_text("layers:\n  - conv: {channels: 1, size: 2}\n")
    text = "network:\n  layers:\n  - conv: {channels: 1, size: 2}\ndata: {nonsense: 3}\n"
    (tmp_path / "whole.yaml").write_text(text)
    net = load_network(tmp_path / "section.yaml")
    assert load_network(str(tmp_path / "whole.yaml")) == net
    assert load_network({"network": {"layers": [{"conv": {"channels": 1, "size": 2}}]}}) == net
    assert load_network(net) == net


def test_a_saved_config_holds_the_network(tmp_path: Path) -> None:
    text = "network: {layers: [{conv: {channels: 1, size: 2}}]}\ntraining: {output_shape: 1}\n"
    (tmp_path / "a.yaml").write_text(text)
    config = load_config(tmp_path / "a.yaml")
    net = build_network(config.network)
    saved = config.model_copy(update={"network": network_to_section(net)})
    (tmp_path / "b.yaml").write_text(dump(saved))
    assert build_network(load_config(tmp_path / "b.yaml").network) == net


def test_order_is_topological_and_follows_the_file() -> None:
    nodes = {"z": "sum 1", "out": "sum 1", "b": "input 1", "a": "input 1", "m": "sum 1"}
    edges = {"e1": "crop z out", "e2": "crop a z", "e3": "crop b z", "e4": "crop b m"}
    net = load_network(graph(nodes, {**edges, "e5": "crop m out"}))
    assert [n.name for n in net.nodes] == ["b", "a", "z", "m", "out"]
    assert [e.name for e in net.edges] == ["e1", "e2", "e3", "e4", "e5"]


@given(st.permutations(range(6)), st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_any_acyclic_graph_is_ordered(order: list[int], pairs: set[tuple[int, int]]) -> None:
    forward = {(a, b) for a, b in pairs if a < b} | {(a, 5) for a in range(5)}
    reached = {b for _, b in forward}
    nodes = [Node(str(i), "sum" if i in reached else "input", 1) for i in order]
    edges = [Edge(f"{a}-{b}", "crop", str(a), str(b)) for a, b in sorted(forward)]
    net = checked_network(nodes, edges)
    place = {node.name: i for i, node in enumerate(net.nodes)}
    assert sorted(place) == sorted(node.name for node in nodes)
    assert all(place[e.source] < place[e.target] for e in net.edges)
    assert checked_network(nodes, edges) == net


IN = {"in": "input 1"}
REFUSED = [
    (IN, {}, ["node 'in': no edge leaves this input"]),
    ({"a": "sum 1"}, {}, ["no input node", "node 'a': no edge leads to it"]),
    ({**IN, "out": "sum 1"}, {"e": "crop in outt"}, ["edge 'e': to 'outt'", "mean 'out'?"]),
    ({**IN, "out": "sum 1"}, {"e": "crop inn out"}, ["edge 'e': from 'inn'", "'in'?"]),
    ({**IN, "out": "sum 1"}, {"e": "crop q out"}, ["from 'q' is no node", "nodes: in, out"]),
    ({**IN, "out": "sum 1"}, {"e": "crop in in"}, ["edge 'e': leads into 'in', an input"]),
    ({**IN, "out": "sum 2"}, {"e": "crop in out"}, ["crop keeps", "'in' has 1, 'out' 2"]),
    ({**IN, "out": "sum 2"}, {"e": "dropout in out"}, ["dropout keeps"]),
    ({**IN, "out": "sum 2"}, {"e": "max_pool in out"}, ["max_pool keeps"]),
    ({**IN, "out": "sum 2"}, {"e": "max_filter in out"}, ["max_filter keeps"]),
    ({**IN, "c": "concat 3"}, {"e": "crop in c", "f": "crop in c"}, ["has 3", "1 + 1 = 2"]),
    ({**IN, "c": "concat 1"}, {"e": "conv in c"}, ["a conv cannot enter the concat node 'c'"]),
    (IN | {"in2": "input 1"}, {"in2": "crop in in2"}, ["edge 'in2': the name is taken"]),
    (
        {**IN, "a": "sum 1", "b": "sum 1", "c": "sum 1"},
        {"e": "crop in a", "f": "crop a b", "g": "crop b c", "h": "crop c a"},
        ["node 'a': in a cycle, a -> b -> c -> a"],
    ),
    ({**IN, "a": "sum 1"}, {"e": "crop in a", "f": "crop a a"}, ["a cycle, a -> a"]),
    ({**IN, "a b": "sum 1"}, {}, ["node 'a b': a name is"]),
    ({**IN, "a/b": "sum 1", "..": "sum 1"}, {}, ["node 'a/b': a name", "node '..': a name"]),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "edges", "words"), REFUSED)
def test_refused_graphs(nodes: dict[str, str], edges: dict[str, str], words: list[str]) -> None:
    if any(" " in name for name in nodes):
        edges = {}
    with pytest.raises(NetworkError) as caught:
        load_network(graph(nodes, edges) | ({"edges": {}} if not edges else {}))
    for word in words:
        assert word in str(caught.value)


def test_nodes_after_a_cycle_are_not_blamed() -> None:
    nodes = {**IN, "a": "sum 1", "b": "sum 1", "aa": "sum 1"}
    edges = {"e": "crop in b", "f": "crop b a", "g": "crop a b", "h": "crop a aa"}
    with pytest.raises(NetworkError, match=r"in a cycle, a -> b -> a;"):
        load_network(graph(nodes, edges))


def test_softmax_is_over_two_images_at_least() -> None:
    def net(*images: int) -> dict[str, Any]:
        convs = [{"conv": {"channels": i, "size": 1, "function": "softmax"}} for i in images]
        return {"layers": convs}

    assert load_network(net(2)).node("output").function == "softmax"
    assert load_network(net(3, 2)).node("layer1").function == "softmax"
    with pytest.raises(NetworkError, match="at least 2 channels"):
        load_network(net(1))


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(
        dedent("""\
        nodes:
          in: {kind: input, channels: 1}
          out:
            kind: sum
            channels: 2
          lost: {kind: sum, channels: 1}
        edges:
          a: {kind: crop, from: in, to: out, offset: 0}
          b: {kind: crop, from: inn, to: out, offset: 0}
        """)
    )
    with pytest.raises(NetworkError) as caught:
        load_network(path)
    first, second = sorted(str(caught.value).splitlines(), key=lambda line: "lost" in line)
    assert first.startswith(f"{path}:9: edge 'b'")
    assert second.startswith(f"{path}:6: node 'lost'")


def test_errors_of_layers_name_the_line_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "training: {output_shape: 1}\nnetwork:\n  layers:\n"
        "  - conv: {channels: 1, size: 1, function: softmax}\n  - conv: {channels: 2, size: 1}\n"
    )
    with pytest.raises(NetworkError, match=rf"^{path}:4: node 'layer1'"):
        build_network(load_config(path).network)


def test_a_missing_znn_file_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("network:\n  znn: none.znn\n")
    with pytest.raises(ConfigError, match=r"c.yaml:2: network.znn: there is no file .*none.znn"):
        load_network(tmp_path / "c.yaml")


def test_tanh_and_repeating_filters() -> None:
    conv = {"channels": 2, "size": [1, 4, 6], "repeat": [1, 2, 3], "function": "tanh"}
    conv |= {"amplitude": 1.7159, "gain": 0.6666}
    net = load_network({"layers": [{"conv": conv}]})
    assert net.edges[0].repeat == (1, 2, 3)
    assert (net.node("output").amplitude, net.node("output").gain) == (1.7159, 0.6666)
    assert build_network(network_to_section(net)) == net
    filters = initial_parameters(net, 0)["conv1"]
    blocks = filters.reshape(2, 1, 1, 2, 2, 2, 3)
    assert np.array_equal(blocks, np.broadcast_to(blocks[..., :1, :, :1], blocks.shape))
    assert np.unique(filters).size == 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gain": 2, "function": "relu"}, "only tanh has this; the function is relu"),
        ({"amplitude": 0}, "must not be 0"),
        ({"repeat": [1, 3, 1]}, "repeat .* must divide"),
    ],
)
def test_what_tanh_and_repeat_cannot_be(changes: dict[str, Any], words: str) -> None:
    conv = {"channels": 2, "size": [1, 4, 6], "function": "tanh"} | changes
    with pytest.raises(ZnnpyError, match=words):
        load_network({"layers": [{"conv": conv}]})


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("conv: {channels: 4, size: 3, padding: 3}", "padding 3 along z is more than 2, the filter's reach"),
        ("conv: {channels: 4, size: 3, border: reflect}", "border reflect needs padding: without it"),
        ("conv: {channels: 4, size: 3, padding: same, stride: 2}", "padding same needs stride 1"),
        ("conv: {channels: 4, size: 3, groups: 3}", "groups 3 must divide the channels, the 4 of 'layer1'"),
        ("conv_transpose: {channels: 4, size: 2, stride: 2, groups: 8}", "groups 8 must divide"),
        ("conv_transpose: {channels: 4, size: 2, padding: [0, 2, 0]}", "padding 2 along y is more than 1"),
        ("conv_transpose: {channels: 4, size: 2, stride: 2, output_padding: 2}", "output_padding 2 along z"),
        ("max_pool: {size: 2, padding: 2}", "padding 2 along z is more than 1, half of the window, 2"),
        ("avg_pool: {size: 3, padding: [[0, 1], [0, 2], [0, 0]]}", "padding 2 along y is more than 1"),
        ("max_pool: {size: 2, padding: same}", "padding same needs stride 1"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_each_other(tmp_path: Path, layer: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(
        f"network:\n  layers:\n  - conv: {{channels: 4, size: 3}}\n  - {layer}\n"
    )
    with pytest.raises(NetworkError, match=rf"c.yaml:4: edge '\w+': {words}") as error:
        load_network(tmp_path / "c.yaml")
    assert len(str(error.value).splitlines()) == 1


def test_paddings_groups_and_growth_are_read_and_written_back() -> None:
    layers = [
        {"conv": {"channels": 4, "size": 3, "padding": 1, "border": "reflect", "groups": 2}},
        {"conv": {"channels": 4, "size": 3, "padding": [0, [0, 1], 2]}},
        {"conv": {"channels": 4, "size": [1, 4, 3], "padding": "same"}},
        {
            "conv_transpose": {
                "channels": 2,
                "size": 3,
                "stride": 2,
                "output_padding": 1,
                "groups": 2,
            }
        },
        {"max_pool": {"size": 3, "stride": 2, "padding": 1}},
        {"avg_pool": {"size": 2, "count_padding": False}},
        {"upsample": [1, 2, 2]},
        {"identity": {}},
    ]
    net = load_network({"input": 2, "layers": layers})
    assert [edge.padding for edge in net.edges[:3]] == [
        ((1, 1),) * 3,
        ((0, 0), (0, 1), (2, 2)),
        "same",
    ]
    assert parameter_shapes(net)["conv1"] == (4, 1, 3, 3, 3)
    assert parameter_shapes(net)["conv_transpose1"] == (2, 2, 3, 3, 3)
    assert net.edges[6].factor == (1, 2, 2)
    assert build_network(network_to_section(net)) == net


def test_networks_of_very_many_layers_are_refused_before_they_are_looked_at() -> None:
    layers = [{"conv": {"channels": 1, "size": 1}}] * 5_000
    with pytest.raises(
        NetworkError, match="has 5,001 nodes and 5,000 edges; at most 5,000 of each"
    ):
        load_network({"layers": layers})
    deep = load_network({"layers": layers[:-1]})
    assert [edge.name for edge in deep.incoming("layer4000")] == ["conv4000"]
    assert [edge.name for edge in deep.outgoing("layer4000")] == ["conv4001"]
    assert (deep.outgoing("output"), deep.incoming("input")) == ((), ())
