"""Models of ONNX that `znnpy export` writes, run by ONNX Runtime, beside the networks that they were."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_runs import LAYERS
from nnunet_model import folder_of
from nnunet_plans import Recipe
from random_networks import random_inputs, random_network, random_parameters

from znnpy.errors import ExportError, VolumeError
from znnpy.geometry import fit, fit_input
from znnpy.interop.export.computation import Computation
from znnpy.interop.export.description import described
from znnpy.interop.export.formats import export
from znnpy.interop.export.onnx_model import onnx_model
from znnpy.interop.export.trained import Trained
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.network import load_network
from znnpy.network.parameters import repeated, repeats_of
from znnpy.network.types import Network
from znnpy.reference.evaluate import forward
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
Arrays = dict[str, np.ndarray]
ROUNDING = 2e-5
"""Of the range: what float32 loses beside float64 in the worst of the random networks, here as in znnpy's engine."""


def run(model: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [it.name for it in session.get_inputs()]
    found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


def compare(network: Network, parameters: Arrays, geometry: Any, seed: int, near: float) -> None:
    inputs = random_inputs(network, geometry, seed, 2)
    wanted = forward(network, geometry, parameters, inputs)
    computation = described(network, parameters, {})
    found = run(
        onnx_model(computation, "A net", {}).SerializeToString(),
        [inputs[node.name] for node in network.inputs],
    )
    for node, output in zip(network.outputs, found, strict=True):
        assert output.dtype == np.float32
        # Values that hardly differ are rounded by their size.
        size = float(abs(wanted[node.name]).max())
        atol = near * max(1e-2, size / 10, float(np.ptp(wanted[node.name])))
        np.testing.assert_allclose(output, wanted[node.name], rtol=0, atol=atol)


def parameters_of(network: Network, seed: int) -> Arrays:
    found = random_parameters(network, seed)
    return {name: repeated(it, repeats_of(network).get(name)) for name, it in found.items()}


@pytest.mark.parametrize("seed", range(70))
def test_any_network_is_the_same_there(seed: int) -> None:
    network, shape = random_network(seed)
    compare(network, parameters_of(network, seed), fit(network, shape), seed, ROUNDING)


def test_averages_whose_taps_lie_apart() -> None:
    padding = [[1, 0], [0, 1], [1, 1]]
    for counted in (False, True):
        layers = [
            {"max_filter": [1, 2, 2]},
            {"avg_pool": {"size": 3, "stride": 1, "padding": padding, "count_padding": counted}},
            {"conv": {"channels": 2, "size": 2, "function": "gelu_tanh"}},
        ]
        network = load_network({"input": 2, "layers": layers})
        compare(network, parameters_of(network, 0), fit(network, 5), 0, 1e-5)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_nets_taken_over(layer: str) -> None:
    network = load_network({"input": 2, "layers": LAYERS[layer]})
    geometry = fit(network, 1 if "one voxel" in layer else 6)
    compare(network, parameters_of(network, 3), geometry, 3, 1e-5)


SMALL = Recipe(patch=(8, 16, 16), widths=(4, 6), mirrored=None)


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    write_run(read_model(folder_of(SMALL, tmp_path / "model")), tmp_path / "run")
    return Trained(read_run(tmp_path / "run", Quiet()))


def test_a_run_is_a_model_of_any_size(trained: Trained, tmp_path: Path) -> None:
    """Probabilities, in other sizes and batches than the run's; what a user has to know is in the file."""
    (path,) = export(trained, "onnx", tmp_path / "net.onnx")
    weights = trained.saved.weights
    for batch, size in ((1, (8, 16, 16)), (3, (16, 32, 20))):
        geometry = fit_input(weights.network, size)
        image = random_inputs(weights.network, geometry, 0, batch)
        logits = forward(weights.network, geometry, weights.parameters, image)["output"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        (found,) = run(path.read_bytes(), [image["input"]])
        np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), atol=1e-5)
    model = onnx.load(path)
    assert "Network of the run 'run' after 0 updates" in model.doc_string
    facts = {it.key: it.value for it in model.metadata_props}
    assert json.loads(facts["input_shapes"]) == {"input": [8, 16, 16]}
    assert json.loads(facts["prepare"])["normalize"] == [{"kind": "deviation", "inside": False}]
    assert json.loads(facts["period"]) == [1, 2, 2]
    (given,) = model.graph.input
    axes = [it.dim_param or it.dim_value for it in given.type.tensor_type.shape.dim]
    assert axes == ["batch", 1, "input_z", "input_y", "input_x"]


def test_logits(trained: Trained, tmp_path: Path) -> None:
    (path,) = export(Trained(trained.saved, logits=True), "onnx", tmp_path / "net.onnx")
    weights = trained.saved.weights
    geometry = fit_input(weights.network, (8, 16, 16))
    image = random_inputs(weights.network, geometry, 0)
    wanted = forward(weights.network, geometry, weights.parameters, image)["output"]
    (found,) = run(path.read_bytes(), [image["input"]])
    np.testing.assert_allclose(found, wanted, atol=1e-5 * float(np.ptp(wanted)))


def test_more_weights_than_a_file_holds() -> None:
    large = np.broadcast_to(np.float32(0), (1 << 29, 1))  # no memory of its own
    computation = Computation({"a": 1}, {"b": 1}, (), frozenset("ab"), {"x.weight": large})
    with pytest.raises(ExportError, match=r"the weights take 2\.0 GiB"):
        onnx_model(computation, "", {})


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch, trained: Trained) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        VolumeError, match=r'ONNX files need the package onnx.*pip install "znnpy\[onnx\]"'
    ):
        export(trained, "onnx", Path("net.onnx"))
