"""Batches come in order, errors surface, the thread ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import pytest

from znnpy.data.sampling.prefetch import Prefetcher, make_batch
from znnpy.data.sampling.sample import Patch, stacked
from znnpy.errors import VolumeError


class Numbers:
    """Patch k holds k; notes who asked."""

    def __init__(self, broken_at: int = -1) -> None:
        self.asked: list[int] = []
        self.broken_at = broken_at
        self.enough = threading.Event()

    def samples(self, numbers: Sequence[int]) -> Patch:
        return stacked([self.sample(number) for number in numbers])

    def sample(self, index: int) -> Patch:
        if index == self.broken_at:
            raise VolumeError(f"sample {index} is broken")
        self.asked.append(index)
        if len(self.asked) >= 6:
            self.enough.set()
        array = np.full((1, 1, 2, 2), index, np.float32)
        return Patch({"in": array}, {"out": array + 1}, {"out": array + 2})


def test_in_order_from_the_start_given() -> None:
    with Prefetcher(Numbers(), batch=3, start=5) as batches:
        for iteration in range(5, 25):
            batch = next(batches)
            assert batch.iteration == iteration
            expected = [3 * iteration, 3 * iteration + 1, 3 * iteration + 2]
            assert batch.images["in"].shape == (3, 1, 1, 2, 2)
            assert batch.images["in"][:, 0, 0, 0, 0].tolist() == expected
            assert np.array_equal(batch.targets["out"], batch.images["in"] + 1)
            assert np.array_equal(batch.weights["out"], batch.images["in"] + 2)


def test_ends_where_it_shall_and_asks_for_nothing_beyond() -> None:
    source = Numbers()
    with Prefetcher(source, batch=2, start=3, stop=6) as batches:
        assert [batch.iteration for batch in batches] == [3, 4, 5]
        assert list(batches) == []
    assert sorted(source.asked) == list(range(6, 12))  # Two threads may have asked.


def test_prepared_ahead_but_not_further() -> None:
    source = Numbers()
    with Prefetcher(source, batch=2, depth=2) as batches:
        assert source.enough.wait(300)
        with batches._changed:
            assert batches._changed.wait_for(lambda: len(batches._ready) == 3, 300)
        assert source.asked == [0, 1, 2, 3, 4, 5]
    assert source.asked == [0, 1, 2, 3, 4, 5]


def test_error_comes_after_the_batches_before_it() -> None:
    with Prefetcher(Numbers(broken_at=5), batch=2) as batches:
        assert [next(batches).iteration for _ in range(2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(VolumeError, match="sample 5"):
                next(batches)


def test_close_ends_thread_and_iteration() -> None:
    batches = Prefetcher(Numbers(), batch=1, depth=1)
    next(batches)
    batches.close()
    assert not any(thread.is_alive() for thread in batches._threads)
    assert list(batches) == []
    batches.close()


class Late(Numbers):
    """Gives samples 1 and 2 only once so many threads more prepare, and the others late."""

    batches: Prefetcher | None = None  # Not yet known while its first thread begins.

    def sample(self, index: int) -> Patch:
        if index in (1, 2):
            for _ in range(6000):
                if self.batches and len(self.batches._threads) > index:
                    break
                time.sleep(0.01)
            else:
                raise VolumeError("no thread was added")
        time.sleep(0.001)
        return super().sample(index)


@pytest.mark.parametrize("broken_at", [-1, 23])
def test_more_threads_prepare_where_the_consumer_waits(broken_at: int) -> None:
    source, taken = Late(broken_at), []
    with Prefetcher(source, batch=1, depth=2, stop=40) as batches:
        assert len(batches._threads) == 1
        source.batches = batches
        ends = pytest.raises(VolumeError, match="sample 23 is broken")
        with ends if broken_at > 0 else nullcontext():
            for batch in batches:
                assert (batch.images["in"] == batch.iteration).all()
                taken.append(batch.iteration)
        # No more than there are batches to prepare at once.
        assert len(batches._threads) == 3
    last = 40 if broken_at < 0 else broken_at
    assert taken == list(range(last))
    assert sorted(source.asked)[:last] == taken
    assert len(source.asked) <= last + 2 * (broken_at > 0)


def test_close_while_a_consumer_waits() -> None:
    gate = threading.Event()

    class Slow(Numbers):
        def sample(self, index: int) -> Patch:
            gate.wait(300)
            return super().sample(index)

    batches = Prefetcher(Slow(), batch=1)
    got: list[object] = []
    consumer = threading.Thread(target=lambda: got.extend(batches))
    closer = threading.Thread(target=batches.close)
    consumer.start()
    closer.start()
    consumer.join(300)
    gate.set()
    closer.join(300)
    assert got == []
    assert not any(thread.is_alive() for thread in batches._threads)


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"batch": 1, "depth": 0}, {"batch": 1, "start": -1}]
)
def test_wrong_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Prefetcher(Numbers(), **wrong)


def test_make_batch() -> None:
    assert make_batch(Numbers(), 4, 2).images["in"][:, 0, 0, 0, 0].tolist() == [8, 9]
