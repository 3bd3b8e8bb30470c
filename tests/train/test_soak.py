"""`scripts/soak`: a few of its faults, and that it sees what is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from soaking.disk import Disk  # noqa: E402
from soaking.faults import FAULTS  # noqa: E402
from soaking.jobs import Prediction, Training  # noqa: E402
from soaking.process import Ending, WrongError  # noqa: E402

LINES = [json.dumps({"iteration": n, "loss": 0.5}).encode() for n in range(1, 5)]


@pytest.fixture
def training(tmp_path: Path) -> Training:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    for number in (20, 40):
        (folder / f"iteration-{number:09d}.npz").write_bytes(b"weights")
    (tmp_path / "run/log.jsonl").write_bytes(b"\n".join(LINES) + b"\n")
    return Training(tmp_path / "config.yaml", tmp_path / "run")


def test_lost_checkpoints_and_changed_weights_are_seen(training: Training) -> None:
    whole = training.result()
    training.watch()
    training.compare(whole)
    training.checkpoints[0].write_bytes(b"others")
    with pytest.raises(WrongError, match="iteration-000000040"):
        training.compare(whole)
    training.checkpoints[0].unlink()
    with pytest.raises(WrongError, match="checkpoint 40 was there"):
        training.watch()


def test_a_damaged_checkpoint_may_go_but_not_the_one_before(training: Training) -> None:
    training.watch()
    training.checkpoints[0].write_bytes(b"other weights")
    training.forget_newest()
    training.watch()  # it still lies there
    training.checkpoints[0].unlink()
    training.watch()
    training.checkpoints[0].unlink()
    with pytest.raises(WrongError, match="checkpoint 20 was there"):
        training.watch()


def test_records_may_only_be_lost_if_they_were_damaged_and_are_kept(training: Training) -> None:
    whole = training.result()
    training.log.write_bytes(b"\n".join([*LINES[:1], *LINES[2:]]) + b"\n")
    with pytest.raises(WrongError, match="records were lost"):
        training.compare(whole)
    damaged = LINES[1].replace(b":", b"\xff")
    training.harmed.append(LINES[1])
    training.broken.append(damaged)
    with pytest.raises(WrongError, match="kept nowhere"):
        training.compare(whole)
    (training.run / "log.damaged.jsonl").write_bytes(damaged)
    training.compare(whole)


def test_blocks_that_are_computed_again_are_seen(tmp_path: Path) -> None:
    job = Prediction(tmp_path / "run", tmp_path / "stack.h5", tmp_path / "out.h5")
    block = {"event": "block", "lower": [0, 0, 0]}
    start = {"event": "start", "blocks": 4, "left": 4}
    log = tmp_path / "out.h5.log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in (start, block)))
    job.watch()
    with log.open("a") as file:
        file.write(json.dumps(start) + "\n")
    with pytest.raises(WrongError, match="1 blocks were finished, but 4 are left"):
        job.watch()


def test_the_disk_fails_when_it_is_armed(tmp_path: Path) -> None:
    disk = Disk.made(tmp_path)
    if disk is None:
        pytest.skip("no C compiler to make the library that is preloaded")
    words = [sys.executable, "-c", "open('file', 'w').write('x')"]
    for failure, said in ((errno.EIO, "Input/output error"), (None, "")):
        if failure is None:
            disk.disarm()
        else:
            disk.arm(0, failure)
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **disk.environment},
        )
        assert (said in done.stderr) if said else done.returncode == 0, done.stderr


def test_unclear_ends_are_seen() -> None:
    Ending(1, "predicting\nznnpy: File too large\n").require({0, 1}, "too large")
    for ending in (
        Ending(3, ""),
        Ending(0, "Traceback (most recent call last)"),
        Ending(1, ""),
        Ending(1, "znnpy: one\nznnpy: two\n"),
        Ending(1, "znnpy: something else\n"),
    ):
        with pytest.raises(WrongError):
            ending.require({0, 1}, "too large")


@pytest.mark.slow
def test_some_faults(tmp_path: Path) -> None:
    quick = ",".join(
        sorted(set(FAULTS) - {"cache", "log"})
    )  # to compile all kernels takes its time
    words = ["--faults", "2", "--every", "1", "--seed", "5", "--kinds", quick]
    words += ["--directory", str(tmp_path / "soak")]
    done = subprocess.run(
        [sys.executable, SCRIPTS / "soak", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 faults" in done.stdout
