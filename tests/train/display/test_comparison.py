"""Runs in one chart: all of them, told apart, as a page or a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_run import write_config, znnpy

from znnpy.errors import RunError
from znnpy.train.display.comparison import MOST, compare, figure_of_runs, panels


def run_of(path: Path, updates: int, *, scores: tuple[str, ...] = ()) -> Path:
    """A run directory as far as comparisons read it."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("")
    records: list[object] = [
        {"iteration": n, "loss": 1 / n, "learning_rate": 0.1} for n in range(1, updates + 1)
    ]
    records += [{"iteration": updates, "validation": dict.fromkeys(scores, 0.5)}] if scores else []
    (path / "log.jsonl").write_text("".join(json.dumps(it) + "\n" for it in records))
    return path


def test_runs_of_the_command_are_compared(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    for name in ("one", "two"):
        sets = (f"run.directory={tmp_path / name}", "training.iterations=30", "data.test=[]")
        znnpy("train", config, *(word for it in sets for word in ("--set", it)))
    line = ["plot", tmp_path / "one", tmp_path / "two", "--output"]
    done = znnpy(*line, tmp_path / "out.html")
    assert f"next: znnpy evaluate {tmp_path / 'one'}" in done.stderr
    text = (tmp_path / "out.html").read_text()
    assert text.count("<h2>") >= 4
    assert "Validation: loss" in text
    assert ">one<" in text
    znnpy(*line, tmp_path / "out.png")
    picture = np.asarray(Image.open(tmp_path / "out.png").convert("RGB"))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50
    assert "exists already" in znnpy(*line, tmp_path / "out.png", code=1).stderr
    znnpy(*line, tmp_path / "out.png", "--overwrite")
    assert ".html or .png" in znnpy(*line, tmp_path / "out.pdf", code=2).stderr


@pytest.mark.parametrize("updates", [1, 3])
def test_few_updates_have_whole_marks(tmp_path: Path, updates: int) -> None:
    figure = figure_of_runs(compare([run_of(tmp_path / "run", updates)]))
    figure.canvas.draw()
    axis = figure.axes[0]
    low, high = axis.get_xlim()
    marks = [n for n in axis.get_xticks() if low <= n <= high]
    assert marks == ([0, 1] if updates == 1 else [1, 2, 3])
    assert low < updates < high


def test_curves_have_the_colour_of_their_run_wherever_they_are(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / str(n), 5, scores=("odd",) if n == 9 else ()) for n in range(10)]
    found = compare(runs)
    assert len({(it.colour, it.dashed) for it in found}) == 10
    lines = dict(panels(found))
    assert len(lines["Loss, mean of updates"]) == 10
    (only,) = lines["Validation: odd"]
    assert (only.name, only.colour, only.dashed) == ("9", found[9].colour, True)
    assert "Updates per second" not in lines  # none has any


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / name / "run", 3) for name in ("a", "b")]
    assert [it.name for it in compare(runs)] == ["a/run", "b/run"]
    assert [it.name for it in compare([runs[0], runs[0]])] == ["run", "run"]


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere is not a run directory"):
        compare([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="no update in its log yet"):
        compare([run_of(tmp_path / "new", 0)])
    with pytest.raises(RunError, match=f"at most {MOST}"):
        compare([tmp_path] * (MOST + 1))
