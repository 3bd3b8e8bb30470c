"""Networks as lists of operations: names, tensors, what is nothing, and what no other program has."""

from __future__ import annotations

import keyword
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from random_networks import random_network, random_parameters

from znnpy.errors import ExportError
from znnpy.interop.export.description import COMBINED, NORMS, SAID, WORDS, described
from znnpy.interop.export.edges import EDGES, exchanged
from znnpy.interop.export.identifiers import Identifiers
from znnpy.interop.export.torch_module import module_text
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.types import BorderName, EdgeKindName, Interpolation, Norm, NormKind
from znnpy.network import initial_parameters, load_network
from znnpy.network.types import Network, NodeKind


def of(config: dict[str, Any]) -> Any:
    network = load_network(config)
    return described(network, initial_parameters(network, 0), {})


CHAIN = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 2, "size": 3, "function": "relu"}},
        {"max_filter": 2},
        {"conv": {"channels": 1, "size": 3}},
    ],
}


def test_kinds_and_functions_are_listed_ones() -> None:
    """All of our own; those of plug-ins are refused by name."""
    assert set(get_args(EdgeKindName)) == EDGES.keys()
    assert FUNCTIONS.keys() >= SAID
    assert set(get_args(NodeKind)) == COMBINED.keys()
    assert set(get_args(NormKind)) == NORMS.keys()
    assert set(get_args(Interpolation)) == {*WORDS["mode"]}
    assert set(get_args(BorderName)) == {*WORDS["border"]}


def test_a_chain() -> None:
    found = of(CHAIN)
    assert [it.kind for it in found.operations] == ["conv", "function", "max_pool", "conv"]
    assert [it.output for it in found.operations][1:] == ["layer1", "layer2", "output"]
    last = found.operations[-1]
    assert last.attributes["dilation"] == (2, 2, 2)  # of the max_filter before it
    assert last.tensors == {"weight": "conv2.weight", "bias": "conv2.bias"}
    assert found.outputs == {"output": 1}
    assert found.tensors["conv2.weight"].shape == (1, 2, 3, 3, 3)


def test_what_does_not_learn_is_told() -> None:
    norm = {"kind": "group", "groups": 2}
    layer = {"channels": 2, "size": 1, "norm": norm, "function": "prelu", "bias": True}
    nodes = {
        "a": {"kind": "input", "channels": 1},
        "b": {"kind": "transfer", "learn": False, **{k: layer[k] for k in layer if k != "size"}},
        "c": {"kind": "transfer", "channels": 2, "learn": False},
        "d": {"kind": "transfer", "channels": 1},
    }
    edges = {
        "e": {"kind": "conv", "from": "a", "to": "b", "size": 1},
        "f": {"kind": "identity", "from": "b", "to": "c"},
        "g": {"kind": "conv", "from": "c", "to": "d", "size": 1, "learn": False},
    }
    found = of({"nodes": nodes, "edges": edges})
    assert set(found.fixed) == {
        *("e.bias", "b_norm.weight", "b_norm.bias", "b_prelu.weight", "c_bias.bias", "g.weight"),
    }
    assert set(found.fixed) <= found.tensors.keys()
    assert "self.g.weight.requires_grad_(False)" in module_text(found, "", "")


def test_outputs_are_values_of_their_own() -> None:
    identity = {"kind": "identity", "from": "input"}
    found = of(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 1},
                "a": {"kind": "sum", "channels": 1},
                "b": {"kind": "sum", "channels": 1},
            },
            "edges": {"x": {**identity, "to": "a"}, "y": {**identity, "to": "b"}},
        }
    )
    assert list(found.outputs) == ["a", "b"]
    assert [it.kind for it in found.operations] == ["identity", "identity"]


def changed(edge: dict[str, Any], node: dict[str, Any]) -> Network:
    network = load_network(CHAIN)
    first, *edges = network.edges
    nodes = [replace(it, **node) if it.name == "layer1" else it for it in network.nodes]
    return replace(network, nodes=tuple(nodes), edges=(replace(first, **edge), *edges))


@pytest.mark.parametrize(
    ("edge", "node", "words"),
    [
        ({"kind": "swirl"}, {}, "edge 'conv1': kind swirl is not one"),
        ({"border": "wrap"}, {}, "edge 'conv1': border wrap is not one"),
        ({"mode": "cubic"}, {}, "edge 'conv1': mode cubic is not one"),
        ({}, {"function": "wave"}, "node 'layer1': function wave is not one"),
        ({}, {"kind": "median"}, "node 'layer1': kind median is not one"),
        ({}, {"norm": Norm("local")}, "node 'layer1': norm local is not one"),  # type: ignore[arg-type]
    ],
)
def test_what_others_do_not_have_is_refused_by_name(
    edge: dict[str, Any], node: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        described(changed(edge, node), {}, {})


def test_names_are_identifiers_each_another() -> None:
    names = Identifiers()
    given = [
        "a.b",
        "a_b",
        "a-b",
        "class",
        "forward",
        "1x",
        "ä",
        "",
        "_modules",
        "a" * 300,
        '"""',
        "x\\",
    ]
    found = [names.take(name) for name in given]
    assert found[:6] == ["a_b", "a_b_2", "a_b_3", "class_", "forward_", "n1x"]
    assert len(set(found)) == len(found)
    assert all(it.isidentifier() and it.isascii() and not keyword.iskeyword(it) for it in found)
    assert not any(it.startswith("_") or len(it) > 90 for it in found)


@pytest.mark.parametrize("seed", range(12))
def test_each_value_is_made_before_it_is_read(seed: int) -> None:
    network, _ = random_network(seed)
    found = described(network, random_parameters(network, seed), {})
    made, reads = set(found.inputs), dict[str, int]()
    for it in found.operations:
        assert set(it.inputs) <= made
        for name in it.inputs:
            reads[name] = reads.get(name, 0) + 1
        assert it.output not in made
        made.add(it.output)
    assert set(found.outputs) <= made
    assert all(reads[name] == 1 for name in made - found.nodes)
    compile(module_text(found, "t", "a"), "net.py", "exec")


def test_no_text_ends_the_docstring() -> None:
    text = module_text(of(CHAIN), 'x """\nimport os\n"""', "\\")
    assert text.count('"""') == 4
    compile(text, "net.py", "exec")


def test_filters_of_groups_are_exchanged_group_by_group() -> None:
    filters = np.arange(6 * 2).reshape(6, 2, 1, 1, 1)  # two groups: 3 of 2 channels each
    found = exchanged(filters, 2)[..., 0, 0, 0]
    assert found.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
