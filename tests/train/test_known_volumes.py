"""A run that goes on with other volumes than it was trained on says so, and which."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
from small_run import write_config, znnpy


def test_volumes_that_have_changed_are_told_once(tmp_path: Path) -> None:
    config = write_config(tmp_path)

    def told(iterations: int) -> str:
        words = f"training.iterations={iterations}", "data.validation=[]"
        sets = [word for it in words for word in ("--set", it)]
        return znnpy("train", config, *sets).stderr

    assert "trained on until now" not in told(2)
    # Another place and time, and the same voxels.
    shutil.copyfile(tmp_path / "data.h5", tmp_path / "copy.h5")
    (tmp_path / "copy.h5").rename(tmp_path / "data.h5")
    assert "trained on until now" not in told(3)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["labels"][3:6] = 7
    assert "not what this run was trained on until now: data.train.0, labels output;" in told(4)
    assert "trained on until now" not in told(5)
    (tmp_path / "run" / "volumes.json").unlink()  # as of runs of before
    assert "trained on until now" not in told(6)
