"""Prefetching: prepares batches in background threads while updates run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from znnpy.closing import Closing
from znnpy.data.sampling.sample import Patch

Float32 = NDArray[np.float32]


class Source(Protocol):
    """A source of patches; `Sampler` is one."""

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return patches by number, stacked: (number, C, z, y, x) by node."""


@dataclass(frozen=True)
class Batch:
    """The patches of one update, float32 (batch, C, z, y, x) by node; owned by whoever took it."""

    iteration: int
    images: dict[str, Float32]
    targets: dict[str, Float32]
    weights: dict[str, Float32]


def make_batch(source: Source, iteration: int, batch: int, own: range | None = None) -> Batch:
    """Return batch number `iteration`: samples iteration * batch and the batch - 1 after it, or `own` of these."""
    taken = range(batch) if own is None else own
    found = source.samples([iteration * batch + index for index in taken])
    return Batch(iteration, found.images, found.targets, found.weights)


class Prefetcher(Closing):
    """Iterates over batches start, start + 1, ... (below `stop`) in order, up to `depth` of them prepared ahead.

    Threads prepare, one consumer iterates. There is one thread until the consumer waits for a batch behind the first;
    then there is one more each time, up to `depth` + 1. An error while preparing is raised in the consumer when it
    comes to that batch, and again if it goes on. Use as a context manager, or call `close`; iterating afterwards ends.
    There is no random state here: to go on from iteration n, start at n. `own` as in `make_batch`: each of several
    ranks draws what it trains on.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        start: int = 0,
        depth: int = 2,
        own: range | None = None,
        stop: int | None = None,
    ) -> None:
        if batch < 1 or depth < 1 or start < 0:
            raise ValueError(
                f"batch {batch} and depth {depth} must be positive, start {start} >= 0"
            )
        self._source, self._batch, self._depth, self._own = source, batch, depth, own
        self._start, self._stop = start, stop
        # The batch that the consumer takes next, and the one that is begun next.
        self._wanted = self._begun = start
        self._ready: dict[int, Batch | BaseException] = {}
        self._closed = self._failed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._add_thread()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, waiting for it; raise StopIteration after the last one, or once closed."""
        with self._changed:
            if self._late and len(self._threads) <= self._depth:
                self._add_thread()
            self._changed.wait_for(
                lambda: self._wanted in self._ready or self._wanted == self._stop or self._closed
            )
            if self._closed or self._wanted == self._stop:
                raise StopIteration
            found = self._ready[self._wanted]
            if isinstance(found, BaseException):
                raise found
            del self._ready[self._wanted]
            self._wanted += 1
            self._changed.notify_all()
            return found

    def close(self) -> None:
        """Stop the threads after their current samples, and drop prepared batches."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    @property
    def _late(self) -> bool:
        """Whether the consumer is about to wait where another thread would help."""
        waits = self._wanted not in self._ready and self._start < self._wanted != self._stop
        # Where the batch that is waited for is the last one, no thread finds anything to do.
        return waits and self._begun != self._stop and not (self._closed or self._failed)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name="znnpy-prefetch", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        while (iteration := self._begin()) is not None:
            found: Batch | BaseException
            try:
                found = make_batch(self._source, iteration, self._batch, self._own)
            except BaseException as error:
                found = error
            with self._changed:
                if self._closed:
                    return
                self._ready[iteration] = found
                # Batches behind it are never taken.
                self._failed |= isinstance(found, BaseException)
                self._changed.notify_all()

    def _begin(self) -> int | None:
        """Return the number of a batch to prepare, once there is room for it; None: there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._begun <= self._wanted + self._depth or self._over)
            if self._over:
                return None
            self._begun += 1
            return self._begun - 1

    @property
    def _over(self) -> bool:
        return self._closed or self._failed or self._begun == self._stop
