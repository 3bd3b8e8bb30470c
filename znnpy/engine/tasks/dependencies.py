"""Derives the edges of the task graph from the regions that tasks read and write, and refuses reads of unwritten data.

Tasks declare regions, and the order they must keep follows. An update is declared twice (even and odd step), and the
first once more as a shadow, which yields the order between steps: a filter is read only after its last update, a
buffer rewritten only after its last reader. No barrier stands between steps; what is independent overlaps.

A read of what no task has written means a forgotten task or a wrong region: GraphError. A buffer says who fills it
(`Filled`): what is filled within a step must be written by earlier tasks of the step, all of what is read; what a step
finds must be written by some task of the steps that follow each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling.dependencies import (
    BETWEEN,
    ENTRY,
    EVER,
    FORGET,
    IN_STEP,
    NONE,
    READ,
    STATE_WORDS,
    UNCHECKED,
    WORD,
    WRITE,
    find_predecessors,
    find_unwritten,
)

from znnpy.engine.memory.regions import WHOLE, Buffer, Filled, Key, Region
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import GATE
from znnpy.graph import GraphBuilder, GraphError, joints
from znnpy.graph.critical_path import Edges

Ints = NDArray[np.int64]
MOST_ROWS = 1 << 15
"""Tasks that one looks back at when edges that others imply are left out; a bit for each pair of them takes 128 MiB.

Graphs of fewer tasks have no edge too many. Beyond, edges to tasks further back stay, which cost a token each.
"""
WHO = {Filled.STEP: IN_STEP, Filled.EARLIER: EVER, Filled.OUTSIDE: UNCHECKED}


@dataclass(frozen=True)
class Accesses:
    """The accesses of the tasks of some steps, as rows of a table for compiled code.

    `bounds`: the first task of each step, and the end. `starts`: the first row of each task, and the end.
    """

    tasks: Sequence[Declared]
    bounds: Sequence[int]
    keys: Sequence[Key]
    starts: Ints
    table: Ints

    @classmethod
    def of(cls, steps: Sequence[Sequence[Declared]]) -> Accesses:
        """Number the keys and write down all accesses, in the order in which tasks make them."""
        numbers: dict[Key, int] = {}
        sections: dict[Buffer, list[int]] = {}
        words, starts = array("q"), array("q", [0])

        def number_of(key: Key) -> int:
            if key not in numbers:
                numbers[key] = len(numbers)
                sections.setdefault(key[0], []).append(numbers[key])
            return numbers[key]

        tasks = [task for step in steps for task in step]
        # The odd step has most tasks of the even one as they are: their rows are copied.
        written: dict[int, slice] = {}
        for task in tasks:
            if rows := written.get(id(task)):
                words.extend(words[rows])
                starts.append(len(words) // ENTRY)
                continue
            first = len(words)
            # Rematerialised buffers are empty from here on until they are filled again.
            for buffer in task.anew:
                for number in sections.get(buffer, ()):
                    words.extend((number, 0, 0, -1, FORGET))
            # Reads first: the task's own writes would hide earlier writers from them.
            for kind, regions in ((READ, task.reads), (WRITE, task.writes)):
                for buffer, low, high, section, strand in regions:
                    words.extend((number_of((buffer, section)), low, high, strand, kind))
            # A gate counts as a write of everything, from below any number on.
            for key in task.between:
                words.extend((number_of(key), -WHOLE, WHOLE, -1, BETWEEN))
            if not task.anew:  # whose rows depend on what is known by now
                written[id(task)] = slice(first, len(words))
            starts.append(len(words) // ENTRY)
        bounds = np.cumsum([0, *map(len, steps)]).tolist()
        table = np.array(words, np.int64).reshape(-1, ENTRY)
        return cls(tasks, bounds, list(numbers), np.array(starts, np.int64), table)

    def predecessors(self) -> tuple[Ints, Ints]:
        """Return (ends, found): of moment m, found[ends[m] : ends[m + 1]], without those that others imply.

        With two steps the first one's tasks come once more, as its shadow: the moments behind all others.
        """
        # One more even step shows what the even step must wait for in the odd one (docs/design/order.md).
        shadow = np.arange(self.bounds[1] if len(self.bounds) > 2 else 0)
        order = np.concatenate([np.arange(len(self.tasks)), shadow])
        again = int(self.starts[len(shadow)])
        rows = min(MOST_ROWS, -(-(len(order) + 1) // WORD) * WORD)
        heads = np.full((len(self.keys), 2), NONE, np.int64)
        lists = np.empty((len(self.table) + again, ENTRY), np.int64)
        reached = np.empty((rows, rows // WORD), np.int64)
        room = np.full((3, len(order) + 1), NONE, np.int64)
        ends, state = np.zeros(len(order) + 1, np.int64), np.zeros(STATE_WORDS, np.int64)
        state[-1] = NONE
        found = np.empty(4 * len(order) + 1, np.int64)
        given = self.table, self.starts, order, heads, lists, reached, room, ends
        while not find_predecessors(*given, found, state):
            found = np.resize(found, 2 * len(found) + len(order))
        return ends, found[: ends[-1]]

    def refuse_unwritten(self, given: Collection[Buffer] = ()) -> None:
        """Raise GraphError for a task that reads what no task has written; `given`: buffers that others fill."""
        who = [UNCHECKED if buffer in given else WHO[buffer.filled] for buffer, _ in self.keys]
        heads = np.full((len(self.keys), 2), NONE, np.int64)
        lists = np.empty_like(self.table)
        bounds = self.starts[self.bounds]
        access = find_unwritten(self.table, bounds, np.array(who, np.int64), heads, lists, WHOLE)
        if access == NONE:
            return
        number = int(np.searchsorted(self.starts, access, side="right")) - 1
        key, low, high, strand, _ = self.table[access].tolist()
        region = Region(self.keys[key][0], low, high, self.keys[key][1], strand)
        step = region.buffer.filled is Filled.STEP
        nobody = "no task of its step before it" if step else "no task of any step"
        raise GraphError(_unfilled(self.tasks[number], region, nobody))


def _unfilled(task: Declared, region: Region, who: str) -> str:
    bounds = "" if region.high >= WHOLE else f" {region.low} to {region.high}"
    section = f", section {region.section}" if region.section else ""
    return f"{task.what.label} reads {region.buffer.name}{section}{bounds}, which {who} has written"


def connect(
    steps: Sequence[Sequence[Declared]], given: Collection[Buffer] = (), *, many: bool = False
) -> GraphBuilder:
    """Return the task graph of one step, or of an even and an odd step that follow each other for ever.

    Step s is released by phase s. Tasks that nothing of their step waits for, and that belong to no group yet, form
    group `last_group(s)`. With two steps the first is declared once more as a shadow, whose predecessors in the
    second step become carried edges: their tokens are present at the start.

    Raises GraphError if a task reads what nobody has written. `given`: buffers that are filled by others than these
    tasks. `many`: whether workers are so many that tasks of a step get gates between them where that saves edges.
    """
    accesses = Accesses.of(steps)
    accesses.refuse_unwritten(given)
    ends, before = accesses.predecessors()
    total, bounds = len(accesses.tasks), accesses.bounds
    after = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    shadow = after >= total
    # Of the shadow's predecessors those in the odd step alone: all others are edges within a step, and there already.
    carried = shadow & (before >= bounds[-2]) & (before < total)
    builder = GraphBuilder()
    for step, declared in enumerate(steps):
        inside = (after < bounds[step + 1]) & (before >= bounds[step])
        _add_step(
            builder, declared, step, before[inside] - bounds[step], after[inside] - bounds[step]
        )
    for later, those in ((False, ~shadow), (True, carried)):
        edges = before[those], after[those] - (total if later else 0)
        _connect(builder, edges, bounds, carried=later, many=many)
    return builder


def _connect(
    builder: GraphBuilder, edges: Edges, bounds: Sequence[int], *, carried: bool, many: bool
) -> None:
    """Add edges between tasks; `many`: with gates between tasks of one step and tasks of one step that save some."""
    before, after = edges
    steps = len(bounds) - 1
    number = np.searchsorted(bounds, before, side="right") - 1
    pair = steps * number + np.searchsorted(bounds, after, side="right") - 1
    left = np.ones(len(before), bool)
    for one in range(steps * steps if many else 0):
        own = np.flatnonzero(pair == one)
        found, left[own] = joints((before[own], after[own]), bounds[-1])
        first, second = divmod(one, steps)
        # Nothing of its step waits for a gate between two steps.
        group = -1 if first == second else last_group(first)
        for joint in found:
            builder.between(joint, GATE, first, group, carried=carried)
    builder.connect(before[left], after[left], carried=carried)


def loss_group(step: int) -> int:
    """Return the group of the tasks that end the forward pass and loss of a step."""
    return 2 * step


def last_group(step: int) -> int:
    """Return the group of the tasks that end a step."""
    return 2 * step + 1


def _add_step(
    builder: GraphBuilder, declared: Sequence[Declared], step: int, before: Ints, after: Ints
) -> None:
    """Add one step's tasks; those that wait for none of them (`before`, `after`: edges) wait for its phase."""
    waits, waited_for = np.zeros((2, len(declared)), bool)
    waits[after] = waited_for[before] = True
    stage = 0
    for task, inside, told in zip(declared, waits.tolist(), waited_for.tolist(), strict=True):
        assert inside or task.phase < 0, f"{task.what.label}: who waits follows who posts"
        stage = max(stage, task.stage)  # never back, so that barriers between stages make no cycle
        builder.task(
            *task.call,
            task.what,
            cost=task.cost,
            phase=task.phase if inside else step,
            group=task.group if told or task.group >= 0 else last_group(step),
            step=step,
            stage=stage,
            urgent=task.urgent,
            # Groups that are declared are of losses, which callers wait for while gradients are computed.
            awaited=task.group >= 0,
            light=task.light,
        )
