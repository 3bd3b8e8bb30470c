"""Work that any rank can do for all: each does some of it, and tells the others what came out."""

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
"""Of libraries; Python does not show them either."""


def divided(world: World, jobs: Mapping[str, Job]) -> dict[str, Value]:
    """What all jobs find, by name, on every rank; each of them is done by one rank, in turn.

    Values are such as JSON has. Every rank warns of what any job warns of. An error ends the rank that has it, and so
    all of them; DistributedError where ranks come with other names.
    """
    if world.size == 1:
        return {name: job() for name, job in jobs.items()}
    names = list(jobs)
    own = [_done(jobs[name]) for name in names[world.rank :: world.size]]
    told = world.exchange({"names": names, "found": own})
    _refuse_others([it["names"] for it in told])
    found = {}
    for number, name in enumerate(names):
        turn, rank = divmod(number, world.size)
        found[name], words = told[rank]["found"][turn]
        for text in words:
            warnings.warn(text, stacklevel=2)
    return found


def _done(job: Job) -> tuple[Value, list[str]]:
    """What a job finds, and warns people of."""
    with warnings.catch_warnings(record=True) as said:
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
