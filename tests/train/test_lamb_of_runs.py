"""Runs by LAMB and LARS: stopped ones go on, and ranks train, with the bits of one process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ranked import SECONDS, mpiexec
from small_run import SHORT, command, final, write_config, znnpy

BATCH = ("training.batch=4", "training.microbatch=1", "training.clip_norm=0.5")
OPTIMIZERS = ["{kind: lamb, weight_decay: 0.02}", "{kind: lars, trust: 0.1}"]


def words(folder: Path, name: str, *sets: str) -> list[object]:
    given = (*SHORT, *BATCH, f"run.directory={folder / name}", *sets)
    return ["train", write_config(folder), *(word for it in given for word in ("--set", it))]


@pytest.mark.quick(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_runs_that_go_on_and_ranks_have_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    chosen = f"training.optimizer={optimizer}"
    znnpy(*words(tmp_path, "alone", chosen))
    wanted = final(tmp_path / "alone")[0][:2]
    znnpy(*words(tmp_path, "parts", chosen, "training.iterations=2"))
    znnpy(*words(tmp_path, "parts", chosen))
    assert final(tmp_path / "parts")[0][:2] == wanted
    line = mpiexec(2, *command(*words(tmp_path, "ranks", chosen)))
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert final(tmp_path / "ranks")[0][:2] == wanted
