import fcntl
import json
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress

import h5py
import pytest
from small_run import Forked, state, write_config, znnpy

from znnpy.train.loop import Loop
from znnpy.train.validation import Validation

ITERATIONS = 150


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    znnpy("train", write_config(folder, ITERATIONS))
    return folder


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, ITERATIONS)


def copy_run(undisturbed, tmp_path):
    write_config(tmp_path, ITERATIONS)
    text = (undisturbed / "run/config.yaml").read_text()
    subprocess.run(["cp", "-r", undisturbed / "run", tmp_path / "run"], check=True)
    (tmp_path / "run/config.yaml").write_text(text.replace(str(undisturbed), str(tmp_path)))


def lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def waits_for_a_signal(iteration):
    """What has a child's run go no further before a signal has come, however late a busy machine sends it."""

    def patch():
        submit = Loop._submit

        def held(loop):
            while loop._submitted >= iteration and loop._stop.requested is None:
                time.sleep(0.005)
            submit(loop)

        Loop._submit = held

    return patch


def train_until(config, count, number):
    """Train until the log has `count` lines, then send a signal; returns the process's end."""
    log = config.parent / "run/log.jsonl"
    with Forked("train", config, before=waits_for_a_signal(count + 30)) as process:
        while lines(log) < count and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(number)
        _, errors = process.communicate()
    return process.returncode, errors


def test_run_directory_says_what_was_run(undisturbed):
    run = undisturbed / "run"
    versions = json.loads((run / "versions.json").read_text())
    assert {"znnpy", "numpy", "numba", "python", "cpu", "seed"} <= set(versions)
    assert set(json.loads((run / "plan.json").read_text())) == {"conv1", "conv2"}
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["iteration-000000140.npz", "iteration-000000150.npz"]
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert sum("validation" in record for record in records) == ITERATIONS // 30
    steps = [record for record in records if "loss" in record]
    assert [step["iteration"] for step in steps] == list(range(1, ITERATIONS + 1))
    first, last = (sum(step["loss"] for step in part) for part in (steps[:20], steps[-20:]))
    assert last < 0.95 * first
    assert (run / "prediction.png").read_bytes().startswith(b"\x89PNG")
    scores = json.loads((run / "result.json").read_text())["evaluations"][0]["scores"]
    assert set(scores) == {"network", "predicting the mean", "thresholding raw"}


def test_a_terminal_that_is_closed_stops_and_saves(config):
    """The kernel tells the process, and so does a shell; nothing can be shown any more."""
    ours, theirs = pty.openpty()

    def terminal():
        waits_for_a_signal(65)()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.close(ours)
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        for number in (1, 2):
            os.dup2(theirs, number)
        sys.stdout, sys.stderr = (open(n, "w", 1, closefd=False) for n in (1, 2))  # noqa: SIM115

    with Forked("train", config, before=terminal) as process:
        os.close(theirs)
        os.set_blocking(ours, False)
        while lines(config.parent / "run/log.jsonl") < 35 and process.poll() is None:
            with suppress(BlockingIOError):
                os.read(ours, 1 << 16)
            time.sleep(0.001)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        process.communicate()
    name, _, log = state(config.parent / "run")
    assert process.returncode == 128 + signal.SIGHUP
    assert name == f"iteration-{json.loads(log.splitlines()[-1])['iteration']:09}.npz"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_times_it_ends_bitwise_the_same(undisturbed, config, seed):
    rng = random.Random(seed)
    at, killed = 0, 0
    for _ in range(3):
        at += rng.randrange(1, 50)
        code, _ = train_until(config, at, signal.SIGKILL)
        killed += code == -signal.SIGKILL
    znnpy("train", config)
    assert killed
    assert state(config.parent / "run") == state(undisturbed / "run")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_by_a_signal_it_saves_says_so_and_goes_on(undisturbed, config, number, code):
    ended, errors = train_until(config, 33, number)
    assert ended == code
    assert f"go on with: znnpy train {config}" in errors
    name = max(path.name for path in (config.parent / "run/checkpoints").iterdir())
    assert f"stopped at iteration {int(name[10:19])} of {ITERATIONS}" in errors
    znnpy("train", config)
    assert state(config.parent / "run") == state(undisturbed / "run")


def test_a_signal_in_the_last_validation_ends_it_and_the_next_start_makes_it(config, monkeypatch):
    """All updates are done, and the run is not: neither that validation nor the scores are there."""
    sets = ("training.iterations=2", "training.validation={every: 9, patches: 1}")
    words = ["train", config, *(word for it in sets for word in ("--set", it))]
    scores = Validation._scores

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return scores(self)

    with monkeypatch.context() as patch:
        patch.setattr(Validation, "_scores", interrupted)
        said = znnpy(*words, code=128 + signal.SIGTERM).stderr
    assert "stopped at iteration 2 of 2" in said
    assert not (config.parent / "run/result.json").exists()
    znnpy(*words)
    assert (config.parent / "run/result.json").exists()
    records = map(json.loads, (config.parent / "run/log.jsonl").read_text().splitlines())
    assert [it["iteration"] for it in records if "validation" in it] == [2]


@pytest.mark.slow
def test_threads_do_not_change_the_bits(undisturbed, config):
    znnpy("train", config, "--threads", 3, "--set", "run.steal_seed=7")
    assert state(config.parent / "run") == state(undisturbed / "run")


@pytest.mark.slow
def test_a_finished_run_says_so_at_once_and_more_iterations_go_on(undisturbed, config):
    words = ["train", config, "--set", "training.iterations=90"]
    result = config.parent / "run/result.json"
    assert "evaluating on" in znnpy(*words).stderr
    first = result.read_bytes()
    again = znnpy(*words)
    assert "finished, 90 iterations" in again.stderr
    assert str(result) in again.stderr
    assert "evaluating" not in again.stderr
    for damaged in (None, b'{"iteration"', first.replace(b"90", b"60")):  # killed while evaluating
        result.unlink()
        if damaged is not None:
            result.write_bytes(damaged)
        assert "loss" in znnpy(*words).stdout
        assert result.read_bytes() == first
    done = znnpy("train", config)
    assert "evaluating" in done.stderr
    assert state(config.parent / "run")[2] == state(undisturbed / "run")[2]


@pytest.mark.slow
def test_what_is_evaluated_in_the_end_is_said(config):
    def ended(*changes):
        sets = [
            word for change in ("training.iterations=1", *changes) for word in ("--set", change)
        ]
        return znnpy("train", config, "--overwrite", *sets)

    assert "evaluating on" in ended().stderr
    assert "(data.validation)" in ended().stderr
    done = ended("data.test=[]")
    assert "no final evaluation: data.test is []" in done.stderr
    assert "voxel error" not in done.stdout
    assert not (config.parent / "run/result.json").exists()
    volume = f"{{image: {config.parent}/data.h5:raw}}"
    assert "no volume of data.test has labels" in ended(f"data.test=[{volume}]").stderr
    assert "names a volume" in ended("data.validation=[]").stderr


@pytest.mark.slow
def test_a_test_volume_that_is_too_small_is_refused_before_training(config):
    """Not after days of it."""
    with h5py.File(config.parent / "data.h5", "a") as file:
        file["small"], file["few"] = file["raw"][:1], file["labels"][:1]
    test = "data.test=[{image: %s:small, labels: %s:few}]" % ((config.parent / "data.h5",) * 2)
    refused = znnpy("train", config, "--set", test, code=1)
    assert "less than the receptive field (field of view)" in refused.stderr
    assert not (config.parent / "run").exists()


def test_changed_config_is_refused_by_key_and_overwrite_starts_anew(undisturbed, tmp_path):
    copy_run(undisturbed, tmp_path)
    config = tmp_path / "config.yaml"
    other = ["--set", "training.batch=1", "--set", "training.clip_norm=1"]
    other += ["--set", "augment.flips=[x]"]
    before = state(tmp_path / "run")
    done = znnpy("train", config, *other, code=1)
    assert "changed: " in done.stderr
    assert "training.batch" in done.stderr
    assert "training.clip_norm" in done.stderr
    assert "augment.flips" not in done.stderr
    assert state(tmp_path / "run") == before
    znnpy("train", config, *other, "--set", "training.iterations=3", "--overwrite")
    assert state(tmp_path / "run")[0] == "iteration-000000003.npz"


@pytest.mark.slow
def test_damaged_newest_checkpoint_falls_back_and_ends_the_same(undisturbed, tmp_path):
    copy_run(undisturbed, tmp_path)
    newest = max((tmp_path / "run/checkpoints").glob("*.npz"))
    newest.write_bytes(newest.read_bytes()[:-100])
    done = znnpy("train", tmp_path / "config.yaml")
    assert f"{newest.name} is damaged" in done.stderr
    assert state(tmp_path / "run") == state(undisturbed / "run")


@pytest.mark.slow
def test_nan_stops_names_the_layer_and_keeps_the_last_good_checkpoint(config):
    done = znnpy("train", config, "--set", "training.learning_rate=1e30", code=1)
    assert "is the first layer with a value that is not finite" in done.stderr
    assert "Traceback" not in done.stderr
    names = [path.name for path in (config.parent / "run/checkpoints").iterdir()]
    assert names == ["iteration-000000000.npz"]
