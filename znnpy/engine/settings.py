"""Groups of a model's settings: how it is trained, what it runs on, how its tasks are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal

from znnpy.config.problems import Key
from znnpy.config.training_section import DistributedSection
from znnpy.distributed.world import World
from znnpy.engine.progress import Report
from znnpy.errors import ArgumentError

MOST_EVENTS = 1 << 24  # of a worker, which are reserved at once
Precision = Literal["float32", "float64"]
Policy = Literal["critical-path", "distance", "fifo", "lifo", "random", "layers"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained, beside its batch, loss and optimiser."""

    factors: Mapping[str, float] | None = None
    """Factors of the losses of several outputs, which are added, by output node (default: 1 each)."""
    clip_norm: float | None = None
    """Gradients are scaled down to this Euclidean norm over all parameters (default: they are not)."""
    freeze: Sequence[str] = ()
    """Patterns (`*`, `?`) of the names of parameters that updates leave as they are."""
    microbatch: int | None = None
    """Samples that are computed at once, by one fixed plan; must divide the batch (default: the batch).

    An update accumulates the gradients of `batch / microbatch` microbatches. Smaller ones take less memory; they
    set the rounding of sums, and what batch normalisation is over.
    """


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The resources of a model beside its threads: number format, memory, and other processes."""

    precision: Precision = "float32"
    """float32, or float64 by plain NumPy, slow and for checks."""
    max_memory: int | str | None = None
    """Most memory to plan for, in bytes or as "8GiB" (default: no limit).

    Updates that need more compute again in the backward pass what they would have kept (rematerialisation, also
    called activation checkpointing). PlanError when that does not suffice, or the machine has less.
    """
    ranks: World | None = None
    """The processes that train the model together, data parallel (default: this one alone).

    All make the same model. Each takes the samples that `Model.samples` counts; rank 0 plans for all; parameters
    are the same everywhere after every update.
    """
    distributed: DistributedSection | Mapping[str, Any] | None = None
    """How ranks add up gradients (all-reduce): the keys of the section `distributed` of a config."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a model's tasks are run, and what is told of it; but for rounding, results do not depend on it."""

    policy: Policy = "critical-path"
    """Order of ready tasks."""
    steal_seed: int = 0
    """Seed of the order in which idle workers look for tasks."""
    cut_for: int | None = None
    """Workers that shall have enough tasks (default: the model's threads): for many, tasks are short and many.

    So one core shows how long the tasks of 64 would take.
    """
    lean: bool = False
    """Predictions take as little memory as they can, for a little more time.

    What is derived from filters is made anew in each pass, in memory that serves others, too. Large filters wait in a
    temporary file (in TMPDIR, else /var/tmp), or in that in which they were given, from which each pass reads them.
    """
    record: int = 0
    """Events that each worker keeps for `Model.recording`, at most 2**24 (default: none)."""
    report: Report | None = None
    """Called with what is prepared (kernels compiled, layers timed), how much is done, and how much there is.

    Calls may come from other threads.
    """


GROUPS: dict[str, type[Training | Hardware | Execution]] = {
    "training": Training,
    "hardware": Hardware,
    "execution": Execution,
}
"""Groups by the keyword of `Model` that takes one."""

# Names of fields are unique over all groups, so that a bare name in an error tells its place.
HOMES = {key.name: name for name, group in GROUPS.items() for key in fields(group)}
"""The group of each key."""


def place(key: str) -> Key:
    """Return where `Model` takes a setting: in a group, or as a keyword."""
    return (HOMES[key], key) if key in HOMES else (key,)


def refuse_unknown(given: Mapping[str, Any], known: list[str]) -> None:
    """Raise ArgumentError for the first keyword that `Model` does not take, with the place where it belongs."""
    for name in given:
        if name in HOMES:
            home = HOMES[name]
            right = f"give {home}={GROUPS[home].__name__}({name}=...)"
        else:
            # Fields of the groups are looked among as well: a misspelt field is given as a keyword
            # most often.
            near = get_close_matches(name, [*known, *HOMES], n=1)
            meant = ".".join(map(str, place(near[0]))) if near else None
            right = f"did you mean {meant}?" if meant else f"it takes {', '.join(known)}"
        raise ArgumentError(f"Model() takes no {name}=; {right}")
