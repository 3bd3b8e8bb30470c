"""Runs that keep a moving average of their weights: validated, saved, predicted from, resumed, over ranks."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import Forked, command, final, write_config, znnpy

from znnpy import Model
from znnpy.config import load_config
from znnpy.engine import Optimizer
from znnpy.errors import ZnnpyError
from znnpy.infer.config_model import training_model
from znnpy.train.patch_sources import open_sampler
from znnpy.train.progress import Quiet
from znnpy.train.start import SavedRun, read_run

SETS = (
    "training.iterations=12",
    "training.ema=0.9",
    "training.optimizer={kind: adamw, weight_decay: 0.02}",
    "training.learning_rate=0.01",
    "training.schedule={kind: cosine, warmup: 3}",
    "training.validation={every: 5, patches: 2}",
    "training.batch=6",
    "training.microbatch=1",
    "run.checkpoint={every: 4, keep: 9}",
    "run.threads=1",
    "inference.recalibrate=false",  # what is predicted from is what was averaged
)
WORDS = [word for value in SETS for word in ("--set", value)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    znnpy("train", write_config(folder), *WORDS)
    return folder


def at(folder: Path, iteration: int) -> SavedRun:
    return read_run(folder / "run", Quiet(), which=iteration)


def test_averages_are_saved_and_predicted_from(trained: Path) -> None:
    saved = at(trained, 12)
    state, used = saved.checkpoint.optimizer_state, saved.weights.parameters
    learned = [name for name in used if f"{name}/average" in state]
    assert {"conv1", "conv2"} <= set(learned)
    for name, values in used.items():
        wanted = state[f"{name}/average"] if name in learned else saved.checkpoint.parameters[name]
        assert values is wanted
    assert not np.array_equal(used["conv1"], saved.checkpoint.parameters["conv1"])
    raw = read_run(trained / "run", Quiet(), ["training.ema=null"])
    assert raw.weights.parameters["conv1"] is raw.checkpoint.parameters["conv1"]


def test_before_the_first_update_weights_are_used(trained: Path) -> None:
    saved = at(trained, 0)
    assert saved.weights.parameters["conv1"] is saved.checkpoint.parameters["conv1"]


def test_averages_are_validated(trained: Path) -> None:
    """The last validation is that of the saved averages, computed by a model of its own."""
    saved = at(trained, 12)
    with ExitStack() as stack:
        data = saved.config.data.validation
        sampler = open_sampler(stack, saved.config, saved.network, data, "data.validation")
        model = stack.enter_context(training_model(saved.config, saved.network, saved.plan))
        model.set_parameters(saved.weights.parameters)
        batch = sampler.samples(range(6))
        values = np.float64(model.forward(batch.images))[:2]
    (target,), (weight,) = batch.targets.values(), batch.weights.values()
    losses = np.logaddexp(0, values) - target[:2] * values
    wanted = (losses * weight[:2]).sum() / (weight[:2] * np.ones_like(losses)).sum()
    lines = map(json.loads, (trained / "run/log.jsonl").read_text().splitlines())
    found = {it["iteration"]: it["validation"]["loss"] for it in lines if "validation" in it}
    assert list(found) == [5, 10, 12]
    assert found[12] == pytest.approx(wanted, rel=1e-5)


def test_validations_leave_the_weights_as_they_are(trained: Path, tmp_path: Path) -> None:
    znnpy("train", write_config(tmp_path), *WORDS, "--set", "data.validation=[]")
    one, other = at(tmp_path, 12).checkpoint, at(trained, 12).checkpoint
    for group in ("parameters", "optimizer_state"):
        mine, theirs = getattr(one, group), getattr(other, group)
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def whole(run: Path) -> list[object]:
    *found, _, _ = final(run)
    return found


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_and_resumed_it_has_the_same_bits(trained: Path, tmp_path: Path, seed: int) -> None:
    config, rng = write_config(tmp_path), random.Random(seed)
    for _ in range(3):
        with Forked("train", config, *WORDS) as process:
            until = time.monotonic() + rng.uniform(0.3, 2.0)
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.communicate()
    znnpy("train", config, *WORDS)
    assert whole(tmp_path / "run") == whole(trained / "run")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tree", "multicolor"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_ranks_have_the_same_bits(
    trained: Path, tmp_path: Path, ranks: int, strategy: str, shared: str
) -> None:
    own = ["--set", f"distributed={{strategy: {strategy}, shared_memory: {shared}}}"]
    line = mpiexec(ranks, *command("train", write_config(tmp_path), *WORDS, *own))
    assert subprocess.run(line, check=False, timeout=SECONDS).returncode == 0
    assert whole(tmp_path / "run") == whole(trained / "run")


def test_another_decay_is_refused_by_key(trained: Path) -> None:
    before = whole(trained / "run")
    done = znnpy("train", trained / "config.yaml", *WORDS, "--set", "training.ema=0.8", code=1)
    assert "training.ema.decay (was 0.9, now 0.8)" in done.stderr
    assert whole(trained / "run") == before


@pytest.mark.parametrize(("value", "words"), [("1", "less than 1"), ("{decya: 0.9}", "'decay'?")])
def test_what_is_no_decay_is_refused(tmp_path: Path, value: str, words: str) -> None:
    config = write_config(tmp_path)
    said = znnpy("check", config, "--set", f"training.ema={value}", code=1).stderr
    assert "training.ema" in said
    assert words in said


def test_a_model_without_averages_says_so(tmp_path: Path) -> None:
    net = {"layers": [{"conv": {"channels": 1, "size": 1}}]}
    with Model(net, 2, threads=1) as model, pytest.raises(ZnnpyError, match="keeps no average"):
        _ = model.averaged_parameters
    config = load_config(write_config(tmp_path), ["training.ema={decay: 0.5}"])
    assert Optimizer.trained(config.training) == Optimizer("adam", ema=0.5)
