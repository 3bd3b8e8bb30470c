"""How many updates fit into some minutes: counted by a clock that is not there, and what a config says of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import h5py
import numpy as np
import pytest
from called import status_of

from znnpy.config import load_config
from znnpy.errors import ConfigError
from znnpy.train import fitted_length
from znnpy.train.fitted_length import FORWARD, SCORED, START, fitting, seconds_of_update
from znnpy.train.progress import Quiet
from znnpy.train.recipes import RECIPES

OBJECTS = np.kron(np.arange(1, 25).reshape(6, 2, 2), np.ones((15, 40, 40), np.uint16))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with h5py.File("v.h5", "w") as file:
        file["raw"] = rng.integers(0, 255, OBJECTS.shape).astype(np.uint8)
        file["labels"] = OBJECTS
        file["classes"] = OBJECTS % 3
        file["digits"] = rng.integers(0, 255, (200, 28, 28)).astype(np.uint8)
        file["numbers"] = rng.integers(0, 10, 200)
    return tmp_path


LABELS = {"semantic": "classes", "classification": "numbers"}
IMAGES = {"classification": "digits"}


@pytest.mark.parametrize("purpose", RECIPES)
def test_all_that_depends_on_the_number_of_updates_follows(
    purpose: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitted_length, "seconds_of_update", lambda config, reporter: 0.05)
    line = ("--for", purpose, "--data", f"v.h5:{IMAGES.get(purpose, 'raw')}", "--labels")
    words = (*line, f"v.h5:{LABELS.get(purpose, 'labels')}", "--overwrite")
    assert status_of("init", "usual.yaml", *words) == 0
    assert status_of("init", "c.yaml", *words, "--minutes", 20) == 0
    told = capsys.readouterr().err
    usual, found = load_config("usual.yaml"), load_config("c.yaml")
    updates = found.training.iterations
    assert 0.5 * 24000 < updates < 24000
    assert f"{updates:,} updates: about 20 minutes here, at 20 updates/s" in told
    text = Path("c.yaml").read_text()
    assert "  # about 20 minutes here, at 20 updates/s\n" in text
    looks = usual.training.iterations // usual.training.validation.every
    assert found.training.validation.every == updates // looks == found.run.checkpoint.every
    before, now = (it.training.schedule.model_dump() for it in (usual, found))
    share = usual.training.iterations // before["warmup"]["iterations"]
    assert now["warmup"]["iterations"] == updates // share
    assert usual.run.checkpoint.every == 500
    same = {"iterations", "schedule", "validation"}
    left, right = (it.training.model_dump(exclude=same) for it in (usual, found))
    assert left == right


def test_validations_and_scores_are_taken_into_account() -> None:
    line = ("--for", "membranes", "--data", "v.h5:raw", "--labels", "v.h5:labels")
    assert status_of("init", "c.yaml", *line) == 0
    config, extent = load_config("c.yaml"), (90, 80, 80)
    assert config.data.validation[0].slices == (66, 90)
    spent = START + 8 * 16 * 0.1 * FORWARD + 24 * 80 * 80 * SCORED
    assert config.training.validation.patches == 16
    assert fitting(config, 5, 0.1, extent) == int((300 - spent) / 0.1)
    none = config.model_copy(update={"data": config.data.model_copy(update={"validation": ()})})
    assert fitting(none, 5, 0.1, extent) == int((300 - START) / 0.1)
    with pytest.raises(ConfigError, match=r"--minutes 0.1 is too short: .* of 0.1 s each here"):
        fitting(config, 0.1, 0.1, extent)


def test_updates_are_timed_after_the_first_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status_of("init", "c.yaml", "--for", "2d", "--data", "v.h5:raw", "--labels", "v.h5:labels") == 0  # fmt: skip
    small = ["training.output_shape=[1, 16, 16]", "training.conv=direct", "run.threads=1"]
    config = load_config("c.yaml", [*small, "inference.window=[1, 16, 16]"])
    before = sorted(folder.iterdir())
    ticks = count()
    monkeypatch.setattr(fitted_length, "monotonic", lambda: float(next(ticks)))
    # The clock goes on by one at each look: 6 s are more than 5 after five updates.
    assert seconds_of_update(config, Quiet()) == 6 / 5
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--minutes", "5"), "--minutes goes with --data"),
        (("--for", "2d", "--minutes", "5"), "--minutes goes with --data"),
        (("--for", "2d", "--data", "v.h5:raw", "--minutes", "0"), "0.1"),
        (("--for", "2d", "--data", "v.h5:raw", "--minutes", "nan"), "--minutes"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("init", "c.yaml", *words) == 2
    assert told in capsys.readouterr().err
    assert not Path("c.yaml").exists()
