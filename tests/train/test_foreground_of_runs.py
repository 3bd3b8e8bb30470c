"""Runs whose patches are centred on foreground: stopped ones and ranks draw the same; what cannot be is refused."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from ranked import SECONDS, mpiexec
from small_run import SHORT, command, final, short, write_config, znnpy

from znnpy.config import load_config
from znnpy.config.models import Config
from znnpy.network import trained_network
from znnpy.train.patch_sources import open_sampler

SHARE = "training.oversample_foreground=0.33"


def run(folder: Path, name: str, *sets: str) -> Path:
    path = folder / name
    words = (*SHORT, SHARE, f"run.directory={path}", *sets)
    znnpy("train", write_config(folder), *(word for it in words for word in ("--set", it)))
    return path


def test_a_run_that_goes_on_draws_the_same_patches(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole")
    run(tmp_path, "parts", "training.iterations=2")
    parts = run(tmp_path, "parts")
    assert final(whole)[0][:2] == final(parts)[0][:2]  # the newest checkpoint, bit by bit
    plain = run(tmp_path, "plain", "training.oversample_foreground=0")
    assert final(plain)[0][1] != final(whole)[0][1]


def test_ranks_draw_the_patches_of_one_process(tmp_path: Path) -> None:
    batch = ("training.batch=4", "training.microbatch=1")
    alone = run(tmp_path, "alone", *batch)
    path = tmp_path / "ranks"
    words = (*SHORT, SHARE, f"run.directory={path}", *batch)
    line = command("train", tmp_path / "config.yaml", *(w for it in words for w in ("--set", it)))
    done = subprocess.run(mpiexec(2, *line), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert final(path)[0][:2] == final(alone)[0][:2]


def test_validation_draws_as_without(tmp_path: Path) -> None:
    def patches(config: Config, key: str) -> list[bytes]:
        with ExitStack() as stack:
            network, sections = trained_network(config), config.data.train
            made = open_sampler(stack, config, network, sections, key)
            return [next(iter(made.sample(n).images.values())).tobytes() for n in range(12)]

    plain, sets = short(tmp_path, tmp_path / "run"), (*SHORT, SHARE)
    centred = load_config(write_config(tmp_path), sets)
    assert patches(plain, "data.validation") == patches(centred, "data.validation")
    assert patches(plain, "data.train") != patches(centred, "data.train")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["training.order=shuffled", "augment.enabled=false"], "shuffled takes each once"),
        (["data.shards={blocks: 2, exchange: 10}"], "data.shards"),
        (
            ["data.target={kind: image}", "training.loss=square", "training.rebalance=none"],
            "no foreground",
        ),
        (["training.oversample_foreground=1.5"], "oversample_foreground"),
    ],
)
def test_what_cannot_be_is_refused_by_its_line(tmp_path: Path, sets: list[str], said: str) -> None:
    words = (*SHORT, SHARE, f"run.directory={tmp_path / 'run'}", *sets)
    config = write_config(tmp_path)
    line = [word for it in words for word in ("--set", it)]
    assert said in znnpy("train", config, *line, code=1).stderr
    assert not (tmp_path / "run" / "log.jsonl").exists()
