"""The frozen task graph that executors run: flat arrays, one entry a task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from znnpy.graph.critical_path import bottom_levels, chain
from znnpy.graph.task_description import Described

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks and the tokens between them; made by `GraphBuilder.build`.

    A task fires when its join counter has fallen to 0; it sets the counter back to `joins` when it
    starts, and takes one off the counter of each successor when it has run. All arrays belong to
    the graph; executors read them (copying what they change) and hold a reference to the graph for
    as long as native code may touch an argument block.
    """

    tasks: tuple[Described, ...]
    """The description of each task."""
    addresses: Ints
    """Kernel of each task: address of a `void kernel(int64* args, int64 worker)`."""
    words: Ints
    """All argument blocks in one contiguous array; each begins on a 64-byte line."""
    offsets: Ints
    """First word of each task's block in `words`."""
    lengths: Ints
    """Number of words of each task's block."""
    successor_starts: Ints
    """Successors of task t: successors[successor_starts[t] : successor_starts[t + 1]]."""
    successors: Ints
    """In the order in which they get their tokens: least urgent first, so a deque's newest is the most urgent."""
    carried: NDArray[np.bool_]
    """For each entry of `successors`: its token is present at first (from the previous step)."""
    joins: Ints
    """Tokens that a task waits for: its predecessors, and one for its phase if it has one."""
    initial: Ints
    """Tokens that a task waits for the first time: `joins` without the carried ones."""
    cost: Floats
    """Estimated seconds of each task."""
    priority: Floats
    """Larger is more urgent; the meaning is the policy's."""
    urgent: NDArray[np.bool_]
    """Whether something outside the graph, such as another rank, waits for the task."""
    awaited: NDArray[np.bool_]
    """Whether a caller waits for the task while others go on, as for the loss of a step."""
    light: NDArray[np.bool_]
    """Whether the thread that releases a phase may run the task itself: it is short, and has no use for a worker."""
    band: Ints
    """0 (most urgent) to BANDS - 1: the deque that a ready task goes to."""
    group: Ints
    """Group of each task, -1 for none: its completion counts towards `wait(group)`."""
    phase: Ints
    """Phase of each task, -1 for none: it also waits for `release(phase)`."""
    step: Ints
    """Parity of the step of each task: 0 of even steps, 1 of odd ones."""
    stage: Ints
    """Layer and pass of each task, counted within its step: the policy `layers` runs them in turn."""
    policy: str
    """Name of the policy that set priorities."""

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The label of each task."""
        return tuple(task.label for task in self.tasks)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each task."""
        return tuple(task.kind for task in self.tasks)

    @cached_property  # asked for in every update
    def groups(self) -> int:
        """Number of groups: the largest group number plus one."""
        return int(self.group.max(initial=-1)) + 1

    @cached_property
    def phases(self) -> int:
        """Number of phases: the largest phase number plus one."""
        return int(self.phase.max(initial=-1)) + 1

    @property
    def work(self) -> float:
        """T1: seconds that one worker needs for every task once."""
        return float(self.cost.sum())

    @property
    def span(self) -> float:
        """Tinf: seconds along the longest path over edges that are not carried."""
        # Of a step on its own: carried edges, which lead into the next one, are left out.
        return float(self.levels().max(initial=0.0))

    def arguments(self, task: int) -> Ints:
        """Return the task's argument block as a writable int64 view; write only while it cannot run."""
        # A view, not a copy: Python writes numbers that change between steps (a learning rate, say)
        # here.
        first = int(self.offsets[task])
        return self.words[first : first + int(self.lengths[task])]

    def argument_address(self, task: int) -> int:
        """Return the address in bytes of the task's argument block."""
        return int(self.words.ctypes.data) + 8 * int(self.offsets[task])

    def levels(self) -> Floats:
        """Return for each task the seconds from its start to the end of its longest path not carried."""
        return bottom_levels(self.edges(carried=False), self.cost)

    def critical_path(self) -> list[int]:
        """Return the tasks of one longest path over edges that are not carried, first task first."""
        return chain(self.edges(carried=False), self.levels())

    def edges(self, *, carried: bool) -> tuple[Ints, Ints]:
        """Return (before, after) of all carried edges (their token is present at first), or of all others."""
        # CSR back to pairs.
        before = np.repeat(np.arange(self.size), np.diff(self.successor_starts))
        chosen = self.carried if carried else ~self.carried
        return before[chosen], self.successors[chosen]
