"""Worker threads of each rank: its share of the cores that several ranks of a host have in common."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

from znnpy.scheduler.core_count import available_cores


class Place(NamedTuple):
    """Where a rank runs: its host, and the cores that it may use."""

    host: str
    cores: Sequence[int]

    @classmethod
    def here(cls) -> Place:
        """Return the place of this process."""
        return cls(socket.gethostname(), sorted(os.sched_getaffinity(0)))

    def shares(self, other: Place) -> bool:
        """Return whether some cores are those of another rank too."""
        return self.host == other.host and not set(self.cores).isdisjoint(other.cores)


def threads_of(places: Sequence[Place], rank: int) -> int:
    """Return the number of threads of a rank: an equal share among the ranks with the same cores."""
    # Counted with itself, as a rank shares its cores with itself.
    return available_cores(sum(places[rank].shares(other) for other in places))
