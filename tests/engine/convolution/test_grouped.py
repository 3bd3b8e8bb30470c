"""Grouped and depthwise convolutions in float32 beside the oracle; bits over threads; what plans say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import errors

from znnpy import Hardware, Model, load_network
from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.infer.forward_costs import forward_plan
from znnpy.plan import Plan

CASES: list[tuple[int, int, dict[str, Any]]] = [
    (19, 19, {"size": 3, "groups": 19}),
    (35, 35, {"size": [1, 3, 5], "groups": 35, "padding": "same"}),
    (6, 6, {"size": 3, "groups": 6, "stride": 2, "padding": 1}),
    (4, 4, {"size": [2, 3, 3], "groups": 4, "padding": [[1, 0], [1, 1], [0, 2]],
            "border": "replicate"}),
    (4, 4, {"size": 3, "groups": 4, "padding": 1, "border": "reflect", "sparsity": [1, 1, 1]}),
    (17, 17, {"size": [1, 2, 3], "groups": 17, "sparsity": [1, 2, 2], "stride": [1, 2, 1]}),
    (6, 9, {"size": 3, "groups": 3}),
    (6, 12, {"size": [1, 2, 2], "groups": 6, "stride": [1, 2, 2], "repeat": [1, 2, 1]}),
    (40, 64, {"size": [1, 3, 3], "groups": 2, "padding": [0, 1, 1]}),
    (6, 9, {"kind": "conv_transpose", "size": 2, "stride": 2, "groups": 3}),
]  # fmt: skip


def network(inputs: int, outputs: int, keys: dict[str, Any]) -> Any:
    """A grouped convolution between others; what grows has shrunk before."""
    step = keys["stride"] if "kind" in keys else 1
    return load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 2},
                "a": {"kind": "transfer", "channels": inputs, "function": "relu"},
                "b": {"kind": "transfer", "channels": outputs, "function": "tanh"},
                "out": {"kind": "transfer", "channels": 2},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": 2, "stride": step},
                "grouped": {"kind": "conv", "from": "a", "to": "b", **keys},
                "last": {"kind": "conv", "from": "b", "to": "out", "size": [1, 1, 3]},
            },
        }
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize(("inputs", "outputs", "keys"), CASES)
def test_passes_beside_the_oracle(inputs: int, outputs: int, keys: dict[str, Any]) -> None:
    net = network(inputs, outputs, keys)
    found = errors(net, (4, 6, 8), "direct", batch=2, threads=2)
    assert max(found.values()) < 2e-4, found


@pytest.mark.parametrize("conv", ["spectral", "fft"])
def test_groups_by_other_algorithms(conv: str) -> None:
    found = errors(network(6, 9, {"size": 3, "groups": 3}), (4, 6, 8), conv, threads=2)
    assert max(found.values()) < 1e-3, found


def test_depthwise_of_an_input() -> None:
    layers = [
        {"conv": {"channels": 3, "size": 3, "groups": 3}},
        {"conv": {"channels": 2, "size": 1}},
    ]
    net = load_network({"input": 3, "layers": layers})
    rng, found = np.random.default_rng(0), {}
    for precision in ("float32", "float64"):
        with Model(net, 4, hardware=Hardware(precision=precision), loss="square", seed=1) as model:
            if not found:
                x = rng.standard_normal((1, 3, *model.input_shape)).astype(np.float32)
                target = rng.standard_normal((1, 2, 4, 4, 4)).astype(np.float32)
            found[precision] = model.loss_and_gradients(x, target)[1]
    assert found["float32"]["conv1"].shape == (3, 1, 3, 3, 3)
    for name, wanted in found["float64"].items():
        np.testing.assert_allclose(found["float32"][name], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", [1, 8])
def test_bits_do_not_depend_on_threads(case: int) -> None:
    net, rng, results = network(*CASES[case]), np.random.default_rng(0), []
    for threads in (1, 2, 3, 8):
        with Model(net, (9, 8, 7), threads=threads, conv="direct", loss="square", seed=1) as model:
            if not results:
                x = rng.standard_normal((1, 2, *model.input_shape)).astype(np.float32)
                target = rng.standard_normal((1, 2, 9, 8, 7)).astype(np.float32)
            for _ in range(3):
                model.step(x, target, learning_rate=1e-4)
            results.append({name: a.tobytes() for name, a in model.parameters.items()})
    assert all(found == results[0] for found in results)


def test_predictions_plan_depthwise_layers() -> None:
    for net in (network(*CASES[1]), load_network({"input": 3, "layers": [
        {"conv": {"channels": 3, "size": 3, "groups": 3}}]})):  # fmt: skip
        plan = forward_plan(net, fit(net, (6, 6, 6)), "auto")
        wide = {name: layer.forward for name, layer in plan.layers.items()}
        assert "depthwise" in wide.values()
        Plan.from_record(plan.to_record(), net)


def test_plans_know_depthwise_layers() -> None:
    net = network(*CASES[0])
    with Model(net, 4, conv="auto") as model:
        plan = model.plan.to_record()
        assert plan["grouped"]["forward"] == "depthwise"
        assert plan["last"]["forward"] != "depthwise"
    for name, algorithm in (("grouped", "direct"), ("last", "depthwise")):
        wrong = plan | {name: dict.fromkeys(("forward", "gradient", "weight"), algorithm)}
        with pytest.raises(PlanError, match=f"'{name}': .*filters of one channel each"):
            Model(net, 4, plan=wrong)
