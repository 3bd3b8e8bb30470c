"""Members of a run that was taken over: their weights are read when they are wanted, and not kept."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnunet_model import folder_of
from nnunet_plans import Recipe

from znnpy.engine.memory import filter_file
from znnpy.errors import RunError
from znnpy.file_arrays import FileArray
from znnpy.infer.scan_job import scan_model, window_of
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model
from znnpy.train import checkpoint as checkpoints
from znnpy.train import looking_ahead, npz_reader
from znnpy.train.members import members_of
from znnpy.train.progress import Quiet
from znnpy.train.start import SavedRun, read_run


def saved_in(tmp_path: Path, *, in_file: bool = False) -> SavedRun:
    """A run of two members, as it is read for prediction."""
    write_run(read_model(folder_of(Recipe(folds=(0, 3)), tmp_path / "model")), tmp_path / "run")
    return read_run(tmp_path / "run", Quiet(), ["run.threads=1"], states=False, in_file=in_file)


def test_overrides_change_nothing_in_the_files(tmp_path: Path) -> None:
    saved_in(tmp_path)
    changed = ["training.precision=float64"]
    members = members_of(read_run(tmp_path / "run", Quiet(), changed, states=False))
    expected = dict(members[0]())
    assert all(array.dtype == np.float32 for array in members[1]().values())
    again = members[0]()
    assert all((again[name] == array).all() for name, array in expected.items())


def test_weights_are_given_away_and_read_again(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    wanted = {name: array.copy() for name, array in saved.weights.parameters.items()}
    members = members_of(saved)
    first = weakref.ref(next(iter(saved.checkpoint.parameters.values())))
    del saved
    assert first() is not None  # which are there already, so that they are not read twice
    for _ in range(2):
        given = members[0]()
        assert given.keys() == wanted.keys()
        assert all(np.array_equal(given[name], wanted[name]) for name in wanted)
        del given
        assert first() is None
    assert not np.array_equal(members[1]()["output.conv"], wanted["output.conv"])


def test_states_are_left_in_the_file(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    assert saved.checkpoint.optimizer_state == {}
    assert read_run(saved.path, Quiet()).checkpoint.optimizer_state.keys()


def test_damaged_members_are_told(tmp_path: Path) -> None:
    saved = saved_in(tmp_path)
    members = members_of(saved)
    (path,) = saved.path.glob("members/001/*.npz")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(RunError, match="is damaged"):
        members[1]()


def test_predicted_from_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits are those of weights that were in memory, to the bit, and members take turns."""
    monkeypatch.setattr(filter_file, "LEAST", 1 << 10)
    monkeypatch.setattr(filter_file, "WORTH", 1)
    monkeypatch.setattr(filter_file, "PRODUCTS", 0)
    before = logits_of_members(saved_in(tmp_path / "memory"))
    monkeypatch.setattr(checkpoints, "LARGE", 1 << 10)
    saved = saved_in(tmp_path / "file", in_file=True)
    assert any(isinstance(values, FileArray) for values in saved.weights.parameters.values())
    assert all(map(np.array_equal, logits_of_members(saved), before))
    assert not np.array_equal(*before[:2])


def test_read_through_before_they_are_wanted_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (checkpoints, looking_ahead):
        monkeypatch.setattr(module, "LARGE", 1 << 10)
    path = saved_in(tmp_path).path
    ahead = checkpoints.look_ahead(path, "latest")
    assert ahead
    for done in ahead._done.values():
        assert done.wait(60)
    looked, look = list[str](), npz_reader.Archive._read

    def told(archive: Any, name: str, values: Any, *room: Any) -> Any:
        looked.extend([name] if values is None else [])
        return look(archive, name, values, *room)

    monkeypatch.setattr(npz_reader.Archive, "_read", told)
    how = {"states": False, "in_file": True, "ahead": ahead}
    members = members_of(read_run(path, Quiet(), ["run.threads=1"], **how))  # type: ignore[arg-type]
    for _ in range(2):
        for member in members:
            assert any(isinstance(values, FileArray) for values in member().values())
    assert not looked
    (own,) = path.glob("members/001/*.npz")
    os.utime(own, (0, 0))  # as if it was written since
    members[1]()
    members[0]()
    assert len(looked) == len(set(looked)) > 0
    members[1]()
    assert len(looked) == len(set(looked))


def logits_of_members(saved: SavedRun) -> list[np.ndarray]:
    weights, members = saved.weights, members_of(saved)
    shape = weights.network.inputs[0].channels, *window_of(weights.config)
    window = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with scan_model(weights, members) as model:
        found = [np.array(model.logits([window], member)) for member in (0, 1, 0)]
        assert model.model._engine._file is not None
    return found
