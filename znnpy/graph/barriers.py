"""Where barriers stand when layers run one after the other; they are tasks like all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Barrier:
    """One barrier: the tasks that it waits for, and those that wait for it."""

    step: int
    stage: int
    before: list[int]
    after: list[int]
    carried: bool
    """Whether those that wait are of the next round, so that they do not wait the first time."""


def barriers(step: Ints, stage: Ints, edges: Sequence[tuple[int, int]]) -> Iterator[Barrier]:
    """A barrier after each stage, the steps in turn and round again; one step alone has no last one.

    What others of the stage wait for does not tell the barrier, and what waits for others of the
    stage does not wait for it: the rest implies that.
    """
    steps = int(step.max(initial=0)) + 1
    members: dict[tuple[int, int], list[int]] = {}
    for task, key in enumerate(zip(step.tolist(), stage.tolist(), strict=True)):
        members.setdefault(key, []).append(task)
    inner = [
        (before, after)
        for before, after in edges
        if step[before] == step[after] and stage[before] == stage[after]
    ]
    told, waiting = {before for before, _ in inner}, {after for _, after in inner}
    keys = sorted(members)
    pairs = list(pairwise(keys)) + ([(keys[-1], keys[0])] if steps > 1 else [])
    for key, following in pairs:
        yield Barrier(
            *key,
            [task for task in members[key] if task not in told],
            [task for task in members[following] if task not in waiting],
            following < key,
        )
