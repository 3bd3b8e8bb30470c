"""A range test makes the updates of training, stops at divergence and by signals, and leaves a file alone."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_run import Forked, short, write_config, znnpy

from znnpy.cli.find_rate import _report
from znnpy.config.models import TrainingSection
from znnpy.engine.model import Model
from znnpy.errors import TrainingError
from znnpy.learning.optimizers import OPTIMIZERS
from znnpy.train.progress import Quiet
from znnpy.train.rate_range import RangeTest, range_test, rising
from znnpy.train.rate_suggestion import Suggestion
from znnpy.train.session import train

FEW = ("--updates", 12, "--set", "training.batch=1")


def files(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_are_those_of_training_with_these_rates(tmp_path: Path, optimizer: str) -> None:
    config = short(tmp_path, tmp_path / "run")
    keys = OPTIMIZERS[optimizer].keys(kind=optimizer)
    # Of rates that rise, as an exponential schedule makes them.
    schedule = config.training.schedule.model_copy(update={"every": 1, "factor": 10.0})
    training = config.training.model_copy(
        update={"optimizer": keys, "schedule": schedule, "learning_rate": 1e-4}
    )
    config = config.model_copy(update={"training": training})
    found = range_test(config, rising(1e-4, 1e-1, 4), Quiet())
    assert not (tmp_path / "run").exists()
    train(config, reporter=Quiet())
    records = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    logged = [it["loss"] for it in records if "loss" in it]
    assert list(found.losses) == logged
    assert found.optimizer == optimizer
    assert (found.diverged, found.signal) == (None, None)


def test_it_begins_from_the_weights_that_training_begins_from(tmp_path: Path) -> None:
    config = short(tmp_path, tmp_path / "run")
    train(config, reporter=Quiet())
    first = range_test(config, rising(1e-6, 1e-5, 10), Quiet()).losses[0]
    weights = max((tmp_path / "run" / "checkpoints").glob("*.npz"))
    words = ["find-rate", tmp_path / "config.yaml", *FEW, "--output", tmp_path / "rate.json"]
    znnpy(*words, "--set", f"training.start_from={weights}")
    assert json.loads((tmp_path / "rate.json").read_text())["loss"][0] != first


def test_it_stops_where_the_loss_diverges(tmp_path: Path) -> None:
    config = short(tmp_path, tmp_path / "run")
    sgd = config.training.model_copy(update={"optimizer": OPTIMIZERS["sgd"].keys(kind="sgd")})
    rates = rising(1e-3, 1e6, 300)
    found = range_test(config.model_copy(update={"training": sgd}), rates, Quiet())
    assert found.diverged in rates
    assert len(found.losses) < 300
    assert np.isfinite(found.losses).all()
    assert found.rates == tuple(rates[: len(found.losses)])
    # The first loss that is too high is that after the update with this rate.
    assert rates.index(found.diverged) in (len(found.losses) - 2, len(found.losses) - 1)
    assert found.suggestion.rate is None or found.suggestion.rate <= found.diverged / 10


@pytest.mark.parametrize("wrong", [float("nan"), 1e9])
def test_divergence_is_that_of_the_update_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """A loss is that of the weights which the update before it has made."""
    result = Model.result
    monkeypatch.setattr(
        Model,
        "result",
        lambda self, ticket: replace(result(self, ticket), loss=wrong if ticket == 6 else 1.0),
    )
    rates = rising(1e-6, 1e-5, 10)
    found = range_test(short(tmp_path, tmp_path / "run"), rates, Quiet())
    assert found.diverged == rates[5]
    assert len(found.losses) == (6 if np.isnan(wrong) else 7)


def test_the_command_writes_loss_over_rate_and_leaves_no_run(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    line = ["find-rate", config, "--set", "training.learning_rate=5", *FEW, "--output"]
    before = files(tmp_path)
    znnpy(*line, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "Loss over learning rate" in text
    assert "<svg" in text
    done = znnpy(*line, tmp_path / "a.json")
    told = json.loads((tmp_path / "a.json").read_text())
    assert len(told["learning_rate"]) == len(told["loss"]) == len(told["smoothed"])
    np.testing.assert_allclose(told["learning_rate"], np.geomspace(1e-6, 10, 12))
    znnpy(*line, tmp_path / "a.png")
    picture = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50
    assert files(tmp_path) == sorted([*before, "a.html", "a.json", "a.png"])
    assert "next: znnpy" in done.stderr
    rate = told["suggested"]
    assert (f"training.learning_rate={rate:.2g}" if rate else "check") in done.stderr
    assert "exists already" in znnpy(*line, tmp_path / "a.png", code=1).stderr
    znnpy(*line, tmp_path / "a.png", "--overwrite")


@pytest.mark.parametrize(("batch", "written"), [(2, "0.02"), (8, "0.005"), (1, "0.04")])
def test_a_rate_is_suggested_as_the_config_is_to_have_it(
    batch: int, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `training.base_batch` multiplies for the batch."""
    training = TrainingSection(output_shape=(1, 1, 1), batch=batch, base_batch=2)
    found = RangeTest("sgd", (0.01,), (1.0,), None, None, Suggestion(np.ones(1), 0.1, 0.02))
    _report(Path("c.yaml"), ["run.threads=1"], Path("o.html"), found, training.scale_of_rate)
    out, err = capsys.readouterr()
    assert f"training.learning_rate={written} " in f"{err.replace(chr(39), '')} ".replace("\n", " ")
    assert ("training.base_batch multiplies the rate" in out) == (batch != 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "0"], "--from"),
        (["--to", "nan"], "--to"),
        (["--from", "1", "--to", "2"], "ten times"),
        (["--updates", "3"], "--updates"),
        (["--output", "rate.pdf"], ".html, .png or .json"),
    ],
)
def test_what_cannot_be_is_wrong_usage(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in znnpy("find-rate", write_config(tmp_path), *words, code=2).stderr


def test_a_folder_that_is_not_there_is_named_before_training(tmp_path: Path) -> None:
    where = tmp_path / "none" / "rate.html"
    done = znnpy("find-rate", write_config(tmp_path), "--output", where, code=1)
    assert f"{where.parent} is no folder" in done.stderr


def test_a_signal_ends_it_after_the_step_without_a_file(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    line = ["find-rate", config, "--updates", 100_000, "--output", tmp_path / "rate.json"]
    before = files(tmp_path)
    with Forked(*line) as process:
        errors = process._said[1]
        until = time.monotonic() + 120
        while b"iteration" not in Path(f"/proc/self/fd/{errors.fileno()}").read_bytes():
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
    assert "nothing is written" in said
    assert files(tmp_path) == before


def test_missing_volumes_are_named(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert "names no volume" in znnpy("find-rate", config, "--set", "data.train=[]", code=1).stderr


def test_non_finite_first_losses_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = short(tmp_path, tmp_path / "run")
    result = Model.result

    def lost(self: Model, ticket: int) -> object:
        return replace(result(self, ticket), loss=float("nan"))

    monkeypatch.setattr(Model, "result", lost)
    with pytest.raises(TrainingError, match="loss of the first weights"):
        range_test(config, rising(1e-6, 1e-5, 10), Quiet())
