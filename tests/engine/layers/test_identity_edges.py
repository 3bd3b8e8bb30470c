"""Identity edges of pre-activation and residual nets cost no pass over memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import check_network

from znnpy import Model, load_network
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.layers.types import Norm
from znnpy.network.types import Edge, Network, Node

UNET = {"widths": [16, 32], "padding": "same", "convs": 2}
MOVING = (Part.COPY, Part.SPLIT)


def moved(network: Network, *, training: bool) -> list[tuple[str | None, Part]]:
    """Owner and part of the tasks of a recorded step that only move voxels."""
    with Model(network, (8, 16, 16), training=training, threads=2, conv="direct") as model:
        found = {(it.owner, it.part) for it in identities(model.task_graph)}
    return [it for it in found if it[1] in MOVING]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm", [None, "instance", "batch", "group"])
@pytest.mark.parametrize("block", [{}, {"blocks": 2, "block": "residual"}])
def test_pre_activation_copies_nothing(training: bool, norm: Any, block: Any) -> None:
    network = load_network({"unet": UNET | {"order": "pre", "norm": norm} | block})
    edges = [edge for edge in network.edges if edge.kind == "identity"]
    assert len(edges) >= 8
    assert not moved(network, training=training)


def residual(function: str, norm: Norm | None) -> Network:
    """Two images that are added, each with another reader or a norm of its own."""
    nodes = (
        Node("input", "input", 1),
        Node("a", "transfer", 17, function="relu"),
        Node("b", "transfer", 17, norm=norm, bias=norm is None),
        Node("more", "transfer", 17, function="tanh"),
        Node("sum", "transfer", 17, function, bias=norm is None, norm=norm),  # type: ignore[arg-type]
        Node("out", "transfer", 2, function="tanh"),
    )
    edges = (
        Edge("c1", "conv", "input", "a", size=(3, 3, 3)),
        Edge("c2", "conv", "a", "b"),
        Edge("c3", "conv", "a", "more"),
        Edge("i1", "identity", "a", "sum"),
        Edge("i2", "identity", "b", "sum"),
        Edge("i3", "identity", "more", "sum"),
        Edge("c4", "conv", "sum", "out"),
    )
    return Network(nodes, edges)


@pytest.mark.parametrize("function", ["linear", "relu", "elu", "softplus"])
@pytest.mark.parametrize("norm", [None, Norm("instance")])
def test_sums_of_what_is_there_begin_with_no_copy(function: str, norm: Norm | None) -> None:
    network = residual(function, norm)
    assert not moved(network, training=False)
    check_network(network, (5, 6, 7), conv="direct")


def test_bits_of_such_a_sum_do_not_depend_on_threads() -> None:
    network = residual("linear", None)
    x = np.random.default_rng(0).standard_normal((1, 1, 7, 8, 9)).astype(np.float32)
    found = []
    for threads in (0, 1, 3):
        with Model(network, (5, 6, 7), training=False, threads=threads, conv="direct") as model:
            found.append(model.forward(x))
    assert all(np.array_equal(found[0], other) for other in found)
