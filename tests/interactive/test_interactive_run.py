"""Runs from Python: arrays in, arrays out, with the bits that the commands write; refusals and their words."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from small_run import write_config, znnpy

import znnpy as package
from znnpy.config import load_config
from znnpy.errors import ArgumentError, ConfigError, RunError, VolumeError
from znnpy.interactive.run import Run

QUICK = ("training.iterations=30", "training.validation.patches=1", "run.threads=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("interactive")
    write_config(made)
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return package.train(folder / "config.yaml", overrides=QUICK, quiet=True)


def read(path: Path, name: str) -> Any:
    with h5py.File(path) as file:
        return file[name][:]


@pytest.mark.parametrize("borders", ["valid", "mirror"])
def test_predictions_are_those_that_the_command_writes(
    folder: Path, run: Run, tmp_path: Path, borders: Any
) -> None:
    raw = read(folder / "data.h5", "raw")
    found = run.predict(raw, borders=borders)
    line = ["--input", f"{folder}/data.h5:raw", "--output", tmp_path / "out.h5"]
    znnpy("predict", run.path, *line, "--borders", borders)
    assert np.array_equal(found, read(tmp_path / "out.h5", "prediction"))
    assert found.shape[1:] == raw.shape or borders == "valid"
    assert np.array_equal(found, run.predict(f"{folder}/data.h5:raw", borders=borders))


def test_masks_labels_and_logits(folder: Path, run: Run) -> None:
    raw = read(folder / "data.h5", "raw")
    mask = np.zeros(raw.shape, np.uint8)
    mask[4:9] = 1
    whole = run.predict(raw, borders="mirror")
    assert np.array_equal(run.predict(raw, mask=mask, borders="mirror"), whole * (mask != 0))
    labels = run.predict(raw, labels=True, borders="mirror")
    assert labels.dtype == np.uint8
    assert np.array_equal(labels, whole[0] > 0.5)
    logits = run.predict(raw, logits=True, borders="mirror")
    assert np.allclose(1 / (1 + np.exp(-logits.astype(np.float64))), whole, atol=1e-6)


def test_evaluations_are_the_commands(folder: Path, run: Run) -> None:
    line = ["--volume", f"{folder}/data.h5:raw", "--labels", f"{folder}/data.h5:labels", "--json"]
    line += ["--threshold", "0.4"]
    said = json.loads(znnpy("evaluate", run.path, *line).stdout)
    arrays = read(folder / "data.h5", "raw"), read(folder / "data.h5", "labels")
    (found,) = run.evaluate(*arrays, threshold=0.4)
    (default,) = run.evaluate(threshold=0.4)
    scores = said["evaluations"][0]["scores"]
    assert json.loads(json.dumps(found.record()))["scores"] == scores
    assert json.loads(json.dumps(default.record()))["scores"] == scores


def test_a_run_shows_itself(folder: Path, run: Run) -> None:
    shown = run.evaluate()._repr_html_()
    assert "average precision" in shown
    assert "data:image/png;base64," in shown
    whole = run._repr_html_()
    assert "30 of 30" in whole
    assert "data:image/png;base64," in whole
    assert run.iteration == 30
    assert {"conv1", "conv2"} <= set(run.parameters)
    assert [it["iteration"] for it in run.log if "loss" in it] == list(range(1, 31))
    titles = [axis.get_title() for axis in run.figure().axes]
    assert titles[:2] == ["Loss, mean of updates", "Validation: loss"]


def test_names_of_files_are_no_markup(folder: Path, run: Run) -> None:
    odd = folder / "<b>.h5"
    odd.write_bytes((folder / "data.h5").read_bytes())
    shown = run.evaluate(f"{odd}:raw", f"{odd}:labels")._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_a_mapping_and_a_loaded_config_train_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_config(folder / "config.yaml", (*QUICK, f"run.directory={tmp_path}/loaded"))
    assert package.train(loaded, quiet=True).path == tmp_path / "loaded"
    monkeypatch.chdir(folder)
    keys = {
        "network": {"layers": [{"conv": {"channels": 1, "size": 3}}]},
        "data": {"train": [{"image": "data.h5:raw", "labels": "data.h5:labels"}]},
        "training": {"iterations": 2, "output_shape": 4, "conv": "direct"},
        "run": {"directory": "mapped", "threads": 1},
    }
    assert package.train(keys, quiet=True).iteration == 2
    assert (folder / "mapped" / "config.yaml").exists()


SEVERAL = """
network:
  nodes:
    a: {kind: input, channels: 1}
    b: {kind: input, channels: 1}
    both: {kind: transfer, channels: 2, function: tanh}
    one: {kind: transfer, channels: 1}
    two: {kind: transfer, channels: 1}
  edges:
    c1: {kind: conv, from: a, to: both, size: 3}
    c2: {kind: conv, from: b, to: both, size: 3}
    c3: {kind: conv, from: both, to: one, size: 1}
    c4: {kind: conv, from: both, to: two, size: 1}
data:
  train: [{image: {a: data.h5:raw, b: data.h5:raw}, labels: data.h5:labels}]
training: {iterations: 2, output_shape: 4, conv: direct}
run: {directory: several, threads: 1}
"""


def test_several_inputs_and_outputs_go_by_name(folder: Path) -> None:
    (folder / "several.yaml").write_text(SEVERAL)
    run = package.train(folder / "several.yaml", quiet=True)
    raw, labels = (read(folder / "data.h5", name) for name in ("raw", "labels"))
    images = {"a": raw, "b": raw}
    one, two = (run.predict(images, node=node, borders="mirror") for node in ("one", "two"))
    assert one.shape == two.shape == (1, *raw.shape)
    assert not np.array_equal(one, two)
    assert [it.output for it in run.evaluate(images, labels)] == ["one", "two"]
    with pytest.raises(VolumeError, match="several inputs; give a mapping of a, b"):
        run.predict(raw, node="one")
    with pytest.raises(ConfigError, match="no image for input 'b'"):
        run.predict({"a": raw}, node="one")
    with pytest.raises(ArgumentError, match="must be one of one, two; found None"):
        run.predict(images)


def test_an_interrupted_training_goes_on(folder: Path, tmp_path: Path) -> None:
    settings = (f"run.directory={tmp_path}/run", "training.iterations=100000", "run.threads=1")
    log = tmp_path / "run" / "log.jsonl"

    def interrupt() -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until and not (log.exists() and log.stat().st_size > 2000):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match=r"saved in .*the same call goes on"):
        package.train(folder / "config.yaml", overrides=settings, quiet=True)
    thread.join()
    done = package.open_run(tmp_path / "run").iteration
    assert 0 < done < 100000
    more = (*settings, f"training.iterations={done + 3}")
    assert package.train(folder / "config.yaml", overrides=more, quiet=True).iteration == done + 3


def test_rooms_are_functions_however_they_are_named() -> None:
    import znnpy.segment.job
    import znnpy.train.session

    assert znnpy.train.session.train is not package.train
    assert callable(package.train)
    assert callable(package.segment)
    assert {"train", "segment", "score", "open_run"} <= set(dir(package))


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda run, raw: package.train(3), ArgumentError, "must be a mapping"),
    (lambda run, raw: package.train({}), ConfigError, "network: is missing"),
    (lambda run, raw: package.train(run.config, overrides=["a=1"]), ArgumentError, "overrides"),
    (lambda run, raw: package.open_run("nowhere"), RunError, "nowhere is not a run directory"),
    (
        lambda run, raw: package.open_run(3),
        ArgumentError,
        "path: must be that of a run directory; found 3",
    ),
    (lambda run, raw: package.open_run(run.path, checkpoint="7"), ArgumentError, "found '7'"),
    (lambda run, raw: package.open_run(run.path, checkpoint=7), RunError, "7"),
    (lambda run, raw: run.predict(raw[0]), VolumeError, r"image: expected 3 axes"),
    (lambda run, raw: run.predict([["a"]]), VolumeError, "an array of numbers"),
    (lambda run, raw: run.predict("none.h5:raw"), VolumeError, "none.h5 does not exist"),
    (lambda run, raw: run.predict(np.stack([raw] * 2)), VolumeError, "image has 2 channel"),
    (lambda run, raw: run.predict({"x": raw}), VolumeError, "image: names x"),
    (lambda run, raw: run.predict(raw, mask=raw[1:]), VolumeError, "mask has"),
    (lambda run, raw: run.predict(raw, node="none"), ArgumentError, "node: must be one of"),
    (lambda run, raw: run.predict(raw, borders="all"), ArgumentError, "found 'all'"),
    (lambda run, raw: run.predict(raw, labels=True, logits=True), ArgumentError, "logits"),
    (lambda run, raw: run.predict(raw * np.float32(np.nan)), VolumeError, "no finite value"),
    (lambda run, raw: run.evaluate(raw), ArgumentError, "go together"),
    (lambda run, raw: run.evaluate(raw, raw[1:]), VolumeError, "labels has"),
    (lambda run, raw: run.evaluate(raw, raw, threshold=2), VolumeError, "threshold: must be"),
    (lambda run, raw: run.evaluate(raw, raw, min_size=10**20), VolumeError, "min_size: must be"),
    (lambda run, raw: run.evaluate(raw, raw, grow=np.nan), VolumeError, "grow: must be"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=lambda it: str(it)[:20])
def test_refusals_say_what_would_be_right(
    folder: Path, run: Run, call: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call(run, read(folder / "data.h5", "raw"))


def test_ranks_are_told_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(RunError, match="mpiexec -n N znnpy train"):
        package.train({})
