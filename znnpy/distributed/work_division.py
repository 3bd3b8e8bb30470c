"""Divides jobs among ranks: each job is done by one rank, and all get all results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import zip_longest

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.serialization import Value
from znnpy.distributed.world import World

Job = Callable[[], Value]
_FOR_PROGRAMMERS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)
"""Warnings of libraries that Python does not show either."""


def divided(world: World, jobs: Mapping[str, Job]) -> dict[str, Value]:
    """Return the results of all jobs, by name, on every rank; each job is done by one rank, in turn.

    Results are JSON values. Every rank repeats the warnings of all jobs. An error ends the rank that has it, and so
    all of them; raises DistributedError where ranks have other names of jobs.
    """
    if world.size == 1:
        return {name: job() for name, job in jobs.items()}
    names = list(jobs)
    # In turn, so that neighbours in the list, often of one size, are on different ranks.
    own = [_done(jobs[name]) for name in names[world.rank :: world.size]]
    told = world.exchange({"names": names, "found": own})
    # Before results are used: other names would be other files.
    _refuse_others([it["names"] for it in told])
    found = {}
    for number, name in enumerate(names):
        turn, rank = divmod(number, world.size)
        found[name], words = told[rank]["found"][turn]
        for text in words:
            warnings.warn(text, stacklevel=2)
    return found


def _done(job: Job) -> tuple[Value, list[str]]:
    """Return a job's result and its warnings."""
    with warnings.catch_warnings(record=True) as said:
        # Always: Python would show a warning once for each place, and another rank never.
        warnings.simplefilter("always")
        for kind in _FOR_PROGRAMMERS:
            warnings.simplefilter("ignore", kind)
        found = job()
    return found, [str(it.message) for it in said]


def _refuse_others(names: list[list[str]]) -> None:
    for rank, other in enumerate(names):
        if other != names[0]:
            pairs = zip_longest(names[0], other, fillvalue="no more")
            first = next(pair for pair in pairs if pair[0] != pair[1])
            raise DistributedError(
                f"rank 0 sees {first[0]}, but rank {rank} sees {first[1]}; the same files must be under the same "
                "paths on all hosts"
            )
