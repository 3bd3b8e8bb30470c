"""What executors write down: which task ran when, where, and how the workers spent the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVENT = np.dtype(
    [("task", np.int64), ("start_ns", np.int64), ("end_ns", np.int64), ("stolen", np.int64)]
)
"""Times are of the clock of `time.monotonic_ns`. stolen: 0 from the worker's own deque (or handed
on directly), 1 from another worker's deque, 2 from the injector (released from outside)."""


@dataclass(frozen=True)
class WorkerRecording:
    """One worker since the start or the last reset; counters count even when events are off."""

    events: NDArray[Any]
    """Structured array of EVENT in the order of execution: the last `record` tasks."""
    executed: int
    """Tasks run; more than len(events) when the ring has wrapped around."""
    steals: int
    failed_steals: int
    """Rounds over all victims that brought nothing."""
    parks: int
    parked_ns: int


def ring_in_order(rows: NDArray[np.int64], executed: int) -> NDArray[Any]:
    """The events of a ring buffer (rows of four words), oldest first, as a structured copy."""
    if len(rows) and executed > len(rows):
        rows = np.roll(rows, -(executed % len(rows)), axis=0)
    used = np.ascontiguousarray(rows[:executed])
    return used.view(EVENT).reshape(-1).copy()
