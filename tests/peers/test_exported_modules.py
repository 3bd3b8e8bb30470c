"""Modules that `znnpy export --format torch` writes, loaded by PyTorch, beside the networks that they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from exported_runs import LAYERS, imported, loaded, run_of
from model_settings import model_of
from random_networks import random_inputs, random_network, random_parameters

from znnpy.geometry import fit
from znnpy.interop.export.description import COMBINED, described
from znnpy.interop.export.edges import EDGES
from znnpy.interop.export.formats import export
from znnpy.interop.export.identifiers import RESERVED
from znnpy.layers.types import NormKind
from znnpy.network import load_network
from znnpy.network.parameters import repeated, repeats_of
from znnpy.network.types import Network
from znnpy.reference.evaluate import forward

torch = pytest.importorskip("torch")
Arrays = dict[str, np.ndarray]


def compare(network: Network, shape: Any, seed: int, folder: Path) -> None:
    geometry = fit(network, shape)
    found: Arrays = {k: v.astype(np.float64) for k, v in random_parameters(network, seed).items()}
    parameters = {k: repeated(v, repeats_of(network).get(k)) for k, v in found.items()}
    inputs = random_inputs(network, geometry, seed, 2)
    wanted = forward(network, geometry, parameters, inputs)
    net = loaded(described(network, found, {}), folder)  # repeats what repeats
    assert not net.training
    with torch.no_grad():
        given = [torch.from_numpy(inputs[node.name]).double() for node in network.inputs]
        made = net(*given)
    made = made if isinstance(made, tuple) else (made,)
    for node, output in zip(network.outputs, made, strict=True):
        near = 1e-8 * max(1.0, float(np.abs(wanted[node.name]).max()))
        np.testing.assert_allclose(output.numpy(), wanted[node.name], rtol=0, atol=near)


@pytest.mark.parametrize("seed", range(70))
def test_any_network_is_the_same_there(seed: int, tmp_path: Path) -> None:
    network, shape = random_network(seed)
    compare(network, shape, seed, tmp_path)


def test_these_networks_have_all_kinds() -> None:
    networks = [random_network(seed)[0] for seed in range(70)]
    assert {edge.kind for net in networks for edge in net.edges} >= EDGES.keys()
    assert {node.kind for net in networks for node in net.nodes} == COMBINED.keys()
    assert {edge.mode for net in networks for edge in net.edges} >= {"nearest", "linear"}
    norms = {node.norm.kind for net in networks for node in net.nodes if node.norm}
    assert norms == {*get_args(NormKind)}
    assert any(edge.weight_standardization for net in networks for edge in net.edges)


def test_names_that_a_module_has_already(tmp_path: Path) -> None:
    """Each name of torch.nn.Module is an edge's."""
    names = [name for name in dir(torch.nn.Module()) if not name.startswith("_")]
    assert {*names} <= RESERVED
    edges: dict[str, Any] = {}
    nodes: dict[str, Any] = {"input": {"kind": "input", "channels": 1}}
    before = "input"
    for name in [*names, "self", "class", "torch", "nn", "x.y"]:
        nodes[f"{name}."] = {"kind": "transfer", "channels": 1, "function": "tanh"}
        edges[name] = {"kind": "conv", "from": before, "to": f"{name}.", "size": 1}
        before = f"{name}."
    compare(load_network({"nodes": nodes, "edges": edges}), 3, 0, tmp_path)


def test_a_bias_without_filters_and_averages_of_sparse_voxels(tmp_path: Path) -> None:
    layers = [
        {"conv": {"channels": 4, "size": 3, "padding": [[1, 0], [2, 1], [0, 2]], "border": "replicate"}},
        {"max_filter": [1, 2, 2]},
        {"avg_pool": {"size": 3, "stride": 1, "padding": [[1, 0], [0, 1], [1, 1]], "count_padding": False}},
        {"conv": {"channels": 2, "size": 2, "groups": 2, "function": "softmax"}},
    ]  # fmt: skip
    network = load_network({"input": 2, "layers": layers})
    compare(network, 5, 1, tmp_path)
    nodes = {
        "input": {"kind": "input", "channels": 2},
        "output": {"kind": "transfer", "channels": 2, "function": "prelu", "norm": "group", "bias": True},
    }  # fmt: skip
    nodes["output"]["norm"] = {"kind": "group", "groups": 2}
    edges = {"pool": {"kind": "max_pool", "from": "input", "to": "output", "size": 2}}
    compare(load_network({"nodes": nodes, "edges": edges}), 4, 2, tmp_path)


@pytest.mark.parametrize("kind", ["sum", "product", "max", "concat"])
def test_many_edges_into_a_node(kind: str, tmp_path: Path) -> None:
    """More than Python nests."""
    count, edges = 300, dict[str, Any]()
    nodes: dict[str, Any] = {"input": {"kind": "input", "channels": 1}}
    for number in range(count):
        nodes[f"n{number}"] = {"kind": "transfer", "channels": 1, "function": "tanh"}
        edges[f"c{number}"] = {"kind": "conv", "from": "input", "to": f"n{number}", "size": 1}
        edges[f"i{number}"] = {"kind": "identity", "from": f"n{number}", "to": "reduce"}
    nodes["reduce"] = {"kind": kind, "channels": count if kind == "concat" else 1}
    compare(load_network({"nodes": nodes, "edges": edges}), 3, 0, tmp_path)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_nets_taken_over(layer: str, tmp_path: Path) -> None:
    network = load_network({"input": 2, "layers": LAYERS[layer]})
    compare(network, 1 if "one voxel" in layer else 6, 3, tmp_path)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_run_as_its_user_loads_it(tmp_path: Path, precision: str) -> None:
    """Probabilities as the model's own, in the precision of the run."""
    layers = [
        {"conv": {"channels": 4, "size": 3, "function": "relu", "norm": "batch"}},
        {"dropout": 0.5},
        {"conv": {"channels": 2, "size": [1, 2, 2]}},
    ]
    training = {"output_shape": [4, 6, 6], "precision": precision}
    found = run_of(tmp_path / "run", {"layers": layers}, training=training)
    path, _ = export(found, "torch", tmp_path / "net.py")
    net = imported(path).load()
    saved = found.saved
    image = np.random.default_rng(0).standard_normal((2, 1, 6, 9, 9)).astype(precision)
    with model_of(saved.network, (4, 6, 6), 2, training=False, threads=1, conv="direct",
                  precision=precision) as model:  # fmt: skip
        model.set_parameters(saved.parameters)
        wanted = model.predict(image)
    with torch.no_grad():
        output = net(torch.from_numpy(image))
    assert str(output.dtype) == f"torch.{precision}"
    assert f"input: (batch, 1, z, y, x) {precision}" in path.read_text()
    np.testing.assert_allclose(output.numpy(), wanted, rtol=0, atol=1e-5)
