"""What the communication thread waits for: requests of MPI, each with what follows from it, and moments."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence

from znnpy.distributed.mpi import MPI


class Pending:
    """Requests that are under way and what is due later; for one thread.

    `active`: when anything has happened last, of `time.monotonic`.
    """

    def __init__(self) -> None:
        self.requests: list[MPI.Request] = []
        self._complete: list[Callable[[], None]] = []  # what to do when each request is
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.active = 0.0

    @property
    def until(self) -> float:
        """When the next thing is due, of `time.monotonic`; infinite if nothing is."""
        return self._timed[0][0] if self._timed else math.inf

    def wait_for(self, request: MPI.Request, then: Callable[[], None]) -> None:
        """Call `then` once a request is complete."""
        self.requests.append(request)
        self._complete.append(then)
        self.active = time.monotonic()

    def complete(self, found: Sequence[int]) -> None:
        """Do what follows from the requests at these places, which are complete."""
        if not found:
            return
        self.active = time.monotonic()
        # All taken out before any is run: what follows from one may start new requests, and change these lists.
        complete, gone = [self._complete[index] for index in found], set(found)
        self.requests = [it for index, it in enumerate(self.requests) if index not in gone]
        self._complete = [it for index, it in enumerate(self._complete) if index not in gone]
        for what in complete:
            what()

    # At once where nothing delays it: a detour through the heap would change the order.
    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call a function after some seconds."""
        if seconds <= 0:
            what()
        else:
            heapq.heappush(self._timed, (time.monotonic() + seconds, next(self._order), what))

    def run_due(self) -> None:
        """Call what is due by now."""
        while self._timed and self._timed[0][0] <= time.monotonic():
            heapq.heappop(self._timed)[2]()
