"""Validations over ranks: each computes a share of the patches, and the scores are those of one process, bit by bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ranked import SECONDS, mpiexec
from small_run import final, write_config, znnpy

FORWARD = """
import os, sys
from pathlib import Path
from znnpy.cli import main
from znnpy.engine.model import Model
made = Model.forward
def forward(self, x):
    with open(Path(sys.argv[1]).parent / f"rank{os.environ['PMI_RANK']}", "a") as file:
        print(len(next(iter(x.values()))), file=file)
    return made(self, x)
Model.forward = forward
main(["train", *sys.argv[1:]])
"""
SETS = (
    "training.iterations=4",
    "training.batch=4",
    "training.microbatch=1",
    "run.threads=1",
    # Batches do not divide the patches; a metric takes all voxels together.
    "training.validation={every: 2, patches: 6, score: average_precision}",
)


def words(folder: Path, name: str, *sets: str) -> list[object]:
    given = (*SETS, f"run.directory={folder / name}", *sets)
    return [folder / "config.yaml", *(word for it in given for word in ("--set", it))]


def scores(run: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [it["validation"] for it in lines if "validation" in it]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("ranks", "own"),
    [
        (3, ("training.ema=0.5", "distributed.strategy=tree")),
        (2, ()),
        (4, ("training.ema=0.5", "distributed.strategy=multicolor")),
    ],
)
def test_each_rank_computes_its_share_and_the_scores_are_those_of_one(
    tmp_path: Path, ranks: int, own: tuple[str, ...]
) -> None:
    write_config(tmp_path)
    znnpy("train", *words(tmp_path, "alone", *own))
    line = mpiexec(ranks, sys.executable, "-c", FORWARD, *words(tmp_path, "over", *own))
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert scores(tmp_path / "over") == scores(tmp_path / "alone")
    assert len(scores(tmp_path / "over")) == 2
    assert final(tmp_path / "over")[:2] == final(tmp_path / "alone")[:2]
    shares = [(tmp_path / f"rank{rank}").read_text().split() for rank in range(ranks)]
    # Two validations of two batches each.
    assert [len(it) for it in shares] == [4] * ranks
    assert [sum(map(int, it)) for it in zip(*shares, strict=True)] == [4] * 4


def test_large_patches_travel_in_slices(tmp_path: Path) -> None:
    write_config(tmp_path)
    znnpy("train", *words(tmp_path, "alone"))
    small = "from znnpy.train import shared_forward\nshared_forward.SLICE = 100\n"
    line = mpiexec(2, sys.executable, "-c", small + FORWARD, *words(tmp_path, "over"))
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert scores(tmp_path / "over") == scores(tmp_path / "alone")
