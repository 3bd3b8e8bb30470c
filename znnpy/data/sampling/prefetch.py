"""Prefetching: prepares batches in a background thread while updates run."""

from __future__ import annotations

import threading
from collections import deque
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

    One thread prepares, one consumer iterates. An error while preparing is raised in the consumer when it comes to
    that batch, and again if it goes on. Use as a context manager, or call `close`; iterating afterwards ends. There
    is no random state here: to go on from iteration n, start at n. `own` as in `make_batch`: each of several ranks
    draws what it trains on.
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
        self._stop = stop
        self._ready: deque[Batch] = deque()
        self._error: BaseException | None = None
        self._closed = self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._work, args=(start,), name="znnpy-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, waiting for it; raise StopIteration after the last one, or once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._error or self._over or self._closed)
            if self._closed or (self._over and not self._ready):
                raise StopIteration
            if not self._ready:
                assert self._error is not None
                raise self._error
            batch = self._ready.popleft()
            self._changed.notify_all()
            return batch

    def close(self) -> None:
        """Stop the thread after its current sample, and drop prepared batches."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self, iteration: int) -> None:
        try:
            while not self._closed and iteration != self._stop:
                batch = make_batch(self._source, iteration, self._batch, self._own)
                if not self._deliver(batch):
                    return
                iteration += 1
            with self._changed:
                self._over = True
                self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _deliver(self, batch: Batch) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
            if self._closed:
                return False
            self._ready.append(batch)
            self._changed.notify_all()
            return True
