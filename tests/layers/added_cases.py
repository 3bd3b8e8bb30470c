"""A function and an edge kind that are no part of znnpy, listed first and then used as any other.

pytest does not collect this file by its name: `test_added.py` runs it in a process of its own, because
entries are read when `znnpy.config` is imported. What is added stands above all other imports of znnpy.
"""

# ruff: noqa: E402

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field
from znnpy_kernels.layers.activation_functions import ACTIVATIONS

from znnpy.fields import Offset3, Strict
from znnpy.layers.activation_functions import FUNCTIONS, Function

FUNCTIONS["hard_tanh"] = Function(
    name="hard_tanh",
    value=lambda x, shape: np.clip(x, -1.0, 1.0),
    gradient=lambda y, g, shape: np.where(np.abs(y) < 1, g, 0.0),
)

from znnpy.layers.edge_kind import EdgeKind
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.sizes import Windows


class TrimLayer(Strict):
    """Removes voxels where the axes begin."""

    offset: Offset3 = Field(description="Voxels removed, z y x.")


def trimmed(image: Any, at: Any) -> Any:
    z, y, x = at.edge.offset
    return image[:, :, z:, y:, x:]


def trimmed_gradient(image: Any, gradient: Any, at: Any) -> Any:
    whole = np.zeros_like(image)
    trimmed(whole, at)[...] = gradient
    return whole


EDGE_KINDS["trim"] = EdgeKind(
    name="trim",
    summary="Trim. In short: the offset.",
    example="trim: 1  # voxels removed where the axes begin",
    keys=TrimLayer,
    short=("offset", (int, list, tuple)),
    forward=trimmed,
    data_gradient=trimmed_gradient,
    sizes=lambda edge, dilation: tuple(Windows(span=1 + n) for n in edge.offset),
)

import added_kernels  # noqa: F401  which enters the function's kernels
from against_reference import check
from random_networks import loss_of, random_inputs, random_network, random_parameters

from znnpy import Hardware, Model, Optimizer, load_network
from znnpy.config import json_schema, load_config, template
from znnpy.engine.emit import EMITTERS, Emitter
from znnpy.engine.layers import data_movement
from znnpy.errors import ConfigError, NetworkError
from znnpy.geometry import fit
from znnpy.network import build_network, network_to_section
from znnpy.reference import forward, gradients

# An image is copied from an offset on, and its gradient put there: the tasks of a crop.
TASKS = Emitter(data_movement.crop_forward, data_movement.crop_backward)

CONFIG = """\
network:
  layers:
  - conv: {channels: 9, size: 3, function: hard_tanh}
  - trim: [0, 1, 2]
  - conv: {channels: 2, size: [1, 2, 3], function: hard_tanh}
  - trim: {offset: 1}
training: {output_shape: [3, 4, 5]}
"""
SHAPE = (3, 4, 5)


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMITTERS, "trim", TASKS)


@pytest.fixture
def network(tmp_path: Path) -> Any:
    (tmp_path / "c.yaml").write_text(CONFIG)
    return build_network(load_config(tmp_path / "c.yaml").network)


def test_a_config_takes_both_and_they_are_written_back(network: Any) -> None:
    assert [edge.kind for edge in network.edges] == ["conv", "trim", "conv", "trim"]
    assert network.edges[3].offset == (1, 1, 1)
    assert network.nodes[1].function == "hard_tanh"
    assert build_network(network_to_section(network)) == network


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("trimm: 1", r"unknown key 'trimm'|did you mean 'trim'\?"),
        ("trim: {offset: -1}", "trim.offset.*must be at least 0"),
        ("trim: {ofset: 1}", r"did you mean 'offset'\?"),
        ("conv: {channels: 1, size: 1, function: hard_tan}", r"did you mean 'hard_tanh'\?"),
    ],
)
def test_errors_name_what_is_right(tmp_path: Path, layer: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(f"network:\n  layers:\n  - {layer}\n")
    with pytest.raises(ConfigError, match=words) as error:
        load_network(tmp_path / "c.yaml")
    assert "c.yaml:3" in str(error.value)


def test_schema_and_template_show_them() -> None:
    schema = json_schema()
    assert schema["$defs"]["LayerSection"]["properties"]["trim"]
    assert "hard_tanh" in schema["$defs"]["NodeSection"]["properties"]["function"]["enum"]
    assert schema["$defs"]["TrimEdge"]["properties"]["kind"]["const"] == "trim"
    assert re.search(r"- trim: 1  # voxels", template())
    assert re.search(r"relu, .*hard_tanh", template())


def test_sizes(network: Any) -> None:
    geometry = fit(network, SHAPE)
    assert geometry.input_shapes["input"] == (3 + 1 + 0 + 2, 4 + 1 + 1 + 1 + 2, 5 + 1 + 2 + 2 + 2)


def test_the_oracles_gradients_are_those_of_its_values(network: Any) -> None:
    geometry, rng = fit(network, SHAPE), np.random.default_rng(0)
    parameters = {n: a.astype(float) for n, a in random_parameters(network, 0).items()}
    inputs = random_inputs(network, geometry, 0)
    target = {"output": rng.standard_normal((1, 2, *SHAPE))}
    loss, found = gradients(network, geometry, parameters, inputs, target)
    assert loss > 0
    for name, gradient in found.items():
        way, step = rng.standard_normal(gradient.shape), 1e-6
        ends = []
        for sign in (1, -1):
            moved = parameters | {name: parameters[name] + sign * step * way}
            ends.append(gradients(network, geometry, moved, inputs, target)[0])
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(np.vdot(gradient, way), slope, rtol=1e-4, atol=1e-8)


def test_the_engine_trains_as_the_oracle_does(network: Any) -> None:
    rng = np.random.default_rng(1)
    shape, found = fit(network, SHAPE).input_shapes["input"], {}
    x = 2 * rng.standard_normal((2, 1, *shape), np.float32)
    target = rng.standard_normal((2, 2, *SHAPE), np.float32)
    for precision in ("float32", "float64"):
        with Model(network, SHAPE, 2, threads=2, seed=3, loss="square", conv="direct",
                   optimizer=Optimizer(), hardware=Hardware(precision=precision)) as model:  # fmt: skip
            first = np.asarray(model.forward(x))
            losses = [model.step(x, target, learning_rate=0.05) for _ in range(5)]
            found[precision] = first, losses, np.asarray(model.predict(x)), dict(model.parameters)
    single, double = found["float32"], found["float64"]
    assert np.abs(double[0]).max() == 1  # the function is at work
    assert double[1][-1] < double[1][0]
    np.testing.assert_allclose(single[0], double[0], atol=2e-5)
    np.testing.assert_allclose(single[1], double[1], rtol=2e-5)
    np.testing.assert_allclose(single[2], double[2], atol=1e-4)
    for name, array in double[3].items():
        np.testing.assert_allclose(single[3][name], array, atol=1e-4)


def test_float64_runs_what_has_no_tasks_or_kernel_yet(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(EMITTERS, "trim")
    with pytest.raises(NetworkError, match="edge 'trim1': trim has no tasks in float32; precision"):
        Model(network, SHAPE, conv="direct")
    monkeypatch.setitem(EMITTERS, "trim", TASKS)
    monkeypatch.delitem(ACTIVATIONS, "hard_tanh")
    with pytest.raises(NetworkError, match=r"node 'layer\d|output': hard_tanh has no kernel"):
        Model(network, SHAPE, conv="direct")
    with Model(network, SHAPE, conv="direct", hardware=Hardware(precision="float64")) as model:
        assert model.predict(np.ones((1, 1, *model.input_shape), np.float32)).shape == (
            1,
            2,
            *SHAPE,
        )


def test_random_networks_draw_them() -> None:
    drawn = {"kinds": 0, "functions": 0}
    for seed in range(30):
        net, shape = random_network(seed)
        kinds = sum(edge.kind == "trim" for edge in net.edges)
        drawn["kinds"] += kinds
        drawn["functions"] += any(node.function == "hard_tanh" for node in net.nodes)
        if kinds:
            geometry = fit(net, shape)
            values = forward(
                net, geometry, random_parameters(net, seed), random_inputs(net, geometry, seed)
            )
            for node in net.nodes:
                assert values[node.name].shape[2:] == geometry.nodes[node.name].shape
    assert drawn["kinds"] >= 3
    assert drawn["functions"] >= 3


def has_both(seed: int) -> bool:
    net, _ = random_network(seed)
    kinds, functions = {e.kind for e in net.edges}, {n.function for n in net.nodes}
    return "trim" in kinds and "hard_tanh" in functions


def test_the_engine_runs_random_networks_with_both() -> None:
    # Of draws, no more than it takes; that of seed 3 takes three quarters of the time of four, and shows no more.
    seeds = [*islice(filter(has_both, range(4, 200)), 3)]
    assert len(seeds) == 3
    for seed in seeds:
        check(seed, ("direct",), loss_of(seed))
