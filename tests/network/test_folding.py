"""Batch normalisation as part of filters and biases, for prediction."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, load_network, reference
from znnpy.engine.tasks.task_identity import Kind
from znnpy.file_arrays import FileArray, KeptFile
from znnpy.geometry import fit
from znnpy.network import Network, parameter_shapes
from znnpy.network.folding import fold, folded

OUT = (3, 4, 5)


def network(*, affine: bool = True, bias: bool = False, function: str = "relu") -> Network:
    """Convolutions into normalised nodes: one, two that meet, and one that meets a crop."""
    normed = {"kind": "transfer", "channels": 9, "norm": {"kind": "batch", "affine": affine}}
    normed |= {"bias": bias, "function": function}
    conv = {"kind": "conv", "size": 3}
    return load_network(
        {
            "nodes": {
                "in": {"kind": "input", "channels": 2},
                "one": normed,
                "two": normed,
                "sum": normed,
                "out": {"kind": "transfer", "channels": 2, "norm": "batch"},
            },
            "edges": {
                "a": {**conv, "from": "in", "to": "one"},
                "b": {**conv, "from": "one", "to": "two"},
                "c": {**conv, "from": "one", "to": "two"},
                "d": {**conv, "from": "two", "to": "sum"},
                "e": {"kind": "crop", "from": "two", "to": "sum", "offset": 1},
                "f": {**conv, "size": 1, "from": "sum", "to": "out"},
            },
        }
    )


def material(net: Network) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    parameters = {}
    for name, shape in parameter_shapes(net).items():
        values = rng.standard_normal(shape) * 0.5
        parameters[name] = (np.abs(values) if name.endswith("variance") else values).astype("f4")
    return parameters, rng.standard_normal((1, 2, *fit(net, OUT).input_shapes["in"])).astype("f4")


@pytest.mark.parametrize(("affine", "bias"), [(True, False), (False, False), (True, True)])
def test_values_stay(affine: bool, bias: bool) -> None:
    net = network(affine=affine, bias=bias)
    parameters, x = material(net)
    less = folded(net)
    assert [node.name for node in less.nodes if node.norm] == ["sum"]
    geometry, given = fit(net, OUT), {name: np.float64(a) for name, a in parameters.items()}
    moved = fold(net, given)
    assert moved.keys() == parameter_shapes(less).keys()
    wanted = reference.forward(net, geometry, given, {"in": x})["out"]
    found = reference.forward(less, geometry, moved, {"in": x})["out"]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_what_is_folded_is_not_there_twice() -> None:
    layer = {"conv": {"channels": 64, "size": 3, "norm": "batch"}}
    net = load_network({"layers": [layer] * 7})
    rng = np.random.default_rng(0)

    def drawn() -> dict[str, Any]:
        shapes = parameter_shapes(net).items()
        return {name: rng.random(shape).astype("f4") for name, shape in shapes}

    fold(net, drawn())  # imports, caches
    tracemalloc.start()
    try:
        first = drawn()
        there = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        given = [first]
        del first
        found = fold(net, given.pop())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {array.dtype for array in found.values()} == {np.dtype("f4")}
    # One filter of seven at a time, and some room.
    assert most < 1.4 * there


def test_what_does_not_change_stays_in_its_file(tmp_path: Path) -> None:
    """Others are read when they are folded."""
    net = network()
    parameters, _ = material(net)
    path, names, there, at = tmp_path / "weights", ("a", "d", "f"), dict[str, Any](), 0
    path.write_bytes(b"".join(parameters[name].tobytes() for name in names))
    file = KeptFile(path)
    for name in names:
        array = parameters[name]
        there[name] = FileArray.plain(file, at, array.shape, array.dtype)
        at += array.nbytes
    found, wanted = fold(net, parameters | there), fold(net, parameters)
    # The node that `d` leads to is not folded.
    assert [name for name, it in found.items() if isinstance(it, FileArray)] == ["d"]
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_network_without_batch_normalisation_is_itself() -> None:
    layer = {"conv": {"channels": 2, "size": 1, "norm": "instance"}}
    net = load_network({"layers": [layer]})
    assert folded(net) is net


@pytest.mark.quick(2)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("loss", ["square", "binomial_cross_entropy"])
def test_models_that_predict_fold(loss: str, precision: Any) -> None:
    net = network()
    parameters, x = material(net)
    found = []
    for training in (True, False):
        with Model(
            net,
            OUT,
            threads=2,
            loss=loss,
            training=training,
            hardware=Hardware(precision=precision),
        ) as model:
            model.set_parameters(parameters)
            found.append(model.forward(x))
            for name, array in model.parameters.items():
                np.testing.assert_array_equal(array, parameters[name])
            model.set_parameters({"one.scale": 2 * parameters["one.scale"]})
            found.append(model.forward(x))
            found.append(model.predict(x))
            assert np.array_equal(model.parameters["one.scale"], 2 * parameters["one.scale"])
    # Sums of this size, by whatever algorithm is fastest on this CPU; probabilities differ by a quarter of what
    # logits do.
    size = np.abs(found[1]).max()
    for trained, predicting in zip(found[:3], found[3:], strict=True):
        np.testing.assert_allclose(predicting, trained, rtol=0, atol=4e-6 * size)


def test_what_folds_takes_no_pass_of_its_own() -> None:
    net = network(function="linear")
    with Model(net, OUT, threads=1, conv="direct", training=False) as model:
        kinds = {task.owner for task in model.task_graph.tasks if task.kind == Kind.TRANSFER}
    assert kinds == {"sum", "two"}
