"""Refuses tasks that read what nobody has written: a forgotten task, or regions that do not meet.

A buffer says who fills it. What tasks of a step leave for others of the same step must be written by
earlier ones, all of what is read; what a step finds must be written by some task wherever steps follow
each other for ever, so that no filters stay as they once were made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from znnpy.engine.memory.regions import WHOLE, Buffer, Filled, Key, Region
from znnpy.engine.tasks.declared import Declared
from znnpy.graph import GraphError


class _Written:
    """Ranges that tasks have written, whatever strands; those that touch are one."""

    def __init__(self) -> None:
        self._ranges: dict[Key, list[tuple[int, int]]] = defaultdict(list)

    def add(self, region: Region) -> None:
        low, high = region.low, region.high
        ranges = self._ranges[region.key]
        apart = []
        for other in ranges:
            if other[0] <= low and high <= other[1]:
                return
            if other[1] < low or high < other[0]:
                apart.append(other)
            else:
                low, high = min(low, other[0]), max(high, other[1])
        ranges[:] = [*apart, (low, high)]

    def forget(self, buffers: Collection[Buffer]) -> None:
        """What buffers held."""
        for key in [key for key in self._ranges if key[0] in buffers] if buffers else ():
            del self._ranges[key]

    def holds(self, region: Region) -> bool:
        """Whether all of a region was written; of a whole section, all up to the last that was."""
        ranges = self._ranges.get(region.key, [])
        if region.high < WHOLE:
            return any(low <= region.low and region.high <= high for low, high in ranges)
        return len(ranges) == 1 and ranges[0][0] <= region.low


def refuse_unfilled(steps: Sequence[Sequence[Declared]], given: Collection[Buffer] = ()) -> None:
    """GraphError for a task that reads what no task has written before it, nor somebody else.

    `given`: buffers that are filled though no task of these steps does it.
    """
    ever, waiting = _Written(), list[tuple[Declared, Region]]()
    for step in steps:
        now = _Written()
        for task in step:
            now.forget(task.anew)
            for region in task.reads:
                filled = region.buffer.filled
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
    for task, region in waiting if len(steps) > 1 else ():
        if not ever.holds(region):
            raise GraphError(_unfilled(task, region, "no task of any step"))


def _unfilled(task: Declared, region: Region, who: str) -> str:
    bounds = "" if region.high >= WHOLE else f" {region.low} to {region.high}"
    section = f", section {region.section}" if region.section else ""
    return f"{task.what.label} reads {region.buffer.name}{section}{bounds}, which {who} has written"
