"""A run goes on with other iterations, learning rate, schedule and augmentation, and its log says from where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from subprocess import run as started
from typing import Any

import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import command, final, state, write_config, znnpy

from znnpy.train import start
from znnpy.train.checkpoint import listed
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

FIRST = (
    "training.iterations=6",
    "training.batch=4",
    "training.microbatch=1",
    "training.schedule=cosine",
    "training.validation={every: 4, patches: 1}",
    "run.checkpoint={every: 3, keep: 9}",
    "run.threads=1",
)
THEN = (
    "training.iterations=11",
    "training.learning_rate=0.05",
    "training.schedule={kind: poly, warmup: 2}",
    "augment.flips=[x]",
)


def words(*sets: str) -> list[str]:
    return [word for value in sets for word in ("--set", value)]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    znnpy("train", write_config(folder), *words(*FIRST))
    return folder


@pytest.fixture
def config(begun: Path, tmp_path: Path) -> Path:
    """The config of a copy of the run."""
    path = write_config(tmp_path)
    shutil.copytree(begun / "run", tmp_path / "run")
    resolved = tmp_path / "run/config.yaml"
    resolved.write_text(resolved.read_text().replace(str(begun), str(tmp_path)))
    return path


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]


def rates(folder: Path) -> dict[int, float]:
    return {it["iteration"]: it["learning_rate"] for it in log(folder) if "loss" in it}


def changes(folder: Path) -> dict[int, str]:
    return {it["iteration"]: it["changed"] for it in log(folder) if "changed" in it}


def test_it_goes_on_by_the_new_keys_and_says_so(begun: Path, config: Path) -> None:
    said = znnpy("train", config, *words(*FIRST, *THEN)).stderr
    folder = config.parent
    ((place, text),) = changes(folder).items()
    assert place == 6
    for word in ("training.iterations (was 6, now 11)", "training.learning_rate (was 0.002, now 0.05)",
                 "training.schedule.kind (was 'cosine', now 'poly')", "augment.flips (was "):  # fmt: skip
        assert word in text
        assert word in said
    assert "from iteration 6 on: " in said
    found = rates(folder)
    assert {n: found[n] for n in range(1, 7)} == rates(begun)
    wanted = {n: 0.05 * (1 - (n - 3) / 9) ** 0.9 for n in range(7, 12)}
    assert {n: found[n] for n in wanted} == pytest.approx(wanted)
    assert [it["iteration"] for it in log(folder) if "validation" in it] == [4, 6, 8, 11]
    assert "changed" not in znnpy("train", config, *words(*FIRST, *THEN)).stderr
    assert list(changes(folder)) == [6]


def test_each_of_them_alone(config: Path) -> None:
    more = "training.iterations=7"
    for key in (THEN[1], THEN[2], THEN[3], "augment.enabled=false", "augment.swaps=none"):
        iterations = read_run(config.parent / "run", Quiet()).checkpoint.iteration + 1
        more = f"training.iterations={iterations}"
        znnpy("train", config, *words(*FIRST, more, key))
        assert key.partition("=")[0] in changes(config.parent)[iterations - 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_in_between_nothing_is_lost(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before the config is replaced, and after."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if when == "before":
            patched.setattr(start.RunDirectory, "refresh", killed)
        else:
            patched.setattr(start.checkpoints, "discard_newer", killed)
        znnpy("train", config, *words(*FIRST, *THEN), code=130)
    znnpy("train", config, *words(*FIRST, *THEN))
    assert list(changes(tmp_path)) == [6]
    assert len([it for it in log(tmp_path) if "changed" in it]) == 1


def test_stopped_and_resumed_after_a_change_it_has_the_same_bits(
    config: Path, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for name in (whole, cut):
        shutil.copytree(tmp_path / "run", name)
    new = words(*FIRST, *THEN)
    znnpy("train", config, *new, "--set", f"run.directory={whole}")
    znnpy("train", config, *new, "--set", f"run.directory={cut}")
    newest, *_ = listed(cut / "checkpoints")
    newest.unlink()
    znnpy("train", config, *new, "--set", f"run.directory={cut}")
    assert state(cut) == state(whole)
    # From before the change: it holds from there on, and the log says so.
    for path in listed(cut / "checkpoints"):
        if int(path.name[10:19]) > 3:
            path.unlink()
    znnpy("train", config, *new, "--set", f"run.directory={cut}")
    records = [json.loads(line) for line in (cut / "log.jsonl").read_text().splitlines()]
    assert [it["iteration"] for it in records if "changed" in it] == [3]
    assert [it["iteration"] for it in records if "loss" in it] == list(range(1, 12))


@pytest.mark.slow
def test_ranks_go_on_with_the_same_bits(config: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(tmp_path / "run", alone)
    new = words(*FIRST, *THEN)
    znnpy("train", config, *new, "--set", f"run.directory={alone}")
    line = mpiexec(2, *command("train", config, *new))
    assert started(line, check=False, timeout=SECONDS).returncode == 0
    *found, _, _ = final(tmp_path / "run")
    *wanted, _, _ = final(alone)
    assert found == wanted


def test_other_changes_are_refused_by_key_beside_them(config: Path) -> None:
    before = final(config.parent / "run")
    done = znnpy("train", config, *words(*FIRST, *THEN, "training.clip_norm=1"), code=1)
    assert "changed: training.clip_norm (was nothing, now 1.0). Undo that" in done.stderr
    assert final(config.parent / "run") == before


def test_iterations_alone_leave_the_run_of_more_from_the_start(tmp_path: Path) -> None:
    """With a schedule that does not end with them there is nothing to log."""
    sets = [it for it in FIRST if "schedule" not in it and "validation" not in it]
    sets += ["data.validation=[]"]
    for name, counts in (("once", (9,)), ("twice", (6, 9))):
        (tmp_path / name).mkdir()
        config = write_config(tmp_path / name)
        for count in counts:
            znnpy("train", config, *words(*sets, f"training.iterations={count}"))
    one, other = (state(tmp_path / name / "run") for name in ("once", "twice"))
    assert one == other
    assert np.isfinite(list(rates(tmp_path / "once").values())).all()
