"""A volume that is cut, replaced or rewritten while training reads it: nothing trained on it is kept."""

from __future__ import annotations

import time
from pathlib import Path

import h5py
import pytest
from changes import CHANGES, FORMS
from small_run import Forked, write_config, znnpy
from standin import PACE, LinearModel, batches, newest

from znnpy.errors import ChangedError
from znnpy.train import checkpoint as checkpoints
from znnpy.train.log import RunLog, up_to
from znnpy.train.loop import Loop
from znnpy.train.progress import Quiet
from znnpy.train.run_writer import Pace, RunKeeper
from znnpy.train.signals import StopSignals


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("hdf5", "cut"),
        ("hdf5 chunks", "replaced"),
        ("tiff", "rewritten"),
        ("zarr 3", "gone"),
        ("zarr 2", "rewritten"),
    ],
)
def test_training_ends_and_goes_on_from_before(tmp_path: Path, form: str, change: str) -> None:
    config = write_config(tmp_path, 100_000)
    name, write = FORMS[form]
    with h5py.File(tmp_path / "data.h5") as file:
        raw = file["raw"][...]
    write(tmp_path / name, raw)
    source = name if name.endswith(".tif") else f"{name}:raw"
    settings = [
        *("--set", f"data.train=[{{image: '{tmp_path / source}', labels: '{tmp_path}/data.h5:labels'}}]"),
        *("--set", "data.in_memory=false", "--set", "data.validation=[]"),
    ]  # fmt: skip
    log = tmp_path / "run/log.jsonl"
    with Forked("train", config, *settings) as process:
        while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 50):
            time.sleep(0.01)
        before = checkpoints.listed(tmp_path / "run/checkpoints")[0].name
        CHANGES[change](tmp_path / name)
        _, errors = process.communicate()
    assert process.returncode == 1, errors
    assert "Traceback" not in errors, errors
    (said,) = [line for line in errors.splitlines() if "has changed while it was read" in line]
    assert name in said
    assert "data.in_memory: true" in said
    newest = int(checkpoints.listed(tmp_path / "run/checkpoints")[0].stem[-9:])
    assert f"since iteration {newest} cannot be trusted and was not saved" in said
    assert checkpoints.listed(tmp_path / "run/checkpoints")[0].name >= before
    if form in ("hdf5 chunks", "tiff"):  # whose data are as good as before
        more = ("--set", f"training.iterations={newest + 1}")
        znnpy("train", config, *settings, *more)
        assert list(up_to(log, 1 << 40))[-1]["iteration"] == newest + 1


@pytest.mark.parametrize(("changed", "saved"), [(0, None), (1, 0), (15, 10), (20, 10), (30, 20)])
def test_no_checkpoint_after_a_change(tmp_path: Path, changed: int, saved: int | None) -> None:
    model = LinearModel()

    def verify(wrong: str | None) -> str | None:
        if model.iteration >= changed:
            raise ChangedError("a.h5 has changed")
        return wrong

    with (
        RunLog(tmp_path / "log.jsonl") as log,
        RunLog(tmp_path / "timings.jsonl") as timings,
        StopSignals() as stop,
    ):
        pace = Pace(**PACE)  # type: ignore[arg-type]
        keeper = RunKeeper(tmp_path, (log, timings), pace, lambda _: 0.1, Quiet(), verify=verify)
        loop = Loop(model, batches(0), pace, lambda _: 0.1, keeper, stop)
        words = r"a\.h5 has changed" + ("$" if saved is None else f".*since iteration {saved} ")
        with pytest.raises(ChangedError, match=words):
            loop.run()
    found = newest(tmp_path)
    assert (found.iteration if found else None) == saved
