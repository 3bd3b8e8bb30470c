"""Every target goes through training, validation, evaluation, prediction and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from called import status_of
from scipy.ndimage import label

CONFIG = """
network: {layers: [{conv: {channels: 3, size: [1, 3, 3], function: relu}}, {conv: {channels: %d, size: 2}}]}
data:
  train: [&v {image: data.h5:raw, labels: data.h5:%s, mask: data.h5:mask}]
  validation: [*v]
  target: %s
training: {iterations: 2, output_shape: [2, 4, 4], conv: direct, loss: %s, precision: %s,
           rebalance: %s, learning_rate: 0.001, validation: {every: 1, patches: 2}}
run: {directory: run, threads: 1, log_every: 1}
"""
CASES = [
    (1, "bytes", "mask", "binomial_cross_entropy", "float32", "patch"),
    (2, "two", "mask", "binomial_cross_entropy", "float64", "volume"),
    (2, "two", "mask", "softmax", "float32", "none"),
    (1, "bytes", "{kind: image, scale: 0.00392157}", "binomial_cross_entropy", "float32", "volume"),
    (1, "gaps", "{kind: image, scale: -3}", "square", "float64", "none"),
    (1, "gaps", "image", "binomial_cross_entropy", "float32", "patch"),
    (2, "shares", "image", "softmax", "float64", "none"),
    (2, "classes", "labels", "softmax", "float32", "volume"),
    (1, "gaps", "labels", "square", "float32", "patch"),
]
# The function of the output goes with the loss.
OTHERS = [
    ("logistic", 1, "bytes", "mask", "dice", "float32", "none"),
    ("logistic", 2, "two", "mask", "{kind: dice, batch: true, smooth: 1}", "float64", "volume"),
    ("softmax", 2, "holes", "{kind: labels, ignore: 255}", "dice", "float32", "none"),
    ("linear", 2, "sparse", "{kind: labels, first: 1}", "softmax", "float32", "volume"),
    ("linear", 1, "bytes", "mask", "{kind: bce_dice, bce: 0.5}", "float32", "patch"),
    ("linear", 2, "holes", "{kind: labels, ignore: 255}", "ce_dice", "float32", "none"),
    ("logistic", 1, "gaps", "image", "{kind: focal, alpha: 0.25}", "float32", "none"),
    ("softmax", 2, "classes", "labels", "{kind: focal, gamma: 1}", "float32", "none"),
    ("logistic", 3, "objects", "affinity", "malis", "float32", "none"),
    ("linear", 2, "objects", "{kind: affinity, offsets: [[0, 0, 1], [0, -2, 1]]}",
     "{kind: malis, offsets: [[0, 0, 1], [0, -2, 1]], positive: 0.2}", "float64", "none"),
    ("linear", 2, "holes", "{kind: labels, ignore: 255}",
     "{kind: softmax, label_smoothing: 0.1, class_weights: [1, 3]}", "float32", "volume"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(8, 14, 14)).astype(np.float32)
    on = raw > 0.2
    mask = np.ones(raw.shape, np.uint8)
    mask[:, 11:] = 0
    gaps = np.where(mask, on * 0.75, np.nan).astype(np.float32)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"], file["mask"], file["gaps"] = raw, mask, gaps
        file["bytes"], file["classes"] = on * np.uint8(255), on.astype(np.float32)
        file["two"] = np.stack([on, ~on]) * np.uint8(255)
        holes = on.astype(np.uint8)
        holes[:, :5] = 255
        file["holes"] = holes
        file["sparse"] = np.where(holes == 255, 0, holes + 1).astype(np.uint8)
        file["objects"] = label(on)[0].astype(np.uint32)
        file["shares"] = np.stack([gaps, 1 - gaps])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def znnpy(*words: str) -> None:
    """A command that must succeed."""
    assert status_of(*words) == 0, words


@pytest.mark.slow
@pytest.mark.parametrize("case", [("linear", *case) for case in CASES] + OTHERS)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_a_target_goes_all_the_way(
    folder: Path, capsys: pytest.CaptureFixture[str], case: tuple[Any, ...]
) -> None:
    text = CONFIG.replace("size: 2}", "size: 2, function: %s}") % (case[1], case[0], *case[2:])
    Path("config.yaml").write_text(text)
    znnpy("train", "config.yaml")
    records = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in records if "loss" in r]
    losses += [r["validation"]["loss"] for r in records if "validation" in r]
    assert len(losses) == 4
    assert 0 < max(losses) < 20
    assert min(losses) >= 0
    shown = ["voxel_error" in r.get("validation", r) for r in records]
    assert shown == [case[4] != "square"] * len(records)
    assert ("  voxel error " in capsys.readouterr().err) == (case[4] != "square")
    znnpy("evaluate", "run")
    score = "mean squared error" if case[4] == "square" else "voxel error"
    assert score in capsys.readouterr().out
    znnpy("view", "run", "--output", "pictures")
    assert list(Path("pictures").glob("*.png"))
    znnpy("predict", "run", "--input", "data.h5:raw", "--output", "out.h5", "--patch", "4,6,6")
    with h5py.File("out.h5") as file:
        assert np.isfinite(file["prediction"][...]).all()


def test_numbers_of_ilastik_are_those_without_a_dead_class(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same losses as of classes from 0 on with a number to ignore; labels are predicted as they were numbered."""
    losses = []
    for name, labels, target in (
        ("other", "holes", "{kind: labels, ignore: 255}"),
        ("run", "sparse", "{kind: labels, first: 1}"),
    ):
        text = CONFIG % (2, labels, target, "softmax", "float32", "volume")
        Path("config.yaml").write_text(text.replace("directory: run", f"directory: {name}"))
        znnpy("train", "config.yaml")
        records = map(json.loads, Path(name, "log.jsonl").read_text().splitlines())
        losses.append([(r.get("loss"), r.get("validation", {}).get("loss")) for r in records])
    assert losses[0] == losses[1]
    for run in ("other", "run"):
        znnpy("predict", run, "--input", "data.h5:raw", "--output", f"{run}.h5", "--labels")
    with h5py.File("run.h5") as file, h5py.File("other.h5") as other:
        found = file["volumes/labels/neuron_ids"][...]
        assert np.array_equal(found, other["volumes/labels/neuron_ids"][...] + 1)
    assert found.dtype == np.uint8
    znnpy("predict", "run", "--input", "data.h5:raw", "--output", "values.h5")
    znnpy("segment", "values.h5", "--output", "o.h5", "--method", "classes", "--first", "1")
    with h5py.File("o.h5") as file:
        assert np.array_equal(found, file["volumes/labels/neuron_ids"][...])
    line = ("predict", "run", "--input", "data.h5:raw", "--output", "x.h5", "--labels", "--logits")
    assert status_of(*line) == 2
    assert "--labels goes without --logits" in capsys.readouterr().err


def test_first_is_for_losses_of_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CONFIG % (1, "gaps", "{kind: labels, first: 1}", "square", "float32", "none")
    Path("config.yaml").write_text(text)
    assert status_of("train", "config.yaml") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "data.target.first: square takes labels for values" in said
