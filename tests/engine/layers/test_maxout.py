"""Max nodes: values, gradients to the winner, bits over threads, beside the oracle and ZNN's files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import errors
from finite_differences import loss_by_reference

from znnpy import Hardware, Model, load_network, reference
from znnpy.errors import NetworkError
from znnpy.geometry import fit


def network(branches: int = 3, images: int = 18) -> Any:
    """Branches between which a max node chooses."""
    nodes: dict[str, Any] = {"input": {"kind": "input", "channels": 1}}
    edges: dict[str, Any] = {}
    nodes["a"] = {"kind": "transfer", "channels": images, "function": "tanh"}
    edges["first"] = {"kind": "conv", "from": "input", "to": "a", "size": [1, 2, 3]}
    nodes["most"] = {"kind": "max", "channels": images}
    for index in range(branches):
        nodes[f"b{index}"] = {"kind": "transfer", "channels": images}
        edges[f"c{index}"] = {"kind": "conv", "from": "a", "to": f"b{index}", "size": [2, 1, 2]}
        edges[f"m{index}"] = {"kind": "identity", "from": f"b{index}", "to": "most"}
    nodes["out"] = {"kind": "transfer", "channels": 2}
    edges["last"] = {"kind": "conv", "from": "most", "to": "out", "size": [1, 2, 2]}
    return load_network({"nodes": nodes, "edges": edges})


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_passes_beside_the_oracle(branches: int) -> None:
    found = errors(network(branches), (3, 4, 5), "direct", batch=2, threads=2)
    assert max(found.values()) < 1e-4, found


def test_gradients_of_the_oracle() -> None:
    net = network(3, 2)
    geometry, rng = fit(net, (1, 2, 2)), np.random.default_rng(0)
    shapes = {"first": (2, 1, 1, 2, 3), "c1": (2, 2, 2, 1, 2)}
    with Model(
        net, (1, 2, 2), hardware=Hardware(precision="float64"), loss="square", seed=3
    ) as model:
        parameters = {name: rng.standard_normal(a.shape) for name, a in model.parameters.items()}
    x = {"input": rng.standard_normal((1, 1, *geometry.input_shapes["input"]))}
    target = {"out": rng.standard_normal((1, 2, 1, 2, 2))}

    def loss(found: Any) -> float:
        return loss_by_reference(net, geometry, found, x, target)

    gradients = reference.gradients(net, geometry, parameters, x, target, loss="square")[1]
    for name in shapes:
        for place in np.ndindex(*shapes[name]):
            step = np.zeros(shapes[name])
            step[place] = 1e-6
            more, less = (
                loss(parameters | {name: parameters[name] + sign * step}) for sign in (1, -1)
            )
            assert gradients[name][place] == pytest.approx((more - less) / 2e-6, abs=1e-6)


def test_bits_do_not_depend_on_threads() -> None:
    net, rng, results = network(), np.random.default_rng(0), []
    for threads in (1, 3, 8):
        with Model(net, (9, 8, 7), threads=threads, conv="direct", loss="square", seed=1) as model:
            if not results:
                x = rng.standard_normal((1, 1, *model.input_shape)).astype(np.float32)
                target = rng.standard_normal((1, 2, 9, 8, 7)).astype(np.float32)
            for _ in range(3):
                model.step(x, target, learning_rate=0.01)
            results.append({name: a.tobytes() for name, a in model.parameters.items()})
    assert all(found == results[0] for found in results)


def test_a_convolution_does_not_enter_a_max_node() -> None:
    nodes = {"input": {"kind": "input", "channels": 1}, "most": {"kind": "max", "channels": 2}}
    edges = {"c": {"kind": "conv", "from": "input", "to": "most", "size": 1}}
    with pytest.raises(NetworkError, match="cannot enter the max node 'most'; put a sum node"):
        load_network({"nodes": nodes, "edges": edges})
