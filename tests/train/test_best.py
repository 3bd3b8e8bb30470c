"""The best checkpoint of a run, early stopping, and which checkpoint commands read."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import Forked, command, final, untimed, write_config, znnpy
from standin import PACE, LinearModel, batches, newest

from znnpy.config import load_config
from znnpy.errors import ConfigError, RunError
from znnpy.infer.config_model import training_model
from znnpy.metrics.metric import METRICS
from znnpy.network import trained_network
from znnpy.train import checkpoint as checkpoints
from znnpy.train.best import Best, best_of, metric_of
from znnpy.train.log import RunLog, drop_after, up_to
from znnpy.train.loop import Loop
from znnpy.train.patch_sources import open_sampler
from znnpy.train.progress import Quiet
from znnpy.train.run_writer import Pace, RunKeeper
from znnpy.train.session import train
from znnpy.train.signals import StopSignals
from znnpy.train.start import read_run

Scores = Callable[[int], float]


def bests(folder: Path) -> list[int]:
    """Iterations of the best checkpoints that there are, the last first."""
    return [int(path.name[10:19]) for path in checkpoints.listed(folder / "best")]


def run(
    folder: Path, scores: Scores, stop_at: int | None = None, patience: int | None = None
) -> int:
    """Train a linear model with validations by these scores; saved each 10, validated each 7 iterations."""
    saved = folder / "checkpoints"
    saved.mkdir(exist_ok=True, parents=True)
    model, found = LinearModel(), newest(saved)
    if found:
        model.iteration = found.iteration
        model.set_parameters(found.parameters)
        model.set_optimizer_state(found.optimizer_state)
    drop_after(folder / "log.jsonl", model.iteration)
    checkpoints.discard_newer(folder / "best", model.iteration)
    records = [r for r in up_to(folder / "log.jsonl", model.iteration) if "validation" in r]
    best = Best(patience=patience)
    best.take(records)
    pace = Pace(**(PACE | {"patient": patience is not None}))
    with (
        RunLog(folder / "log.jsonl") as log,
        RunLog(folder / "timings.jsonl") as timings,
        StopSignals() as stop,
    ):
        keeper = RunKeeper(
            saved, (log, timings), pace, lambda _: 0.1, Quiet(), model.iteration if found else -1,
            best=best,
        )  # fmt: skip
        loop = Loop(
            model, batches(model.iteration, stop_at), pace, lambda _: 0.1, keeper, stop,
            lambda: {"loss": scores(model.iteration)},
            max((r["iteration"] for r in records), default=0),
        )  # fmt: skip
        return loop.run()


def kept(folder: Path) -> Any:
    """All that must be the same in the end."""
    files = [*sorted((folder / "checkpoints").iterdir()), *sorted((folder / "best").iterdir())]
    return [(it.name, it.read_bytes()) for it in files], untimed(folder / "log.jsonl")


def ended(folder: Path) -> Any:
    """What is the same wherever a run was stopped: the log, the newest checkpoint and the best one."""
    found = [checkpoints.listed(folder / name)[0] for name in ("checkpoints", "best")]
    return [(it.name, it.read_bytes()) for it in found], untimed(folder / "log.jsonl")


# Of validations after 7, 14, 21, 28 and 30 iterations.
SCORES: dict[str, dict[int, float]] = {
    "falls": {7: 5.0, 14: 4.0, 21: 3.0, 28: 2.0, 30: 1.0},
    "turns": {7: 3.0, 14: 2.0, 21: 2.0, 28: 2.5, 30: 2.25},
    "rises": {7: 1.0, 14: 2.0, 21: 3.0, 28: 4.0, 30: 5.0},
}


@pytest.mark.parametrize(
    ("name", "iteration"), [("falls", 30), ("turns", 14), ("rises", 7)], ids=str
)
def test_the_best_is_kept(tmp_path: Path, name: str, iteration: int) -> None:
    assert run(tmp_path, SCORES[name].__getitem__) == 30
    assert bests(tmp_path)[0] == iteration


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("stop_at", [6, 7, 12, 13, 14, 22, 28])
def test_a_run_that_was_stopped_keeps_the_same(tmp_path: Path, name: str, stop_at: int) -> None:
    scores = SCORES[name].__getitem__
    run(tmp_path / "whole", scores)
    run(tmp_path / "cut", scores, stop_at=stop_at)
    run(tmp_path / "cut", scores)
    assert ended(tmp_path / "cut") == ended(tmp_path / "whole")


@pytest.mark.parametrize(("name", "end"), [("falls", 30), ("turns", 28), ("rises", 21)])
@pytest.mark.parametrize("stop_at", [None, 9, 21])
def test_training_ends_once_validations_are_no_better(
    tmp_path: Path, name: str, end: int, stop_at: int | None
) -> None:
    scores = SCORES[name].__getitem__
    if stop_at is not None:
        run(tmp_path, scores, stop_at=stop_at, patience=2)
    assert run(tmp_path, scores, patience=2) == end
    assert checkpoints.listed(tmp_path / "checkpoints")[0].name == f"iteration-{end:09d}.npz"
    run(tmp_path / "whole", scores, patience=2)
    assert untimed(tmp_path / "log.jsonl") == untimed(tmp_path / "whole/log.jsonl")


def test_each_checkpoint_that_is_kept_has_the_best_of_its_time(tmp_path: Path) -> None:
    """A damaged newest one costs the best no more than itself."""
    run(tmp_path, SCORES["falls"].__getitem__)
    saved = checkpoints.listed(tmp_path / "checkpoints")
    assert ([it.name[-6:-4] for it in saved], bests(tmp_path)) == (["30", "20"], [30, 14])
    whole = kept(tmp_path)
    saved[0].unlink()
    run(tmp_path, SCORES["falls"].__getitem__)
    assert kept(tmp_path) == whole


def test_scores_that_are_none_are_no_better() -> None:
    best = Best(score="average_precision", higher=True, patience=2)
    assert best.add(1, {"loss": 1.0, "average_precision": 0.5})
    for odd in (None, "0.9", float("nan"), True, 0.5):
        assert not best.add(2, {"average_precision": odd})
    assert best.enough
    assert best.add(3, {"average_precision": 0.75})
    assert (best.iteration, best.value, best.since, best.enough) == (3, 0.75, 0, False)


SETS = (
    "training.iterations=8",
    "training.validation={every: 3, patches: 2, score: average_precision}",
    "run.checkpoint={every: 4, keep: 3}",
    "run.threads=1",
)
WORDS = [word for value in SETS for word in ("--set", value)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    znnpy("train", write_config(folder), *WORDS)
    return folder


def validations(folder: Path) -> dict[int, dict[str, float]]:
    lines = map(json.loads, (folder / "run/log.jsonl").read_text().splitlines())
    return {it["iteration"]: it["validation"] for it in lines if "validation" in it}


def test_final_weights_are_validated_and_the_best_by_a_metric_is_kept(trained: Path) -> None:
    found = validations(trained)
    assert list(found) == [3, 6, 8]
    scores = {at: it["average_precision"] for at, it in found.items()}
    assert bests(trained / "run")[0] == max(scores, key=scores.__getitem__)


def test_a_metric_of_patches_is_that_of_all_their_voxels(trained: Path) -> None:
    """Of both patches together, as written out here."""
    saved = read_run(trained / "run", Quiet())
    with ExitStack() as stack:
        data = saved.config.data
        sampler = open_sampler(stack, saved.config, saved.network, data.validation, "")
        model = stack.enter_context(training_model(saved.config, saved.network, saved.plan))
        model.set_parameters(saved.checkpoint.parameters)
        batch = sampler.samples([0, 1])
        ranking = np.asarray(model.forward(batch.images)).ravel()
    (target,), (weight,) = batch.targets.values(), batch.weights.values()
    counted, positive = np.broadcast_to(weight, target.shape).ravel(), target.ravel() > 0.5
    wanted = before = 0.0
    for level in np.unique(ranking)[::-1]:
        above = ranking >= level
        right = float(counted[above & positive].sum())
        wanted += (right - before) * right / float(counted[above].sum())
        before = right
    assert validations(trained)[8]["average_precision"] == pytest.approx(wanted / before, rel=1e-5)


def test_commands_read_the_checkpoint_that_is_asked_for(trained: Path) -> None:
    run, source = trained / "run", trained / "data.h5"
    best = bests(run)[0]
    for words, iteration in (
        ([], 8), (["latest"], 8), (["best"], best), (["4"], 4), ([str(best)], best)
    ):  # fmt: skip
        chosen = ["--checkpoint", *words] if words else []
        said = znnpy("evaluate", run, "--json", *chosen).stdout
        assert json.loads(said)["iteration"] == iteration
        out = trained / f"out-{'-'.join(words)}.h5"
        znnpy("predict", run, "--input", f"{source}:raw", "--output", out, *chosen)
        with h5py.File(out) as file:
            assert file["prediction"].attrs["iteration"] == iteration
    znnpy("view", run, "--checkpoint", "best", "--output", trained / "shown")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["evaluate", "RUN", "--checkpoint", "5"], 1, "no checkpoint of iteration 5 (there are: "),
        (["evaluate", "RUN", "--checkpoint", "last"], 2, "must be best, latest or a number"),
        (["view", "data.h5:raw", "--checkpoint", "best"], 2, "needs a run directory"),
    ],
)
def test_a_checkpoint_that_is_none_is_refused(
    trained: Path, words: list[str], code: int, said: str
) -> None:
    named = {"RUN": trained / "run", "data.h5:raw": f"{trained / 'data.h5'}:raw"}
    done = znnpy(*(named.get(word, word) for word in words), code=code)
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_a_run_without_validation_has_no_best(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    znnpy("train", config, *WORDS, "--set", "data.validation=[]", "--set", "training.iterations=1")
    with pytest.raises(RunError, match=r"no best checkpoint of .* data\.validation"):
        read_run(tmp_path / "run", Quiet(), which="best")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("score", "average_precison", r"validation.score: .*did you mean 'average_precision'"),
        ("score", "voi", r"allowed: loss, voxel_error, average_precision"),
        ("patience", "3", r"validation.patience: needs a volume in data.validation"),
    ],
)
def test_what_cannot_be_scored_is_refused(tmp_path: Path, key: str, value: str, words: str) -> None:
    sets = [f"training.validation.{key}={value}"]
    sets += ["data.validation=[]"] if key == "patience" else []
    config = load_config(write_config(tmp_path), sets)
    with pytest.raises(ConfigError, match=words):
        best_of(config, trained_network(config))
    words_of = [word for it in sets for word in ("--set", it)]
    for name in ("train", "check"):
        assert (
            f"--set training.validation.{key}"
            in znnpy(name, tmp_path / "config.yaml", *words_of, code=1).stderr
        )
    assert not (tmp_path / "run").exists()


def test_an_added_metric_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = replace(METRICS["voxel_error"], name="added", higher=True)
    monkeypatch.setitem(METRICS, "added", added)
    config = load_config(write_config(tmp_path), ["training.validation.score=added"])
    assert metric_of(config, trained_network(config)) is added
    assert best_of(config, trained_network(config)).higher


EARLY = (*WORDS, "--set", "training.validation={every: 1, patches: 1, score: voxel_error, patience: 2}",
         "--set", "training.iterations=60", "--set", "training.learning_rate=1e-9")  # fmt: skip


def test_a_run_that_ended_early_is_finished_until_it_may_go_on(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    done = znnpy("train", config, *EARLY)
    assert "training ends early: 2 validations in a row had no better voxel_error" in done.stderr
    assert "evaluating on" in done.stderr
    ended = int(max((tmp_path / "run/checkpoints").iterdir()).name[10:19])
    assert list(validations(tmp_path)) == list(range(1, ended + 1))
    before = final(tmp_path / "run")
    assert "raise training.validation.patience" in znnpy("train", config, *EARLY).stderr
    assert final(tmp_path / "run") == before
    outcome = train(load_config(config, EARLY[1::2]), reporter=Quiet())
    assert (outcome.finished, outcome.early, outcome.iteration) == (True, True, ended)
    more = ["--set", "training.validation.patience=4", "--set", f"training.iterations={ended + 1}"]
    znnpy("train", config, *EARLY, *more)
    assert list(validations(tmp_path)) == list(range(1, ended + 2))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_end_together_with_the_same_best(tmp_path: Path, ranks: int) -> None:
    split = ("--set", "training.batch=6", "--set", "training.microbatch=1")
    for name in ("alone", "ranks"):
        (tmp_path / name).mkdir()
    znnpy("train", write_config(tmp_path / "alone"), *EARLY, *split)
    config = write_config(tmp_path / "ranks")
    line = mpiexec(ranks, *command("train", config, *EARLY, *split))
    assert subprocess.run(line, check=False, timeout=SECONDS).returncode == 0
    *found, _, _ = final(tmp_path / "ranks/run")
    *wanted, _, _ = final(tmp_path / "alone/run")
    assert found == wanted


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment_best_and_latest_can_be_read(
    trained: Path, tmp_path: Path, seed: int
) -> None:
    config, rng = write_config(tmp_path), random.Random(seed)
    run = tmp_path / "run"
    for _ in range(4):
        with Forked("train", config, *WORDS) as process:
            until = time.monotonic() + rng.uniform(0.2, 2.0)
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        if checkpoints.listed(run / "checkpoints"):
            latest = read_run(run, Quiet()).checkpoint.iteration
            if latest >= 4:
                assert 0 < read_run(run, Quiet(), which="best").checkpoint.iteration <= latest
    znnpy("train", config, *WORDS)
    *found, _, _ = final(run)
    *wanted, _, _ = final(trained / "run")
    assert found == wanted
