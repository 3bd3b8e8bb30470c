"""Grouped and depthwise convolutions in float32 beside the oracle; bits over threads; what plans say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from against_reference import errors
from znnpy_kernels.simd.lanes import LANES

from znnpy import Hardware, Model, load_network
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.parameters import reserve_parameters
from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.infer.forward_costs import forward_plan
from znnpy.network.types import Network
from znnpy.plan import Plan
from znnpy.profile.command import flops_by_task

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


BANDS: list[tuple[int, int, dict[str, Any]]] = [
    (32, 64, {"size": 3, "groups": 2}),
    (64, 32, {"size": [1, 3, 3], "groups": 4, "padding": "same"}),
    (40, 40, {"size": 3, "groups": 5, "padding": 1, "border": "replicate"}),
    (96, 48, {"size": [3, 3, 1], "groups": 3, "weight_standardization": True}),
]
"""Layers whose groups fill blocks; the last one may end within a block."""
DIRECT_BANDS: list[tuple[int, int, dict[str, Any]]] = [
    (32, 64, {"size": 1, "groups": 2}),
    (34, 34, {"size": [2, 3, 1], "groups": 17, "stride": [1, 2, 1], "repeat": [2, 1, 1]}),
    (64, 32, {"kind": "conv_transpose", "size": 2, "stride": 2, "groups": 2}),
]


def plan_of(net: Any, grouped: str) -> dict[str, Any]:
    """All layers directly but the grouped one."""
    plan: dict[str, Any] = {edge.name: {} for edge in net.edges}
    for name, layer in plan.items():
        algorithm = grouped if name == "grouped" else "direct"
        layer |= dict.fromkeys(("forward", "gradient", "weight"), algorithm)
    return plan


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("algorithm", "case"),
    [(algorithm, case) for case in BANDS for algorithm in ("winograd", "direct")]
    + [("direct", case) for case in DIRECT_BANDS],
)
def test_bands_beside_the_oracle(algorithm: str, case: tuple[int, int, dict[str, Any]]) -> None:
    net = network(*case)
    found = errors(net, (4, 6, 8), plan_of(net, algorithm), batch=2, threads=2)
    assert max(found.values()) < 5e-4, found


@pytest.mark.share(60)
@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(96))
def test_drawn_bands_beside_the_oracle(seed: int) -> None:
    """Odd sizes, borders, dilations, strides and batches, by both algorithms."""
    rng = np.random.default_rng(seed)
    algorithm = ("direct", "winograd")[seed % 2]
    taps = rng.choice([1, 3] if seed % 2 else [1, 2, 3, 4], 3)
    taps[seed % 3] = 3
    groups, each = int(rng.integers(2, 9)), rng.choice([4, 5, 8, 12, 16, 24, 32], 2)
    inputs, outputs = (int(groups * n) for n in each)
    apart = [int(rng.integers(1, 3)) if n > 1 else 1 for n in taps]
    keys = {
        "size": [int(n) for n in taps],
        "groups": groups,
        "sparsity": apart,
        "padding": [[int(n) for n in rng.integers(0, (k - 1) * d + 1, 2)] for k, d in zip(taps, apart, strict=True)],
    }  # fmt: skip
    if any(map(any, keys["padding"])):
        keys["border"] = str(rng.choice(["zeros", "replicate"]))
    if algorithm == "direct" and seed % 4 == 0:
        keys |= {"stride": [int(n) for n in rng.integers(1, 3, 3)]}
    net = network(inputs, outputs, keys)
    # At least what is seen of padding alone.
    extent = tuple(int(rng.integers(1, 6)) + sum(sides) for sides in keys["padding"])
    draws = (
        errors(net, extent, plan_of(net, algorithm), int(rng.integers(1, 4)), draw, threads=2)
        for draw in range(3)
    )
    # A sum near 0 whose relu rounding decides parts all gradients before it.
    assert any(max(found.values()) < 2e-4 for found in draws)


def test_bands_of_few_channels_lie_as_their_whole_layer_does() -> None:
    """Alone they would lie planar, between nodes of many channels."""
    few = LANES + 2
    net = network(few, 2 * few, {"size": [1, 3, 3], "groups": few})
    nodes = (
        replace(node, channels=3 * LANES) if node.kind == "input" else node for node in net.nodes
    )
    found = errors(Network(tuple(nodes), net.edges), (4, 6, 8), "direct", batch=2, threads=2)
    assert max(found.values()) < 2e-4, found


def test_bands_have_the_filters_of_their_groups_alone() -> None:
    net = network(64, 64, {"size": 3, "groups": 4})
    with Model(net, (4, 6, 8), plan=plan_of(net, "winograd"), seed=1) as model:
        kept = model.parameters["grouped"]
        assert kept.shape == (64, 16, 3, 3, 3)
        layout = Layout(net, model.geometry, model.plan, 1, training=True)
        found = reserve_parameters(Arena(), layout, 0)["grouped"]
        assert found.floats == kept.size
        changed = np.arange(kept.size, dtype=np.float32).reshape(kept.shape)
        model.set_parameters({"grouped": changed})
        np.testing.assert_array_equal(model.parameters["grouped"], changed)


def test_operations_of_bands_are_counted() -> None:
    """Of four bands as many as of four layers of their channels."""
    keys = {"size": [1, 3, 3], "padding": "same"}
    counted = []
    for channels, groups in ((64, 4), (16, 1)):
        net = network(channels, channels, {**keys, "groups": groups})
        for algorithm in ("winograd", "direct"):
            with Model(net, (4, 6, 8), plan=plan_of(net, algorithm)) as model:
                found = flops_by_task(model)
                counted.append(sum(n for task, n in found.items() if task.owner == "grouped"))
    assert counted[:2] == [4 * n for n in counted[2:]]


def test_plans_without_bands_compute_the_dense_layer() -> None:
    net = network(32, 32, {"size": 3, "groups": 2})
    found = errors(net, (4, 6, 8), "spectral")
    assert max(found.values()) < 1e-3, found


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
@pytest.mark.parametrize(
    ("algorithm", "case"),
    [("direct", CASES[1]), ("direct", CASES[8]), ("direct", BANDS[0]), ("winograd", BANDS[2])],
)
def test_bits_do_not_depend_on_threads(
    algorithm: str, case: tuple[int, int, dict[str, Any]]
) -> None:
    net, rng, results = network(*case), np.random.default_rng(0), []
    plan = None if case is CASES[1] else plan_of(net, algorithm)
    for threads in (1, 3, 8):
        with Model(
            net, (9, 8, 7), threads=threads, conv="direct", plan=plan, loss="square", seed=1
        ) as model:
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


def test_bands_that_see_the_whole_image() -> None:
    """Fully connected groups: samples are a row where a band is one group."""
    net = load_network(
        {
            "input": 2,
            "layers": [
                {"conv": {"channels": 32, "size": 2, "function": "relu"}},
                {"conv": {"channels": 64, "size": [2, 3, 3], "groups": 2}},
            ],
        }
    )
    for batch in (1, 5):
        found = errors(net, (1, 1, 1), "direct", batch=batch, threads=2)
        assert max(found.values()) < 2e-4, found
