"""Event files for TensorBoard hold what the log holds; without their package one line says what to install."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import write_config, znnpy

SETS = ("training.iterations=30", "run.tensorboard=true", "run.threads=1")
WORDS = [word for it in SETS for word in ("--set", it)]


def events(folder: Path) -> Iterator[Any]:
    """The events of all files, by their own description (TFRecord: length, its checksum, data, its checksum)."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield proto.Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4


def test_event_files_hold_what_the_log_holds(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    run = tmp_path / "run"
    znnpy("train", write_config(tmp_path), *WORDS)
    found: dict[str, list[tuple[int, float]]] = {}
    pictures = []
    for event in events(run / "tensorboard"):
        for value in event.summary.value:
            if value.HasField("image"):
                pictures.append((event.step, bytes(value.image.encoded_image_string[:4])))
            else:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    records = [json.loads(line) for line in (run / "log.jsonl").open()]
    losses = [(it["iteration"], it["loss"]) for it in records if "loss" in it]
    assert found["loss"] == [(n, pytest.approx(loss)) for n, loss in losses]
    scores = [(it["iteration"], it["validation"]["loss"]) for it in records if "validation" in it]
    assert found["validation/loss"] == [(n, pytest.approx(loss)) for n, loss in scores]
    assert {"learning_rate", "weights/all", "weights/conv1", "gradients/all", "living"} <= set(
        found
    )
    assert pictures == [(30, b"\x89PNG")]
    znnpy("train", tmp_path / "config.yaml", *WORDS, "--overwrite")
    assert len(list((run / "tensorboard").iterdir())) == 1  # of the new run alone


def test_a_run_that_goes_on_voids_what_is_made_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    config, folder = write_config(tmp_path), tmp_path / "run" / "tensorboard"
    for iterations in (30, 60):
        sets = (f"training.iterations={iterations}", "training.schedule=constant", *SETS[1:])
        znnpy("train", config, *(word for it in sets for word in ("--set", it)))
    voided = [event.step for event in events(folder) if event.HasField("session_log")]
    assert voided == [31]


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    said = znnpy("train", write_config(tmp_path), *WORDS, code=1).stderr
    assert 'pip install "znnpy[tensorboard]"' in said
    assert "run.tensorboard" in said
    assert not (tmp_path / "run").exists()


def test_by_default_there_are_none(tmp_path: Path) -> None:
    znnpy("train", write_config(tmp_path), "--set", "training.iterations=2")
    assert not (tmp_path / "run" / "tensorboard").exists()
