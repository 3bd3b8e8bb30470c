"""Derives the edges of the task graph from the regions that tasks read and write, and refuses reads of unwritten data.

Tasks declare regions, and the order they must keep follows. An update is declared twice (even and odd step), and the
first once more as a shadow, which yields the order between steps: a filter is read only after its last update, a
buffer rewritten only after its last reader. No barrier stands between steps; what is independent overlaps.

A read of what no task has written means a forgotten task or a wrong region: GraphError. A buffer says who fills it
(`Filled`): what is filled within a step must be written by earlier tasks of the step, all of what is read; what a step
finds must be written by some task of the steps that follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling.reachability import WORD, keep_unreached

from znnpy.engine.memory.regions import WHOLE, Buffer, Filled, Key, Region
from znnpy.engine.tasks.declaration import Declared
from znnpy.graph import GraphBuilder, GraphError

_Access = tuple[int, int, int, int]
"""(low, high, strand, moment) of an access to the regions of one key."""


class _Written:
    """The ranges that tasks have written, by key; adjacent ones are merged, strands are not told apart."""

    def __init__(self) -> None:
        self._ranges: dict[Key, list[tuple[int, int]]] = defaultdict(list)

    def add(self, region: Region) -> None:
        """Note a region as written."""
        low, high = region.low, region.high
        ranges = self._ranges[region.key]
        apart = []
        for other in ranges:
            if other[0] <= low and high <= other[1]:
                return
            # Ranges that touch are merged, so that a read over their border is found in one of
            # them.
            if other[1] < low or high < other[0]:
                apart.append(other)
            else:
                low, high = min(low, other[0]), max(high, other[1])
        ranges[:] = [*apart, (low, high)]

    def forget(self, buffers: Collection[Buffer]) -> None:
        """Note buffers as not written."""
        for key in [key for key in self._ranges if key[0] in buffers] if buffers else ():
            del self._ranges[key]

    def holds(self, region: Region) -> bool:
        """Return whether all of a region was written; an open end means up to the last that was."""
        ranges = self._ranges.get(region.key, [])
        if region.high < WHOLE:
            return any(low <= region.low and region.high <= high for low, high in ranges)
        return len(ranges) == 1 and ranges[0][0] <= region.low


def refuse_unfilled(steps: Sequence[Sequence[Declared]], given: Collection[Buffer] = ()) -> None:
    """Raise GraphError for a task that reads what nobody has written before it.

    `given`: buffers that are filled by others than these tasks.
    """
    ever, waiting = _Written(), list[tuple[Declared, Region]]()
    for step in steps:
        # Anew for each step: what one step fills, the next must fill again.
        now = _Written()
        for task in step:
            # Rematerialised buffers are empty from here on until they are filled again.
            now.forget(task.anew)
            for region in task.reads:
                filled = region.buffer.filled
                # Empty ranges come from passes that see nothing but padding.
                if region.low >= region.high or region.buffer in given:
                    continue
                if filled is Filled.STEP and not now.holds(region):
                    raise GraphError(_unfilled(task, region, "no task of its step before it"))
                if filled is Filled.EARLIER:
                    waiting.append((task, region))
            for region in task.writes:
                now.add(region)
                if region.buffer.filled is Filled.EARLIER:
                    ever.add(region)
    # A single step finds what other graphs, or Python, have written.
    for task, region in waiting if len(steps) > 1 else ():
        if not ever.holds(region):
            raise GraphError(_unfilled(task, region, "no task of any step"))


def _unfilled(task: Declared, region: Region, who: str) -> str:
    bounds = "" if region.high >= WHOLE else f" {region.low} to {region.high}"
    section = f", section {region.section}" if region.section else ""
    return f"{task.what.label} reads {region.buffer.name}{section}{bounds}, which {who} has written"


class DependencyTracker:
    """Turns declared accesses into edges of a task graph, without those that others imply.

    A moment is the number of a declaration. Not thread-safe.
    """

    def __init__(self) -> None:
        self._writes: dict[Key, list[_Access]] = defaultdict(list)
        self._reads: dict[Key, list[_Access]] = defaultdict(list)
        # Bit sets of all tasks that a task comes after, row by row; each row has the words up to
        # its own number. They grow by doubling.
        self._reached = np.zeros(1 << 12, np.uint64)
        self._rows = np.zeros(1 << 8, np.int64)
        self._candidates = np.zeros(1 << 8, np.int64)
        self.predecessors: list[list[int]] = []

    def declare(
        self, reads: Iterable[Region], writes: Iterable[Region], between: Iterable[Key] = ()
    ) -> int:
        """Add the next task and return its moment; its predecessors are then in `predecessors`.

        `between`: keys whose uses before and after it are kept apart.
        """
        moment = len(self.predecessors)
        before: set[int] = set()
        for region in reads:
            # Reads first: the task's own writes would hide earlier writers from them.
            before |= _overlapping(self._writes[region.key], region)
            self._reads[region.key].append((region.low, region.high, region.strand, moment))
        for region in writes:
            before |= self._write(region, moment)
        for buffer, section in between:
            # A gate counts as a write of everything, from below any number on.
            before |= self._write(Region(buffer, -WHOLE, WHOLE, section), moment)
        before.discard(moment)
        # Latest first: a late predecessor reaches most of the earlier ones, which then are dropped.
        self._keep(moment, sorted(before, reverse=True))
        return moment

    def _write(self, region: Region, moment: int) -> set[int]:
        """Note a write and return what must come before it; later tasks need not look at accesses that it covers."""
        reads, writes = self._reads[region.key], self._writes[region.key]
        found = _overlapping(reads, region) | _overlapping(writes, region)
        # Whoever touches this region later waits for this write, and by it for all that it covers;
        # the lists stay short.
        if found:
            reads[:] = _not_covered(reads, region)
            writes[:] = _not_covered(writes, region)
        writes.append((region.low, region.high, region.strand, moment))
        return found

    def _keep(self, moment: int, candidates: Sequence[int]) -> None:
        """Keep the predecessors that no other one reaches (transitive reduction), latest first."""
        self._rows = _with_room(self._rows, moment + 2)
        self._candidates = _with_room(self._candidates, len(candidates))
        end = int(self._rows[moment]) + moment // WORD + 1
        self._rows[moment + 1] = end
        self._reached = _with_room(self._reached, end)
        self._candidates[: len(candidates)] = candidates
        kept = keep_unreached(self._reached, self._rows, moment, self._candidates, len(candidates))
        self.predecessors.append(self._candidates[:kept].tolist())


def _overlapping(accesses: Iterable[_Access], region: Region) -> set[int]:
    """Return the moments of the accesses that can touch memory of the region."""
    _, first, last, _, own = region
    return {
        moment
        for low, high, strand, moment in accesses
        if low < last and first < high and (strand < 0 or own < 0 or strand == own)
    }


def _not_covered(accesses: Iterable[_Access], region: Region) -> list[_Access]:
    """Return the accesses that do not lie wholly in the region."""
    _, first, last, _, own = region
    return [
        access
        for access in accesses
        # A write of one strand covers only accesses of that strand.
        if access[0] < first or access[1] > last or (own >= 0 and access[2] != own)
    ]


def _with_room(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the array, or one at least twice as long with its content and zeros behind it."""
    if size <= len(array):
        return array
    longer = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


def connect(steps: Sequence[Sequence[Declared]], given: Collection[Buffer] = ()) -> GraphBuilder:
    """Return the task graph of one step, or of an even and an odd step that follow each other for ever.

    Step s is released by phase s. Tasks that nothing of their step waits for, and that belong to no group yet, form
    group `last_group(s)`. With two steps the first is declared once more as a shadow, whose predecessors in the
    second step become carried edges: their tokens are present at the start.

    Raises GraphError if a task reads what nobody has written. `given`: buffers that are filled by others than these
    tasks.
    """
    refuse_unfilled(steps, given)
    tracker = DependencyTracker()
    # One more even step shows what the even step must wait for in the odd one
    # (docs/design/order.md).
    shadow = [steps[0]] if len(steps) > 1 else []
    bounds = [0]
    for declared in [*steps, *shadow]:
        for task in declared:
            tracker.declare(task.reads, task.writes, task.between)
        bounds.append(len(tracker.predecessors))
    builder = GraphBuilder()
    for step, declared in enumerate(steps):
        _add_step(builder, declared, step, bounds[step], tracker.predecessors)
    total = bounds[len(steps)]
    for moment, before in enumerate(tracker.predecessors[:total]):
        builder.follow(moment, before)
    for moment in range(total, bounds[-1]):
        # Only predecessors in the odd step: those in the even step and in the shadow itself are
        # edges within a step, and added above.
        last = [other for other in tracker.predecessors[moment] if bounds[-3] <= other < total]
        builder.follow(moment - total, last, carried=True)
    return builder


def last_group(step: int) -> int:
    """Return the group of the tasks that end a step."""
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
    stage = 0
    for index, task in enumerate(declared):
        assert inside[index] or task.phase < 0, f"{task.what.label}: who waits follows who posts"
        stage = max(stage, task.stage)  # never back, so that barriers between stages make no cycle
        ends = task.group < 0 and index not in waited_for
        builder.task(
            task.kernel.address,
            task.arguments,
            task.what,
            cost=task.cost,
            # Tasks without predecessors in their step wait for its release; all others follow from
            # these.
            phase=task.phase if inside[index] else step,
            group=last_group(step) if ends else task.group,
            step=step,
            stage=stage,
            urgent=task.urgent,
        )
