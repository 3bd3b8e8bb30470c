"""Packages of bioimage.io that `znnpy export` writes: their test tensors by ONNX Runtime, and their own validator."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_runs import run_of
from nnunet_model import folder_of
from nnunet_plans import Recipe
from ruamel.yaml import YAML

from znnpy.interop.export.bioimageio_preparation import prepared
from znnpy.interop.export.formats import export
from znnpy.interop.export.trained import Trained
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
CLIP = {"schemes": ("CTNormalization",), "masks": (False,)}
RECIPES: dict[str, Recipe] = {
    "plain": Recipe(patch=(8, 16, 16), widths=(4, 6), folds=(0, 1)),
    "regions": Recipe(
        patch=(8, 16, 16), widths=(4, 6), residual=True, regions=(1, 2),
        labels={"background": 0, "all": [1, 2], "core": 2}, **CLIP,
    ),
    "flat": Recipe(patch=(16, 16), widths=(4, 6), spacing=(1.0, 2.0), mirrored=(1,)),
}  # fmt: skip


@pytest.fixture(params=RECIPES)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Trained:
    write_run(read_model(folder_of(RECIPES[request.param], tmp_path / "m")), tmp_path / "run")
    return Trained(read_run(tmp_path / "run", Quiet()))


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    rdf: dict[str, Any] = YAML(typ="safe").load(members["rdf.yaml"])
    return rdf, members


def named(rdf: Any) -> list[dict[str, str]]:
    """All entries of files."""
    if isinstance(rdf, list):
        return [it for one in rdf for it in named(one)]
    if not isinstance(rdf, dict):
        return []
    own = [rdf] if "sha256" in rdf else []
    return own + [it for one in rdf.values() for it in named(one)]


def test_test_tensors_are_what_the_weights_make(trained: Trained, tmp_path: Path) -> None:
    (path,) = export(trained, "bioimageio", tmp_path / "net.zip")
    rdf, members = read(path)
    files = named(rdf)
    assert {it["source"] for it in files} == members.keys() - {"rdf.yaml"}
    for it in files:
        assert sha256(members[it["source"]]).hexdigest() == it["sha256"]
    (given,), (made,) = rdf["inputs"], rdf["outputs"]
    image, wanted = (
        np.load(io.BytesIO(members[it["test_tensor"]["source"]])) for it in (given, made)
    )
    session = runtime.InferenceSession(members["weights.onnx"], providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {given["id"]: prepared(image, given["preprocessing"])})
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.ptp(wanted) > 0.1
    (again,) = export(trained, "bioimageio", tmp_path / "again.zip")
    assert again.read_bytes() == path.read_bytes()


def test_the_validator_passes(trained: Trained, tmp_path: Path, monkeypatch: Any) -> None:
    """All of it, and both kinds of weights in several sizes and batches, by their test command."""
    pytest.importorskip("bioimageio.core")
    monkeypatch.setenv("BIOIMAGEIO_CACHE_PATH", str(tmp_path / "cache"))
    from bioimageio.core import test_model

    (path,) = export(trained, "bioimageio", tmp_path / "net.zip")
    for weights in ("onnx", "pytorch_state_dict"):
        summary = test_model(os.fspath(path), weight_format=weights)
        assert summary.status == "passed", summary.format()


LAYERS = [
    {"conv": {"channels": 4, "size": [1, 3, 3], "norm": "batch", "function": "relu"}},
    {"dropout": 0.8},
    {"max_pool": [1, 2, 2]},
    {"conv": {"channels": 1, "size": [3, 2, 2]}},
]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("logits", [False, True])
def test_a_net_without_padding_passes(
    tmp_path: Path, logits: bool, precision: str, monkeypatch: Any
) -> None:
    pytest.importorskip("bioimageio.core")
    monkeypatch.setenv("BIOIMAGEIO_CACHE_PATH", str(tmp_path / "cache"))
    from bioimageio.core import test_model

    data = {"normalize": {"kind": "fixed", "mean": [0.5], "deviation": [2.0]}}
    training = {"output_shape": [4, 6, 6], "precision": precision}
    net = {"input": 2, "layers": LAYERS}
    found = run_of(tmp_path / "run", net, data=data, training=training)
    (path,) = export(replace(found, logits=logits), "bioimageio", tmp_path / "net.zip")
    for weights in ("onnx", "pytorch_state_dict"):
        summary = test_model(os.fspath(path), weight_format=weights)
        assert summary.status == "passed", summary.format()
