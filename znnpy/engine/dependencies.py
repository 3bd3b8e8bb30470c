"""Tasks declare what they read and write; the order they must keep follows from that.

Declaring an update twice (even and odd step), and the first once more as a shadow, also yields the
order between steps: a filter is read only after its last update, a buffer rewritten only after its
last reader. No barrier stands between steps; what is independent overlaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from znnpy_kernels.abi import Kernel

from znnpy.graph import GraphBuilder


class Region(NamedTuple):
    """A range low..high of something identified by `key`; ranges of one key may overlap.

    `lane` >= 0 means those lanes of a block that one task alone writes: different ones never overlap.
    """

    key: tuple[object, ...]
    low: int = 0
    high: int = 1
    lane: int = -1

    def overlaps(self, other: Region) -> bool:
        """Whether both can mean the same memory; the keys are taken as equal."""
        lanes = self.lane < 0 or other.lane < 0 or self.lane == other.lane
        return lanes and self.low < other.high and other.low < self.high

    def covers(self, other: Region) -> bool:
        """Whether all of `other` lies in this region; the keys are taken as equal."""
        lanes = self.lane < 0 or self.lane == other.lane
        return lanes and self.low <= other.low and other.high <= self.high


class _Access(NamedTuple):
    region: Region
    moment: int


class DependencyTracker:
    """Turns declared accesses into edges of a task graph, without those that others imply.

    Moments number declarations in time. Not safe for concurrent use.
    """

    def __init__(self) -> None:
        self._writes: dict[tuple[object, ...], list[_Access]] = defaultdict(list)
        self._reads: dict[tuple[object, ...], list[_Access]] = defaultdict(list)
        self._reached: list[int] = []  # per moment, the set of earlier moments as a bit mask
        self.predecessors: list[list[int]] = []

    def declare(self, reads: Iterable[Region], writes: Iterable[Region]) -> int:
        """Add the next task in time; returns its moment. A region both read and written counts once."""
        moment = len(self.predecessors)
        before: set[int] = set()
        for region in reads:
            before |= _overlapping(self._writes[region.key], region)
            self._reads[region.key].append(_Access(region, moment))
        for region in writes:
            before |= self._write(region, moment)
        before.discard(moment)
        self._keep(sorted(before, reverse=True))
        return moment

    def _write(self, region: Region, moment: int) -> set[int]:
        """Note a write, which makes the accesses that it covers irrelevant for later ones."""
        reads, writes = self._reads[region.key], self._writes[region.key]
        found = _overlapping(reads, region) | _overlapping(writes, region)
        for accesses in (reads, writes):
            accesses[:] = [access for access in accesses if not region.covers(access.region)]
        writes.append(_Access(region, moment))
        return found

    def _keep(self, candidates: Sequence[int]) -> None:
        """Transitive reduction: latest first, drop what an already kept predecessor reaches."""
        kept: list[int] = []
        reached = 0
        for moment in candidates:
            if not reached >> moment & 1:
                kept.append(moment)
                reached |= self._reached[moment] | 1 << moment
        self.predecessors.append(kept)
        self._reached.append(reached)


def _overlapping(accesses: Iterable[_Access], region: Region) -> set[int]:
    return {access.moment for access in accesses if region.overlaps(access.region)}


@dataclass(frozen=True)
class Declared:
    """One task as the emitters describe it."""

    kernel: Kernel
    arguments: list[int]
    name: str
    kind: str
    cost: float
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    group: int = -1
    stage: int = 0


def connect(steps: Sequence[Sequence[Declared]]) -> GraphBuilder:
    """A task graph of one step, or of an even and an odd step that follow each other for ever.

    Step s is released by phase s. Tasks that nothing of their step waits for, and that belong to no
    group yet, form group `last_group(s)`. With two steps the first is declared once more as a
    shadow, whose predecessors in the second step become carried edges: their tokens are there at
    the start.
    """
    tracker = DependencyTracker()
    shadow = [steps[0]] if len(steps) > 1 else []
    bounds = [0]
    for declared in [*steps, *shadow]:
        for task in declared:
            tracker.declare(task.reads, task.writes)
        bounds.append(len(tracker.predecessors))
    builder = GraphBuilder()
    for step, declared in enumerate(steps):
        _add_step(builder, declared, step, bounds[step], tracker.predecessors)
    total = bounds[len(steps)]
    for moment, before in enumerate(tracker.predecessors[:total]):
        for other in before:
            builder.precede(other, moment)
    for moment in range(total, bounds[-1]):
        for other in tracker.predecessors[moment]:
            if bounds[-3] <= other < total:
                builder.precede(other, moment - total, carried=True)
    return builder


def last_group(step: int) -> int:
    """Group of the tasks that end a step."""
    return 2 * step + 1


def _add_step(
    builder: GraphBuilder,
    declared: Sequence[Declared],
    step: int,
    first: int,
    predecessors: Sequence[Sequence[int]],
) -> None:
    """Add one step's tasks; those without predecessors in it wait for its phase."""
    inside = [
        [other for other in before if other >= first]
        for before in predecessors[first : first + len(declared)]
    ]
    waited_for = {other - first for before in inside for other in before}
    for index, task in enumerate(declared):
        ends = task.group < 0 and index not in waited_for
        builder.task(
            task.kernel.address,
            task.arguments,
            name=task.name,
            kind=task.kind,
            cost=task.cost,
            phase=-1 if inside[index] else step,
            group=last_group(step) if ends else task.group,
            step=step,
            stage=task.stage,
        )
