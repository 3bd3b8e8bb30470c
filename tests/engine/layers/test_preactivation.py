"""Norm and function before a convolution: nodes that read another's values through an identity edge copy nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy import Model, load_network
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.network import Network

GROUP = {"kind": "group", "groups": 2}
OUT = (4, 6, 5)
READERS: dict[str, dict[str, Any]] = {
    "group": {"function": "relu", "norm": GROUP, "bias": False},
    "batch": {"function": "leaky_relu", "norm": "batch", "bias": False},
    "instance, bias": {"function": "gelu", "norm": "instance", "bias": True},
    "prelu": {"function": "prelu", "norm": GROUP, "bias": False},
    "softmax": {"function": "softmax", "norm": GROUP},
    "norm alone": {"norm": "instance", "bias": False},
    "relu": {"function": "relu", "bias": False},
    "tanh, bias": {"function": "tanh"},
    "bias": {},
}
COPIES: dict[str, dict[str, Any]] = {
    "gelu": {"function": "gelu", "bias": False},
    "prelu": {"function": "prelu"},
    "softmax": {"function": "softmax"},
    "nothing": {"bias": False},
}


ALL = READERS | {f"copied {name}": keys for name, keys in COPIES.items()}


def network(reader: dict[str, Any], channels: int = 12, *, skip: bool = True) -> Network:
    """A residual block whose function comes first, concatenation, and a function of that before a convolution."""
    nodes: dict[str, Any] = {
        "in": {"kind": "input", "channels": 2},
        "x": {"kind": "transfer", "channels": channels},
        "a": {"kind": "transfer", "channels": channels, **reader},
        "y": {"kind": "sum", "channels": channels},
        "b": {"kind": "transfer", "channels": channels, **reader},
        "cat": {"kind": "concat", "channels": 2 * channels},
        "c": {"kind": "transfer", "channels": 2 * channels, **reader},
        "out": {"kind": "transfer", "channels": 3},
    }
    same = {"size": 3, "padding": 1}
    edges: dict[str, Any] = {
        "stem": {"kind": "conv", "from": "in", "to": "x", **same},
        "xy": {"kind": "identity", "from": "x", "to": "y"},
        "xa": {"kind": "identity", "from": "x", "to": "a"},
        "ay": {"kind": "conv", "from": "a", "to": "y", **same},
        "yb": {"kind": "identity", "from": "y", "to": "b"},
        "bcat": {"kind": "identity", "from": "b", "to": "cat"},
        "ycat": {"kind": "identity", "from": "y", "to": "cat"},
        "catc": {"kind": "identity", "from": "cat", "to": "c"},
        "head": {"kind": "conv", "from": "c", "to": "out", **same},
    }
    if not skip:
        del edges["xy"]
    return load_network({"nodes": nodes, "edges": edges})


def batch(count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 2, *OUT)), rng.normal(size=(count, 3, *OUT))


def copied(model: Model) -> set[str]:
    return {it.owner for it in identities(model.task_graph) if it.part is Part.COPY}


@pytest.mark.share(16)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(
    "reader",
    [READERS[k] for k in READERS] + [COPIES[k] for k in COPIES],
    ids=[*READERS, *(f"copied {k}" for k in COPIES)],
)
def test_gradients_are_those_of_float64(reader: dict[str, Any], skip: bool) -> None:
    net, (x, y) = network(reader, skip=skip), batch()
    with model_of(net, OUT, batch=2, threads=1, loss="square", precision="float64") as other:
        wanted_loss, wanted = other.loss_and_gradients(x, y)
        values = other.forward(x)
    for conv in ("direct", "fft"):
        with model_of(net, OUT, batch=2, threads=1, loss="square", conv=conv) as own:
            loss, gradients = own.loss_and_gradients(x, y)
            assert loss == pytest.approx(wanted_loss, rel=1e-4)
            for name, array in wanted.items():
                atol = 1e-4 * max(abs(array).max(), 1e-2)
                np.testing.assert_allclose(
                    gradients[name], array, rtol=1e-3, atol=atol, err_msg=f"{name} {conv}"
                )
            np.testing.assert_allclose(own.forward(x), values, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_identity_edges_copy_nothing(reader: dict[str, Any]) -> None:
    # 16 channels fill blocks of 8 and of 16: the concat node copies nothing either.
    for training in (True, False):
        with model_of(network(reader, 16), OUT, threads=1, loss="square", training=training) as own:
            # The gradient of y goes to b, from there back, and only then into the concat node's.
            assert not copied(own) & {"xy", "xa", "yb", "catc"}


@pytest.mark.parametrize("reader", COPIES.values(), ids=COPIES)
def test_what_works_in_place_takes_a_copy(reader: dict[str, Any]) -> None:
    with model_of(network(reader, 16), OUT, threads=1, loss="square") as own:
        assert {"xa", "catc"} <= copied(own)


@pytest.mark.parametrize("name", ["group", "batch", "tanh, bias"])
def test_the_same_bits_for_any_number_of_workers_and_with_values_made_again(name: str) -> None:
    net, out, found = network(READERS[name], 12), (6, 24, 20), []
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, *out)), rng.normal(size=(2, 3, *out))
    keys: dict[str, Any] = {"batch": 2, "microbatch": 1, "loss": "square", "conv": "direct"}
    with model_of(net, out, threads=1, **keys) as own:
        whole = own.memory
    for threads, limit in ((1, None), (3, None), (8, None), (1, int(0.93 * whole))):
        with model_of(net, out, threads=threads, max_memory=limit, **keys) as own:
            for _ in range(2):
                own.step(x, y, learning_rate=0.05)
            found.append({name: array.tobytes() for name, array in own.parameters.items()})
            assert limit is None or own.memory <= limit
    assert all(one == found[0] for one in found)
