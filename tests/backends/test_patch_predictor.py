"""The network of a run as a function of patches: values beside SciPy's, sizes, kinds, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from called import status_of
from exported_runs import run_of
from nets_of_backends import PADDED, SIGMOID, VALID, by_scipy, probabilities, run_folder

import znnpy
from znnpy.backends import PatchPredictor
from znnpy.backends.shaped_models import KEPT
from znnpy.errors import ArgumentError, ConfigError, RunError, ShapeError
from znnpy.interop.model import ImportedModel
from znnpy.interop.run import write_run


def patches(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("padded", [True, False])
def test_values_are_those_of_scipy_for_every_size(padded: bool, tmp_path: Path) -> None:
    path = run_folder(tmp_path / "run", PADDED if padded else VALID)
    weights = znnpy.open_run(path).parameters
    with PatchPredictor(path, threads=1) as net:
        for number, size in enumerate([(4, 9, 8), (2, 7, 5), (5, 6, 3), (4, 9, 8)]):
            given = patches(2, 1, *size)
            wanted = np.stack([by_scipy(weights, patch, padded) for patch in given])
            found = net(given)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=str(number))


@pytest.mark.parametrize("function", ["linear", "logistic"])
def test_logits_and_probabilities(function: str, tmp_path: Path) -> None:
    first, last = PADDED["layers"]
    net = {"layers": [first, {"conv": {**last["conv"], "function": function}}]}
    run = run_folder(tmp_path / "run", net, training={"output_shape": [4, 6, 6], **SIGMOID})
    given = patches(1, 1, 3, 5, 6)
    wanted = by_scipy(znnpy.open_run(run).parameters, given[0], True)
    with PatchPredictor(str(run), threads=1, probabilities=True) as net:
        np.testing.assert_allclose(net(given)[0], probabilities(wanted), atol=1e-5)
    with PatchPredictor(run, threads=1) as net:
        np.testing.assert_allclose(net(given)[0], wanted, atol=1e-5)


def test_a_flat_patch_is_one_slice(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "run")
    with PatchPredictor(path, threads=1) as net:
        flat = patches(2, 1, 9, 8)
        np.testing.assert_array_equal(net(flat), net(flat[:, :, None])[:, :, 0])
        assert net.channels == 1
        assert net.eval() is net
        assert net.to("cpu") is net


def test_patches_of_integers_and_turned_ones(tmp_path: Path) -> None:
    with PatchPredictor(run_folder(tmp_path / "run"), threads=1) as net:
        given = np.random.default_rng(0).integers(0, 200, (1, 1, 3, 6, 7)).astype(np.uint8)
        np.testing.assert_array_equal(net(given), net(given.astype(np.float64)))
        turned = given[..., ::-1]
        np.testing.assert_array_equal(net(turned), net(np.ascontiguousarray(turned)))


def test_memory_of_few_sizes_is_kept(tmp_path: Path) -> None:
    with PatchPredictor(run_folder(tmp_path / "run"), threads=1) as net:
        for size in range(5, 5 + KEPT + 2):
            net(patches(1, 1, 2, size, 5))
        assert len(net._models._models) == KEPT


def test_members_are_averaged(tmp_path: Path) -> None:
    one, two = (
        run_of(tmp_path / str(seed), PADDED, seed).saved.weights.parameters for seed in (0, 1)
    )
    values = {"network": PADDED, "training": {"output_shape": [4, 6, 6]}}
    write_run(ImportedModel("Two", values, {"a": lambda: one, "b": lambda: two}), tmp_path / "run")
    given = patches(1, 1, 3, 6, 5)
    wanted = [by_scipy(weights, given[0], True) for weights in (one, two)]
    with PatchPredictor(tmp_path / "run", threads=1) as net:
        for _ in range(2):
            np.testing.assert_allclose(net(given)[0], np.mean(wanted, axis=0), atol=1e-5)


def test_what_is_no_patch_is_refused(tmp_path: Path) -> None:
    with PatchPredictor(run_folder(tmp_path / "run", VALID), threads=1) as net:
        with pytest.raises(ShapeError, match=r"must be \(n, 1, z, y, x\).*\(1, 2, 4, 9, 9\)"):
            net(patches(1, 2, 4, 9, 9))
        with pytest.raises(ShapeError, match=r"found shape \(4, 9, 9\)"):
            net(patches(4, 9, 9))
        with pytest.raises(ShapeError, match="found shape"):
            net(patches(0, 1, 4, 9, 9))
        with pytest.raises(ShapeError, match="input"):
            net(patches(1, 1, 1, 9, 9))
        with pytest.raises(ArgumentError, match="found list"):
            net([[[[[1.0]]]]])
        with pytest.raises(ArgumentError, match="found ndarray"):
            net(np.array([[[[["a"]]]]]))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing"):
        PatchPredictor(tmp_path / "nothing")


def test_networks_of_several_inputs_are_refused(tmp_path: Path) -> None:
    network = {
        "nodes": {
            "a": {"kind": "input", "channels": 1},
            "b": {"kind": "input", "channels": 1},
            "output": {"kind": "transfer", "channels": 1},
        },
        "edges": {
            f"from_{name}": {"kind": "conv", "from": name, "to": "output", "size": 1}
            for name in ("a", "b")
        },
    }
    with pytest.raises(ConfigError, match="inputs a, b"):
        PatchPredictor(run_folder(tmp_path / "run", network))


def test_models_of_other_programs_are_taken_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    run = run_folder(tmp_path / "run", training={"output_shape": [4, 6, 6], **SIGMOID})
    words = ["--format", "onnx", "--output", tmp_path / "net.onnx", "--logits"]
    assert status_of("export", run, *words) == 0
    given = patches(1, 1, 4, 7, 6)
    with (
        PatchPredictor(run, threads=1) as ours,
        PatchPredictor(tmp_path / "net.onnx", threads=1) as net,
    ):
        np.testing.assert_allclose(net(given), ours(given), atol=1e-5)
