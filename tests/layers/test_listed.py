"""What is listed has all its parts, and what is not listed is an error wherever it is met."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from drawn_keys import drawn_keys
from znnpy_kernels.layers.activation_functions import ACTIVATIONS

from znnpy import Hardware, Model, load_network
from znnpy.config import template
from znnpy.engine.emit import EMITTERS
from znnpy.errors import NetworkError
from znnpy.geometry import fit
from znnpy.layers.activation_functions import FUNCTIONS, FunctionName
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.keys import InitSection
from znnpy.layers.types import EdgeKindName, InitKind
from znnpy.network.types import Edge, Network, Node
from znnpy.reference import forward, gradients

CHAIN = Network(
    (Node("a", "input", 1, bias=False), Node("b", "transfer", 1, bias=False)),
    (Edge("e", "crop", "a", "b"),),
)
IMAGE = {"a": np.ones((1, 1, 2, 2, 2))}


def test_the_type_checker_knows_what_is_listed() -> None:
    assert get_args(EdgeKindName) == tuple(EDGE_KINDS)
    assert get_args(FunctionName) == tuple(FUNCTIONS)
    init = InitSection.model_fields["kind"].annotation
    assert set(get_args(init)) - {"msra"} == set(get_args(InitKind))


def test_all_kinds_have_tasks_and_all_pointwise_functions_kernels() -> None:
    assert set(EMITTERS) == set(EDGE_KINDS)
    for name, emitter in EMITTERS.items():
        kind = EDGE_KINDS[name]
        assert bool(kind.learns) == bool(emitter.weight_gradient) == bool(emitter.derive), name
    pointwise = {name for name, function in FUNCTIONS.items() if function.pointwise}
    assert set(ACTIVATIONS) == pointwise


def test_sums_are_kept_for_the_functions_whose_kernels_take_them() -> None:
    for name, made in ACTIVATIONS.items():
        cells = dict(
            zip(
                made.forward.function.__code__.co_freevars,
                made.forward.function.__closure__ or (),
                strict=True,
            )
        )
        assert bool(cells["keeps"].cell_contents) == FUNCTIONS[name].needs_sum, name


@pytest.mark.parametrize("name", EDGE_KINDS)
def test_keys_make_numbers_and_numbers_keys(name: str) -> None:
    kind = EDGE_KINDS[name]
    for seed in range(10):
        keys = kind.keys.model_validate(drawn_keys(kind, np.random.default_rng(seed)))
        edge = Edge("e", kind.name, "a", "b", **kind.numbers(keys))  # type: ignore[arg-type]
        again = kind.keys.model_validate(kind.data(edge))
        assert kind.numbers(again) == kind.numbers(keys)


def changed(**what: Any) -> Network:
    """The chain with another kind of edge, or another kind or function of its node."""
    if "edge" in what:
        return replace(CHAIN, edges=(replace(CHAIN.edges[0], kind=what["edge"]),))
    return replace(CHAIN, nodes=(CHAIN.nodes[0], replace(CHAIN.nodes[1], **what)))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            {"edge": "median"},
            "edge 'e': kind is 'median' .allowed: conv, conv_transpose, max_filter",
        ),
        ({"kind": "mean"}, "node 'b': kind is 'mean' .allowed: input, transfer"),
        ({"function": "mean"}, "node 'b': function is 'mean' .allowed: linear, relu"),
    ],
)
def test_a_network_of_unknown_words_is_refused(what: dict[str, Any], words: str) -> None:
    with pytest.raises(NetworkError, match=words):
        load_network(changed(**what))
    for precision in ("float32", "float64"):
        with pytest.raises(NetworkError, match=words):
            Model(changed(**what), 1, hardware=Hardware(precision=precision))


def test_sizes_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(
        NetworkError, match="edge kind 'median' is none of conv, conv_transpose, max_filter"
    ):
        fit(changed(edge="median"), 1)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"edge": "median"}, "edge kind 'median' is none of conv"),
        ({"function": "mean"}, "function 'mean' is none of linear"),
        ({"kind": "mean"}, "mean"),
    ],
)
def test_the_oracle_refuses_what_it_does_not_know(what: dict[str, Any], words: str) -> None:
    geometry = fit(CHAIN, 2)
    with pytest.raises((NetworkError, AssertionError), match=words):
        forward(changed(**what), geometry, {}, IMAGE)
    with pytest.raises((NetworkError, AssertionError), match=words):
        gradients(changed(**what), geometry, {}, IMAGE, {"b": IMAGE["a"]})


def test_the_template_names_all() -> None:
    for word in (*EDGE_KINDS, *FUNCTIONS):
        assert re.search(rf"\b{word}\b", template()), word
