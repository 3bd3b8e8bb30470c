"""Voxels that are no numbers: refused by train, predict and evaluate, or taken as the mean if asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from called import status_of
from jobs import small

from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume
from znnpy.errors import PredictionError
from znnpy.infer import tiling
from znnpy.infer.provenance import norms_record

CONFIG = """
network: {layers: [{conv: {channels: 3, size: [1, 3, 3], function: relu}}, {conv: {channels: 1, size: 2}}]}
data: {train: [{image: data.h5:raw, labels: data.h5:on}], target: mask}
training: {iterations: 2, output_shape: [2, 4, 4], conv: direct, learning_rate: 0.001}
run: {directory: run, threads: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    raw = np.random.default_rng(0).normal(5, 2, (8, 14, 14)).astype(np.float32)
    bad = raw.copy()
    bad[3, 4, 5], bad[6, 0, 1] = np.nan, np.inf
    far = raw.copy()
    far[2, 3, 4] = 1e6
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"], file["bad"], file["far"], file["on"] = raw, bad, far, raw > 5
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    return tmp_path


def predict(*words: str) -> tuple[object, Any]:
    """The exit status, and the prediction if there is one."""
    code = status_of("predict", "run", "--output", "out.h5", "--patch", "4,6,6", *words)
    if not Path("out.h5").exists():
        return code, None
    with h5py.File("out.h5") as file:
        return code, file["prediction"][...]


@pytest.mark.slow
def test_train_refuses_or_replaces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "data.train.0.image=data.h5:bad"
    assert status_of("train", "config.yaml", "--set", bad) == 1
    words = "data.h5:bad: 2 values are NaN, infinite or too large for float32, the first nan at (z, y, x) = (3, 4, 5)"
    assert words in capsys.readouterr().err
    assert not Path("run/checkpoints").exists()
    replaced = "data.replace_nonfinite=true"
    assert status_of("train", "config.yaml", "--set", bad, "--set", replaced) == 0
    assert status_of("view", "run", "--output", "pictures") == 0
    code, found = predict("--input", "data.h5:bad")  # as trained
    assert code == 0
    assert np.isfinite(found).all()


@pytest.mark.quick(1)
@pytest.mark.parametrize("normalize", ["mean_std", "none"])
def test_predict_and_evaluate_refuse_or_replace(
    folder: Path, capsys: pytest.CaptureFixture[str], normalize: str
) -> None:
    assert status_of("train", "config.yaml", "--set", f"data.normalize={normalize}") == 0
    bad = ["--input", "data.h5:bad"]
    assert predict(*bad) == (1, None)
    assert "(3, 4, 5), channel 0" in capsys.readouterr().err
    assert not list(Path().glob("*.partial*")), "which would be in the way of another image"
    code, found = predict(*bad, "--replace-nonfinite")
    assert code == 0
    assert np.isfinite(found).all()
    assert predict(*bad, "--replace-nonfinite", "--overwrite")[0] == 0
    scored = ["evaluate", "run", "--volume", "data.h5:bad", "--labels", "data.h5:on"]
    assert status_of(*scored) == 1
    assert "(3, 4, 5), channel 0" in capsys.readouterr().err
    assert status_of(*scored, "--replace-nonfinite") == 0


@pytest.mark.parametrize(
    ("dtype", "inference"), [("float32", {}), ("uint8", {}), ("uint8", {"window": 4})]
)
def test_what_the_network_makes_infinite_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, inference: dict[str, Any]
) -> None:
    """Weights are finite and too large: as uint8 nobody would see it."""
    if inference:
        monkeypatch.setattr(tiling, "patch_dependence", lambda network: "so the test says")
    tiny = small(tmp_path, inference=inference)
    large = {name: array * np.float32(1e30) for name, array in tiny.weights.parameters.items()}
    broken = replace(tiny, weights=replace(tiny.weights, parameters=large))
    with pytest.raises(PredictionError, match=r"NaN or infinite: its weights have grown too large"):
        broken.run(dtype=np.dtype(dtype), patch=None)
    assert not (tmp_path / "out.h5").exists()
    tiny.run(dtype=np.dtype(dtype), patch=None, overwrite=True)


def test_a_prediction_goes_on_only_with_the_same_replacement() -> None:
    volume = ArrayVolume(np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32))
    plain, replacing = (
        norms_record({"input": normalisation(volume, replace=replace)}) for replace in (False, True)
    )
    assert plain != replacing
    assert plain["input"]["shift"] == replacing["input"]["shift"]


def test_an_absurd_voxel_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("train", "config.yaml") == 0
    assert predict("--input", "data.h5:far")[0] == 0
    errors = capsys.readouterr().err
    assert "znnpy: warning: " in errors
    assert "1e+06 at (z, y, x) = (2, 3, 4) lies" in errors
