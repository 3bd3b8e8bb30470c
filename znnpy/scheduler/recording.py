"""Records of executors: which task ran when and on which worker, and how workers spent the rest of the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVENT = np.dtype(
    [("task", np.int64), ("start_ns", np.int64), ("end_ns", np.int64), ("stolen", np.int64)]
)
"""Times are of the clock of `time.monotonic_ns`. stolen: 0 from the worker's own deque (or handed
on directly), 1 from another worker's deque, 2 from the injector (released from outside)."""

SEARCH = np.dtype(
    [("start_ns", np.int64), ("park_ns", np.int64), ("end_ns", np.int64), ("failed", np.int64)]
)
"""A time without a task, from the moment the own deques were empty until a task was found or the
worker woke up. park_ns: when it lay down to sleep, 0 if it did not; failed: rounds in vain."""


@dataclass(frozen=True)
class WorkerRecording:
    """The record of one worker since the start or the last reset; counters count even without events."""

    events: NDArray[Any]
    """Structured array of EVENT in the order of execution: the last `record` tasks."""
    executed: int
    """Tasks run; more than len(events) when the ring has wrapped around."""
    steals: int
    failed_steals: int
    """Rounds over all victims that brought nothing."""
    parks: int
    parked_ns: int
    searches: NDArray[Any] = field(default_factory=lambda: np.zeros(0, SEARCH))
    """Structured array of SEARCH in the order of time: the last `record` times without a task."""
    searched: int = 0
    """Searches while events were recorded; more than len(searches) when the ring has wrapped."""


def ring_in_order(
    rows: NDArray[np.int64], written: int, kind: np.dtype[np.void] = EVENT
) -> NDArray[Any]:
    """Return the entries of a ring buffer (rows of four words), oldest first, as a structured copy."""
    # The row that would be written next is the oldest.
    if len(rows) and written > len(rows):
        rows = np.roll(rows, -(written % len(rows)), axis=0)
    used = np.ascontiguousarray(rows[:written])
    return used.view(kind).reshape(-1).copy()
