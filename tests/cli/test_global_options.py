"""Each command names the next, which can be typed as it is; `--quiet` leaves that and the progress out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import typer
from called import status_of

from znnpy.cli.app import app

CONFIG = """
network: {layers: [{conv: {channels: 2, size: 3, function: relu}}, {conv: {channels: 1, size: 1}}]}
data: {train: [{image: stack.h5:raw, labels: stack.h5:labels}], test: [], target: TARGET}
training: {iterations: 2, output_shape: 4, conv: direct}
run: {directory: RUN, threads: 1}
"""
PREDICT = ("predict", "RUN", "--input", "stack.h5:raw", "--output", "out.h5")
COMMAND: Any = typer.main.get_command(app)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with h5py.File("stack.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, (10, 12, 14), np.uint8)
        file["labels"] = rng.integers(1, 5, (10, 12, 14), np.uint16)


def typed(*words: str) -> None:
    assert status_of(*words) == 0, words


def following(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Words of the one next command that was named, which the command line takes."""
    (line,) = re.findall(r"^next: znnpy (.*)$", capsys.readouterr().err, re.MULTILINE)
    words = shlex.split(line)
    with COMMAND.make_context("znnpy", list(words)) as context:
        name, command, rest = COMMAND.resolve_command(context, list(words))
        command.make_context(name, rest, parent=context)
    return words


def test_from_nothing_to_objects(capsys: pytest.CaptureFixture[str]) -> None:
    typed("init", "a config.yaml")
    assert following(capsys) == ["check", "a config.yaml"]
    Path("a config.yaml").write_text(CONFIG.replace("TARGET", "boundary"))
    typed("check", "a config.yaml", "--set", "training.batch=2")
    after = following(capsys)
    assert after == ["train", "a config.yaml", "--set", "training.batch=2"]
    typed(*after)
    assert following(capsys)[:2] == ["predict", str(Path("RUN").resolve())]
    typed(*PREDICT)
    after = following(capsys)
    assert after == ["segment", "out.h5:prediction", "--output", "objects.h5"]
    typed(*after)
    after = following(capsys)
    assert after == ["view", "out.h5:prediction", "objects.h5:volumes/labels/neuron_ids"]
    typed(*after)


def test_scores_and_views_of_volumes_name_what_comes_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with h5py.File("stack.h5", "r+") as file:
        file["prediction"] = (file["raw"][:] / 255).astype(np.float32)
    typed("score", "stack.h5:labels", "--labels", "stack.h5:labels")
    after = following(capsys)
    assert after == ["view", "labels=stack.h5:labels", "labels=stack.h5:labels"]
    typed(*after)
    assert "next:" not in capsys.readouterr().err
    typed("view", "raw=stack.h5:raw", "prediction=stack.h5:prediction")
    assert following(capsys) == ["segment", "stack.h5:prediction", "--output", "objects.h5"]
    typed("score", "stack.h5:labels", "--labels", "stack.h5:labels", "--json")
    assert "next:" not in capsys.readouterr().err


def test_profiles_and_views_of_a_run_name_what_comes_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("config.yaml").write_text(CONFIG.replace("TARGET", "boundary"))
    typed("profile", "config.yaml", "--updates", "1", "--threads", "1", "--set", "training.batch=2")
    assert following(capsys) == ["train", "config.yaml", "--set", "training.batch=2"]
    typed("train", "config.yaml")
    capsys.readouterr()
    predict = ["predict", "RUN", "--input", "FILE:DATASET", "--output", "prediction.h5"]
    for words in (
        ("profile", "--predict", "RUN", "--updates", "1", "--threads", "1"),
        ("view", "RUN"),
    ):
        typed(*words)
        assert following(capsys) == predict


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "mask",
            ["segment", "out.h5:prediction", "--output", "objects.h5", "--kind", "foreground"],
        ),
        ("image", ["view", "out.h5:prediction"]),
    ],
)
def test_what_follows_a_prediction_depends_on_it(
    target: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.yaml").write_text(CONFIG.replace("TARGET", target))
    with h5py.File("stack.h5", "r+") as file:
        file["labels"][...] = file["labels"][...] > 2
    typed("train", "config.yaml", "-q")
    assert "next:" not in capsys.readouterr().err
    typed(*PREDICT)
    assert following(capsys) == words


@pytest.mark.parametrize("quiet", ["--quiet", "-q"])
def test_quiet_leaves_out_progress_and_what_comes_next(
    quiet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("config.yaml").write_text(CONFIG.replace("TARGET", "boundary"))
    typed("train", "config.yaml")
    assert "iteration 2/2" in capsys.readouterr().err
    typed("train", quiet, "config.yaml", "--overwrite")
    shown = capsys.readouterr()
    assert "iteration" not in shown.err
    assert "next:" not in shown.err
    assert "run directory:" in shown.out
    assert "threads: 1" in shown.err


def test_json_alone_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(CONFIG.replace("TARGET", "boundary"))
    typed("check", "config.yaml", "--json")
    assert "next:" not in capsys.readouterr().err
