"""A run that goes on with other volumes than it was trained on says so, and which."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
from small_run import write_config, znnpy

from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.errors import RunError
from znnpy.train.known_volumes import known, known_to_all


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


def test_volumes_for_validation_that_have_changed_are_told(tmp_path: Path) -> None:
    """Of whose scores the best is chosen."""
    config = write_config(tmp_path)
    shutil.copyfile(tmp_path / "data.h5", tmp_path / "held.h5")
    held = f"[{{image: {tmp_path}/held.h5:raw, labels: {tmp_path}/held.h5:labels}}]"

    def told(iterations: int) -> str:
        words = f"training.iterations={iterations}", f"data.validation={held}", "data.test=[]"
        return znnpy("train", config, *(word for it in words for word in ("--set", it))).stderr

    assert "until now" not in told(1)
    with h5py.File(tmp_path / "held.h5", "r+") as file:
        file["raw"][3:6] = 7
    said = told(2)
    assert "not what this run was validated on until now: data.validation.0, image input;" in said
    assert "trained on until now" not in said
    assert "until now" not in told(3)


def test_voxels_of_another_size_than_trained_on_are_told(tmp_path: Path) -> None:
    config, run = write_config(tmp_path), tmp_path / "run"
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        for name in file:
            file[name].attrs["resolution"] = [40.0, 4.0, 4.0]
        image = file["raw"][...]
    sets = ("--set", "training.iterations=2", "--set", "data.validation=[]")
    assert znnpy("train", config, *sets).returncode == 0

    def told(size: list[float] | None) -> str:
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["raw"] = image
            if size:
                file["raw"].attrs["resolution"] = size
        words = (
            "--input",
            f"{tmp_path / 'other.h5'}:raw",
            "--output",
            tmp_path / "out.h5",
            "--dry-run",
        )
        found = znnpy("predict", run, *words)
        assert found.returncode == 0, found.stderr
        return found.stderr

    assert (
        "other.h5:raw are 4 x 4 x 4 nm (z, y, x), and this run was trained on 40 x 4 x 4:"
        in told([4, 4, 4])
    )
    assert "was trained on" not in told([40, 4.1, 4])
    assert "was trained on" not in told(None)
    known = json.loads((run / "volumes.json").read_text())
    del known["0 voxels"]  # as of runs of before
    (run / "volumes.json").write_text(json.dumps(known))
    assert "was trained on" not in told([4, 4, 4])


def test_hosts_with_another_volume_under_the_same_path_are_refused() -> None:
    """A node's own copy may be an old one: ranks would draw samples of both."""
    image, hosts = np.arange(1000, dtype=np.float32).reshape(1, 10, 10, 10), ["a", "a", "b", "b"]

    def scenes(*changes: int) -> list[Scene]:
        return [Scene({"input": ArrayVolume(image + it, f"raw {it}")}, {}) for it in changes]

    def found(rank: int, there: list[Scene]) -> Any:
        """What a rank finds, where rank 2 has other volumes, or the same."""
        told: list[Any] = []

        def exchange(own: Any) -> list[Any]:
            told.append(own)
            return [known(scenes(0, 0)), None, known(there), None]

        world: Any = SimpleNamespace(rank=rank, size=4, exchange=exchange)
        try:
            return told, known_to_all(scenes(0, 0), world, hosts)
        except RunError as error:
            return told, str(error)

    own = known(scenes(0, 0))
    for rank in range(4):
        told, all_know = found(rank, scenes(0, 0))
        assert all_know == own
        assert told == [own if rank in (0, 2) else None]  # hosts are looked at once
        _, refused = found(rank, scenes(0, 1))
        assert (
            "data.train.1, image input is another volume on b (rank 2) than on a (rank 0)"
            in refused
        )
