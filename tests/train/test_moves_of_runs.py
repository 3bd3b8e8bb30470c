"""Runs whose patches read elsewhere: stopped ones go on with the same bits; with shards they are refused by key."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import SHORT, final, write_config, znnpy

from znnpy.config.augment_section import MOVES

WARPS = ("augment.rotate={probability: 0.7, axis: any}", "augment.affine={}", "augment.elastic={}")


def words(folder: Path, name: str, *sets: str) -> list[object]:
    given = (*SHORT, f"run.directory={folder / name}", *sets)
    return ["train", write_config(folder), *(word for it in given for word in ("--set", it))]


def test_a_run_that_goes_on_reads_the_same_voxels(tmp_path: Path) -> None:
    znnpy(*words(tmp_path, "whole", *WARPS))
    znnpy(*words(tmp_path, "parts", *WARPS, "training.iterations=2"))
    znnpy(*words(tmp_path, "parts", *WARPS))
    wanted = final(tmp_path / "whole")[0][:2]
    assert final(tmp_path / "parts")[0][:2] == wanted
    znnpy(*words(tmp_path, "plain"))
    assert final(tmp_path / "plain")[0][1] != wanted[1]


@pytest.mark.parametrize("key", MOVES)
def test_what_reads_elsewhere_is_refused_with_shards(tmp_path: Path, key: str) -> None:
    shards = "data.shards={blocks: 2, exchange: 10}"
    done = znnpy(*words(tmp_path, "run", f"augment.{key}={{}}", shards), code=1)
    assert f"augment.{key}: reads beyond the blocks of data.shards" in done.stderr
    assert not (tmp_path / "run" / "log.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rotate={angle: [10, -10]}", "least and the largest"),
        ("rotate={axis: y}", "axis"),
        ("affine={scale: [0, 1]}", "scale"),
        ("elastic={spacing: 1}", "spacing"),
        ("elastic={deviation: [0, .nan]}", "deviation"),
    ],
)
def test_absurd_values_are_refused_by_key(tmp_path: Path, given: str, said: str) -> None:
    assert said in znnpy(*words(tmp_path, "run", f"augment.{given}"), code=1).stderr
