"""What ranks settle: microbatches, shares of a batch, the state to begin from, when to stop."""

import signal
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from small_run import write_config

from znnpy.config import dump, load_config
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.transfers import Carried
from znnpy.distributed.world import World
from znnpy.errors import ConfigError, RunError
from znnpy.train.checkpoint import Checkpoint, Contents
from znnpy.train.consensus import (
    CommonStop,
    state_as_bytes,
    state_from_bytes,
    with_microbatch,
)
from znnpy.train.npz_reader import Kind
from znnpy.train.progress import Quiet
from znnpy.train.run_directory import RunDirectory

ALONE = "network.layers.0.conv.norm=instance"  # of each sample


def of(rank, size):
    return SimpleNamespace(rank=rank, size=size)


def test_a_run_keeps_the_microbatch_that_it_began_with(tmp_path):
    config = load_config(write_config(tmp_path), ("training.batch=8", ALONE))
    given = load_config(tmp_path / "config.yaml", ("training.batch=8", "training.microbatch=2"))
    with RunDirectory.open(tmp_path / "run") as run:
        assert with_microbatch(config, run, World(), Quiet()) == config
        assert with_microbatch(given, run, of(0, 2), Quiet()) == given
        begun = with_microbatch(config, run, of(0, 2), Quiet())
        assert begun.training.microbatch == 4
        run.begin(dump(begun), {})
        for ranks in (1, 2):
            assert with_microbatch(config, run, of(0, ranks), Quiet()) == begun
        with pytest.raises(RunError, match="in 2 microbatches, so that 2 ranks at most can go on"):
            with_microbatch(config, run, of(0, 3), Quiet())


def test_a_run_keeps_the_microbatch_that_was_chosen_for_it(tmp_path):
    words = ("training.batch=8", "training.microbatch=auto", ALONE, "run.threads=64")
    config, noted = load_config(write_config(tmp_path), words), []
    with RunDirectory.open(tmp_path / "run") as run:
        begun = with_microbatch(config, run, World(), SimpleNamespace(note=noted.append))
        chosen = begun.training.microbatch
        assert isinstance(chosen, int)
        assert f"training.microbatch: auto is {chosen}" in noted[0]
        other = 4 if chosen != 4 else 2
        kept = begun.training.model_copy(update={"microbatch": other})
        run.begin(dump(begun.model_copy(update={"training": kept})), {})
        alone = load_config(tmp_path / "config.yaml", (*words[:3], "run.threads=1"))
        assert with_microbatch(alone, run, World(), Quiet()).training.microbatch == other
        assert len(noted) == 1


@pytest.mark.parametrize("batch", [2, 6, 16])
def test_another_batch_is_left_to_the_refusal_of_changes(tmp_path, batch):
    """It is no matter of ranks and microbatches, which may not divide it."""
    words = ("training.batch=8", "training.microbatch=4", ALONE)
    begun = load_config(write_config(tmp_path), words)
    with RunDirectory.open(tmp_path / "run") as run:
        run.begin(dump(begun), {})
        other = (f"training.batch={batch}", "training.microbatch=auto", ALONE)
        found = with_microbatch(load_config(tmp_path / "config.yaml", other), run, World(), Quiet())
        assert (found.training.batch, found.training.microbatch) == (batch, 4)


@pytest.mark.parametrize("shards", [False, True])
def test_the_same_bits_are_promised_where_all_ranks_draw_the_same_samples(tmp_path, shards):
    words = ("training.batch=8", ALONE, "data.shards={exchange: 7}")[: 2 + shards]
    noted = []
    with RunDirectory.open(tmp_path / "run") as run:
        told = SimpleNamespace(note=noted.append)
        with_microbatch(load_config(write_config(tmp_path), words), run, of(0, 2), told)
    (words,) = noted
    assert "training.microbatch is 4, so that each of 2 ranks has one" in words
    assert ("the same bits" in words) is not shards


def test_statistics_that_ranks_would_split_unsaid_are_refused(tmp_path):
    config = load_config(write_config(tmp_path), ("training.batch=8",))
    with RunDirectory.open(tmp_path / "run") as run:
        with_microbatch(config, run, World(), Quiet())
        with pytest.raises(ConfigError) as refused:
            with_microbatch(config, run, of(0, 4), Quiet())
        auto = load_config(
            tmp_path / "config.yaml", ("training.batch=8", "training.microbatch=auto")
        )
        with pytest.raises(ConfigError, match=r"training\.microbatch: is auto, and node 'layer1'"):
            with_microbatch(auto, run, of(0, 4), Quiet())
        for microbatch in (2, 1):
            given = f"training.microbatch={microbatch}"
            said = load_config(tmp_path / "config.yaml", ("training.batch=8", given))
            assert with_microbatch(said, run, of(0, 4), Quiet()) == said
    assert "training.microbatch: is not set, and node 'layer1' normalises" in str(refused.value)
    assert "all 8 of a batch with one rank, 2 with 4" in str(refused.value)


def test_more_ranks_than_microbatches_are_refused(tmp_path):
    config = load_config(write_config(tmp_path), ("training.batch=12", "training.microbatch=2"))
    with RunDirectory.open(tmp_path / "run") as run:
        with_microbatch(config, run, of(0, 6), Quiet())
        with pytest.raises(DistributedError, match="6 microbatches is too small for 7"):
            with_microbatch(config, run, of(0, 7), Quiet())


def test_a_state_goes_over_as_it_is():
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([np.pi])}
    kinds = {name: Kind(array.shape, array.dtype) for name, array in arrays.items()}
    contents = Contents(kinds, {"a/momentum": kinds["a"]})
    state = {"a/momentum": arrays["a"] * 2}
    data = state_as_bytes(Checkpoint(3, arrays, state, 0.1, 0, 3), contents)
    for found, expected in zip(state_from_bytes(data, contents), (arrays, state), strict=True):
        assert {name: (a.dtype, a.tolist()) for name, a in found.items()} == {
            name: (a.dtype, a.tolist()) for name, a in expected.items()
        }


class Others:
    """Two ranks, of which the other one has a signal from some question on."""

    def __init__(self, at):
        self.asked, self._at = [], at
        self.messenger = SimpleNamespace(carried=Carried(3, 4000, 0.5))

    def begin_exchange(self, value):
        answer, number = Future(), signal.SIGTERM if len(self.asked) >= self._at else None
        answer.set_result([value, [number, 3, 4096, 0.25]])
        self.asked.append(value[0])
        return answer


def test_all_stop_when_one_rank_has_a_signal():
    signals = SimpleNamespace(requested=None)
    stop = CommonStop(signals, Others(2))
    assert [stop.agreed() for _ in range(5)] == [None] * 3 + [signal.SIGTERM] * 2
    first, second = stop.timings()["ranks"]
    assert first == {"rank": 0, "messages": 3, "bytes": 4000, "seconds": 0.5}
    assert second == {"rank": 1, "messages": 3, "bytes": 4096, "seconds": 0.25}


def test_what_only_this_rank_knows_stops_nothing_yet():
    signals, others = SimpleNamespace(requested=signal.SIGINT), Others(100)
    stop = CommonStop(signals, others)
    assert (stop.agreed(), stop.requested) == (None, None)
    assert stop.agreed() == stop.requested == signal.SIGINT
    assert others.asked == [signal.SIGINT] * 2
