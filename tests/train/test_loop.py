import io
import itertools
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from standin import PACE, LinearModel, batches, newest

from znnpy.errors import TrainingError
from znnpy.train import checkpoint as checkpoints
from znnpy.train import run_writer
from znnpy.train.log import RunLog, drop_after, up_to
from znnpy.train.loop import Batch, Loop
from znnpy.train.progress import Plain, Quiet
from znnpy.train.run_writer import Pace, RunKeeper
from znnpy.train.signals import StopSignals


def run(tmp_path, model, stop_at=None, stop_in_validation=None, reporter=None, fed=None, **pace):
    """One process' life: resume what is there, train, return the loop's last iteration."""
    directory = tmp_path / "checkpoints"
    directory.mkdir(exist_ok=True)
    found = newest(directory)
    if found:
        model.iteration = found.iteration
        model.set_parameters(found.parameters)
        model.set_optimizer_state(found.optimizer_state)
    done = found.iteration if found else 0
    assert not drop_after(tmp_path / "log.jsonl", done)
    kept = up_to(tmp_path / "log.jsonl", done)
    validated = max((r["iteration"] for r in kept if "validation" in r), default=0)

    def validate():
        if model.iteration == stop_in_validation:
            os.kill(os.getpid(), signal.SIGINT)
        return None if stop.requested else {"loss": float(model.parameters["w"].sum())}

    def rate(iteration):
        return 0.1 / (1 + iteration)

    with (
        RunLog(tmp_path / "log.jsonl", lambda: 0.0) as log,
        RunLog(tmp_path / "timings.jsonl") as timings,
        StopSignals() as stop,
    ):
        loop = Loop(
            model,
            fed or batches(model.iteration, stop_at),
            Pace(**(PACE | pace)),
            rate,
            RunKeeper(
                directory,
                (log, timings),
                Pace(**(PACE | pace)),
                rate,
                reporter or Quiet(),
                found.iteration if found else -1,
            ),
            stop,
            validate,
            validated,
        )
        return loop.run()


def state(path):
    directory = path / "checkpoints"
    files = [file.read_bytes() for file in checkpoints.listed(directory)]
    return files[0], (path / "log.jsonl").read_text()


@pytest.fixture
def undisturbed(tmp_path):
    path = tmp_path / "undisturbed"
    path.mkdir()
    assert run(path, LinearModel()) == 30
    return state(path)


@pytest.mark.parametrize("stop_at", [0, 6, 7, 13, 20, 29])
def test_stopped_and_resumed_is_bitwise_the_same(tmp_path, undisturbed, stop_at):
    reached = run(tmp_path, LinearModel(), stop_at=stop_at)
    assert reached == stop_at + 1
    assert newest(tmp_path / "checkpoints").iteration == reached
    assert run(tmp_path, LinearModel()) == 30
    assert state(tmp_path) == undisturbed


def test_stopped_in_a_validation_makes_up_for_it(tmp_path, undisturbed):
    assert run(tmp_path, LinearModel(), stop_in_validation=14) == 14
    assert run(tmp_path, LinearModel()) == 30
    assert state(tmp_path) == undisturbed


def test_rates_are_noted_once_a_second(tmp_path, monkeypatch):
    now = itertools.count(0.0, 0.25)
    monkeypatch.setattr(run_writer, "time", SimpleNamespace(monotonic=lambda: next(now)))
    run(tmp_path, LinearModel(), iterations=12)
    lines = (tmp_path / "timings.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [it["seconds"] for it in noted] == [1.0, 2.0, 3.0]
    assert [it["iteration"] for it in noted] == [4, 8, 12]


def test_others_may_go_on_once_a_checkpoint_is_there(tmp_path):
    seen = []
    with (
        RunLog(tmp_path / "log.jsonl", lambda: 0.0) as log,
        RunLog(tmp_path / "timings.jsonl") as timings,
    ):
        kept = RunKeeper(
            tmp_path,
            (log, timings),
            Pace(**PACE),
            lambda _: 0.1,
            Quiet(),
            written=lambda: seen.append(newest(tmp_path).iteration),
        )
        assert kept.save(LinearModel(), 10) is None
        assert kept.save(LinearModel(infinite_weight=0), 20) is None
    assert seen == [10, 20]


def test_log_has_every_update_once_and_the_validations(tmp_path):
    run(tmp_path, LinearModel(), iterations=15, log_every=5)
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [r["iteration"] for r in records if "loss" in r] == [1, 5, 10, 15]
    assert [r["iteration"] for r in records if "validation" in r] == [7, 14, 15]
    assert records[1]["learning_rate"] == 0.1 / 5


def test_two_updates_are_in_flight_and_no_more(tmp_path):
    model = LinearModel()
    run(tmp_path, model)
    assert model.most_in_flight == 2


def test_nan_loss_stops_within_a_step_and_keeps_the_last_good_checkpoint(tmp_path):
    model = LinearModel(poison=25)
    with pytest.raises(TrainingError, match=r"loss is nan at iteration 25; 'w' .*iteration 20"):
        run(tmp_path, model)
    assert model.iteration <= 26
    good = newest(tmp_path / "checkpoints")
    assert good.iteration == 20
    assert all(np.isfinite(array).all() for array in good.parameters.values())


@pytest.mark.parametrize(
    ("what", "value", "words", "slower"),
    [
        ("input", np.nan, r"1 of 12 inputs are not finite, the first nan at \(2, 1\)", False),
        ("target", np.inf, r"1 of 4 targets are not finite, the first inf at \(2,\)", False),
        ("weight", np.nan, r"weights are not finite", False),
        ("input", 1e9, r"inputs reach 1e\+09 in size", False),
        ("input", 0.5, r"inputs from -.* to .*, targets from -.* to ", True),
    ],
)
def test_a_loss_that_is_not_finite_is_blamed_on_what_is_known(tmp_path, what, value, words, slower):
    fed = list(itertools.islice(batches(0), 30))
    arrays = {"input": fed[24].input, "target": fed[24].target, "weight": np.ones(4, np.float32)}
    arrays[what][(2, 1)[: arrays[what].ndim]] = value
    fed[24] = Batch(**arrays)
    with pytest.raises(TrainingError, match=words) as caught:
        run(tmp_path, LinearModel(poison=25), fed=iter(fed))
    assert ("learning_rate" in str(caught.value)) == slower
    assert ("Mend the volumes" in str(caught.value)) != slower


def test_weights_that_overflow_in_the_last_update_are_not_saved(tmp_path):
    with pytest.raises(
        TrainingError, match=r"weight is not finite after iteration 20.*iteration 10"
    ):
        run(tmp_path, LinearModel(infinite_weight=20))
    assert newest(tmp_path / "checkpoints").iteration == 10


def test_plain_progress_says_what_the_issue_asks_for(tmp_path):
    stream = io.StringIO()
    run(tmp_path, LinearModel(), reporter=Plain(stream))
    *_, last, validated = stream.getvalue().splitlines()
    assert "iteration 30: validation  loss" in validated
    for word in ("iteration 30/30", "loss", "voxel error", "updates/s", "voxels/s", "ETA 0:00"):
        assert word in last
