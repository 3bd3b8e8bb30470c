"""The final evaluation over ranks: all compute patches, and the scores and picture are those of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ranked import SECONDS, mpiexec
from small_run import write_config, znnpy

# Patches of a run this small would be one alone.
SMALL = """
import os, sys
from pathlib import Path
from znnpy.cli import main
from znnpy.infer import config_model
from znnpy.train import shared_prediction
config_model._best = lambda weights, field: (4, 5, 6)
made = shared_prediction._OnePatch.forward
def forward(self, x):
    with open(Path(sys.argv[2]).parent / f"rank{os.environ.get('PMI_RANK')}", "a") as file:
        print("patch", file=file)
    return made(self, x)
shared_prediction._OnePatch.forward = forward
main(sys.argv[1:])
"""
SETS = (
    "training.iterations=3",
    "training.batch=4",
    "training.microbatch=1",
    "run.threads=1",
    "training.ema=0.5",
)


def words(folder: Path, name: str) -> list[object]:
    given = (*SETS, f"run.directory={folder / name}")
    return ["train", folder / "config.yaml", *(word for it in given for word in ("--set", it))]


def outcome(run: Path) -> tuple[str, bytes]:
    text = (run / "result.json").read_text()
    return text.replace(run.name, ""), (run / "prediction.png").read_bytes()


@pytest.mark.quick(1)
@pytest.mark.parametrize("ranks", [2, 3])
def test_scores_are_those_of_one_process(tmp_path: Path, ranks: int) -> None:
    write_config(tmp_path)
    line = [sys.executable, "-c", SMALL, *map(str, words(tmp_path, "alone"))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    line = mpiexec(ranks, sys.executable, "-c", SMALL, *words(tmp_path, "over"))
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "over") == outcome(tmp_path / "alone")
    shares = [len((tmp_path / f"rank{rank}").read_text().split()) for rank in range(ranks)]
    assert len(set(shares)) == 1
    assert shares[0] > 3
    assert not (tmp_path / "rankNone").exists()


@pytest.mark.usefixtures("drawn")
def test_a_finished_run_is_scored_by_all_ranks(tmp_path: Path) -> None:
    """Which have trained nothing, and are told all they need."""
    write_config(tmp_path)
    znnpy(*words(tmp_path, "run"))
    wanted = outcome(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    small = SMALL.replace("config_model._best", "config_model._unused")
    line = mpiexec(2, sys.executable, "-c", small, *words(tmp_path, "run"))
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert outcome(tmp_path / "run") == wanted
    assert (tmp_path / "rank1").exists()
