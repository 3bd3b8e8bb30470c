"""A net of one's own at a voxel size of its own: scans are resampled there, and labels come back in their voxels."""

from __future__ import annotations

from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from called import status_of

AFFINE = np.diag([0.5, 0.7, 2.0, 1.0])
CONFIG = """
network:
  layers:
    - conv: {channels: 4, size: 3, padding: same, function: relu}
    - conv: {channels: 3, size: 3, padding: same}
data:
  train: [{image: image.nii.gz, labels: labels.nii.gz}]
  test: [{image: image.nii.gz, labels: labels.nii.gz}]
  target: labels
  prepare: {spacing: [1.0e+6, 1.0e+6, 1.0e+6], crop: false}
  normalize: {kind: percentiles, low: 2, high: 98, per: slice}
training: {output_shape: 6, loss: softmax, iterations: 3, conv: direct}
run: {directory: run, threads: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (8, 8, 5)).repeat(3, 0).repeat(3, 1).repeat(3, 2).astype(np.uint8)
    image = (labels * 80 + rng.integers(0, 9, labels.shape)).astype("i2")
    for name, array in (("image", image), ("labels", labels)):
        nibabel.Nifti1Image(array, AFFINE).to_filename(tmp_path / f"{name}.nii.gz")
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("check", "config.yaml") == 0
    assert status_of("train", "config.yaml") == 0
    assert "test" in capsys.readouterr().out
    line = ("predict", "run", "--input", "image.nii.gz", "--output")
    assert status_of(*line, "labels-found.nii.gz") == 0
    found = nibabel.load("labels-found.nii.gz")
    assert found.shape == (24, 24, 15)
    np.testing.assert_allclose(found.affine, AFFINE, atol=1e-6)
    assert status_of("evaluate", "run") == 0


def logits(name: str, *settings: str) -> np.ndarray:
    more = [word for setting in settings for word in ("--set", setting)]
    line = ("predict", "run", "--input", "image.nii.gz", "--output", name, "--logits")
    assert status_of(*line, *more) == 0
    with h5py.File(name) as file:
        found: np.ndarray = file["logits"][:]
    return found


def test_what_was_prepared_is_normalised(folder: Path) -> None:
    """Without resampling it does not matter which of both keys says it."""
    assert status_of("train", "config.yaml") == 0
    here = logits("a.h5", "data.prepare={crop: false}", "data.normalize=range")
    there = logits("b.h5", "data.prepare={crop: false, normalize: [range]}", "data.normalize=none")
    plain = logits("c.h5", "data.prepare={crop: false}", "data.normalize=none")
    np.testing.assert_allclose(here, there, atol=1e-4)
    assert np.abs(here - plain).max() > 1


def test_both_at_once_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for prepare, normalize, words in (
        ("{normalize: [range]}", "range", "must be none: prepare.normalize normalises scans"),
        ("{crop: false}", "ct", "must not be ct where scans are prepared"),
        ("{normalize: []}", "none", "data.prepare.normalize"),
    ):
        settings = (f"data.prepare={prepare}", f"data.normalize={normalize}")
        line = [word for setting in settings for word in ("--set", setting)]
        assert status_of("check", "config.yaml", *line) != 0
        assert words in " ".join(capsys.readouterr().err.split())
