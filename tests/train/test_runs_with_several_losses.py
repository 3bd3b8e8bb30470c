"""Runs whose outputs learn by losses of their own: what is logged, shown, watched, shifted and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import state, znnpy

from znnpy.config import load_config
from znnpy.data.config_volumes import make_targets
from znnpy.errors import ConfigError
from znnpy.network import trained_network, training_losses
from znnpy.train.calibration import found_shifts, remark
from znnpy.train.display.history import read_history
from znnpy.train.progress import Plain, Quiet, Status
from znnpy.train.session import train

CONFIG = """
network:
  unet: {widths: [4, 8], down: 2, outputs: 3, heads: {lsds: 10, classes: 3}}
data:
  train: [&v {image: "v.h5:raw", labels: {output: "v.h5:objects", lsds: "v.h5:objects", classes: "v.h5:classes"}}]
  validation: [*v]
  target: affinity
training:
  iterations: 4
  batch: 2
  microbatch: 1
  output_shape: [4, 8, 8]
  conv: direct
  loss: bce_dice
  outputs:
    lsds: {weight: 0.5, loss: square, target: {kind: lsd, sigma: [1, 2, 2]}}
    classes:
      weight: 0.25
      loss: {kind: softmax, class_weights: [1, 2, 4]}
      target: {kind: labels, ignore: 255}
  optimizer: adam
  validation: {every: 2, patches: 2}
inference: {window: [8, 16, 16]}
run: {directory: run, threads: 2, log_every: 1}
"""
ALIKE = (
    "network.unet={widths: [4, 8], down: 2, outputs: 3, heads: {more: 3}}",
    "data.train=[{image: 'v.h5:raw', labels: 'v.h5:objects'}]",
    "data.validation=[]",
    "training.outputs={more: {weight: 0.5}}",
)
NAMES = ("output", "lsds", "classes")
RUN = "import sys; from znnpy.cli import main; main(sys.argv[1:])"


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes with walls, in three classes; a part that nobody has labelled."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    objects = np.kron(np.arange(1, 28).reshape(3, 3, 3), np.ones((4, 8, 8), int))
    classes = objects % 3
    raw = 60 * classes + rng.normal(0, 10, objects.shape)
    classes[:2] = 255
    with h5py.File("v.h5", "w") as file:
        file["raw"], file["objects"] = raw.clip(0, 255).astype(np.uint8), objects.astype(np.uint32)
        file["classes"] = classes.astype(np.uint8)
    Path("c.yaml").write_text(CONFIG)


def records(run: str = "run") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "log.jsonl").read_text().splitlines()]


def test_the_log_has_each_loss_beside_their_sum() -> None:
    znnpy("train", "--quiet", "c.yaml")
    each = [f"loss.{name}" for name in NAMES]
    updates = [it for it in records() if "loss" in it]
    validations = [it["validation"] for it in records() if "validation" in it]
    assert len(updates) == 4
    assert len(validations) == 2
    for record in updates + validations:
        assert [key for key in record if key.startswith("loss")] == ["loss", *each]
        assert record["loss"] == pytest.approx(sum(record[key] for key in each))
        assert min(record[key] for key in each) > 0
    history = read_history(Path("run"))
    assert [it[1] for it in history.losses["lsds"].points] == [it["loss.lsds"] for it in updates]
    page = Path("run/run.html").read_text()
    for name in NAMES:
        assert f"Loss of output {name}" in page
    assert "Validation: loss." not in page
    scores = {
        it["output"]: it for it in json.loads(Path("run/result.json").read_text())["evaluations"]
    }
    assert set(scores) == set(NAMES)
    znnpy(
        "predict", "run", "--input", "v.h5:raw", "--node", "classes", "--labels", "--output", "c.h5"
    )
    with h5py.File("c.h5") as file:
        assert file["volumes/labels/neuron_ids"][()].max() <= 2


def test_one_loss_of_all_is_logged_as_before() -> None:
    """Keys and bits: also where the config says the same loss for each."""
    train(load_config("c.yaml", ALIKE), reporter=Quiet())
    own = "training.outputs={more: {weight: 0.5, loss: bce_dice}, output: {loss: bce_dice}}"
    train(load_config("c.yaml", (*ALIKE, own, "run.directory=apart")), reporter=Quiet())
    assert set(records()[0]) == {"iteration", "loss", "voxel_error", "learning_rate", "time"}
    assert set(records("apart")[0]) == set(records()[0]) | {"loss.output", "loss.more"}
    assert state(Path("run"))[1] == state(Path("apart"))[1]


def test_progress_tells_each(capsys: pytest.CaptureFixture[str]) -> None:
    plain = Plain()
    plain.start(2, 0)
    plain.update(Status(1, 0.75, None, 1.0, 1.0, {"a": 0.5, "b": 0.25}))
    assert "loss 0.7500 (a 0.5000, b 0.2500)  1.00 updates/s" in capsys.readouterr().err


def test_voxels_to_ignore_count_at_their_output_alone() -> None:
    """Classes of the whole volume to ignore: nothing is lost there, and all else is learned as with a weight of 0."""
    with h5py.File("v.h5", "r+") as file:
        file["classes"][...] = 255
    runs = {}
    for weight in (0.25, 0):
        name = f"run{weight}"
        config = load_config(
            "c.yaml",
            (
                f"training.outputs.classes.weight={weight}",
                "data.validation=[]",
                f"run.directory={name}",
            ),
        )
        train(config, reporter=Quiet())
        assert {it["loss.classes"] for it in records(name) if "loss" in it} == {0.0}
        runs[weight] = state(Path(name))[1]
    assert runs[0.25] == runs[0]


@pytest.mark.slow
def test_ranks_have_the_bits_of_one_process() -> None:
    words = ["train", "c.yaml", "--set", "run.threads=1"]
    znnpy(*words, "--set", "run.directory=one")
    line = mpiexec(2, sys.executable, "-c", RUN, *words, "--set", "run.directory=two")
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert state(Path("one")) == state(Path("two"))


def test_shifts_are_those_of_weighed_outputs() -> None:
    config = load_config("c.yaml")
    network = trained_network(config)
    shifts = found_shifts(config, network, None)  # type: ignore[arg-type]  # weights of classes are known without
    assert set(shifts) == {"classes"}
    np.testing.assert_allclose(shifts["classes"], np.log([1, 2, 4]))
    said = remark(config, network, shifts) or ""
    assert said.startswith("training.outputs.classes.loss weighs classes")
    assert "but for" not in said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.outputs={lsd: {loss: square}}", r"outputs.lsd: the network has no such output; it has output, lsds"),
        ("training.outputs.lsds.loss=sqare", r"outputs.lsds.loss.kind: is 'sqare'; did you mean 'square'\?"),
        ("training.outputs.lsds.loss={kind: square, gamma: 2}", r"outputs.lsds.loss.gamma: unknown key"),
        ("training.outputs.lsds.loss=softmax", r"outputs.lsds.loss: softmax lets one channel of a voxel win"),
        ("training.outputs.output.loss=focal", r"outputs.output.loss: output 'output' has the function linear"),
        ("training.outputs.output.loss=softmax", r"outputs.output.loss: softmax lets one channel .* affinities"),
        ("training.outputs.classes.loss={kind: softmax, class_weights: [1, 2]}",
         r"outputs.classes.loss: softmax has 2 class_weights, but output 'classes' has 3"),
        ("training.outputs.classes.loss=malis", r"outputs.classes.loss: malis joins voxels .* is no affinity"),
        ("training.loss=softmax", r"training.loss: softmax lets one channel of a voxel win"),
        ("training.outputs.classes.target={kind: labels, first: 1}", None),
        ("training.outputs.classes={target: {kind: labels, first: 1}}",
         r"outputs.classes.target.first: bce_dice takes labels for values"),
        ("training.outputs.lsds.weight=-1", r"outputs.lsds.weight: must be at least 0"),
        ("training.outputs.lsds.weight=.nan", r"outputs.lsds.weight: must be a finite number"),
    ],
)  # fmt: skip
def test_refusals_name_the_key_of_the_output(setting: str, words: str | None) -> None:
    def read() -> None:
        config = load_config("c.yaml", (setting,))
        network = trained_network(config)
        training_losses(config, network)
        make_targets(config, network)

    if words is None:
        read()
    else:
        with pytest.raises(ConfigError, match=rf"training\.{words.removeprefix('training.')}"):
            read()
