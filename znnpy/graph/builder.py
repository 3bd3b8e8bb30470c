"""Builds task graphs: collects tasks and edges, adds barriers where a policy has them, checks and freezes all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling.barrier import wait_for_all

from znnpy.graph.critical_path import Edges, Floats, GraphError, csr, refuse_cycle
from znnpy.graph.joints import Joint
from znnpy.graph.policies import bands, priorities
from znnpy.graph.task_description import BARRIER, Described
from znnpy.graph.task_graph import TaskGraph

Ints = NDArray[np.int64]
ALONE = 24
"""As many successors as one worker tells in the time in which others take the telling of a part of them: 50 ns each."""
WORDS_A_LINE = 8
"""Words in a cache line of 64 bytes: blocks that begin on a line never share one with another block."""


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
    """Yield a barrier after each stage, the steps in turn and cyclically; a single step has none after its last stage.

    A task waits for or is waited for by the barrier only if no other task of its stage implies that.
    """
    steps = int(step.max(initial=0)) + 1
    members: dict[tuple[int, int], list[int]] = {}
    for task, key in enumerate(zip(step.tolist(), stage.tolist(), strict=True)):
        members.setdefault(key, []).append(task)
    # Only an edge within a stage lets one task stand for another at the barrier: edges to other
    # stages already cross a barrier of their own.
    inner = [
        (before, after)
        for before, after in edges
        if step[before] == step[after] and stage[before] == stage[after]
    ]
    # `told`: tasks whose end another task of the stage implies; `waiting`: tasks whose start
    # another one implies. Neither needs an edge to the barrier.
    told, waiting = {before for before, _ in inner}, {after for _, after in inner}
    keys = sorted(members)
    # The last pair leads back to the first stage: with two steps the graph is cyclic, and the
    # barrier between steps must stand as well.
    pairs = list(pairwise(keys)) + ([(keys[-1], keys[0])] if steps > 1 else [])
    for key, following in pairs:
        yield Barrier(
            *key,
            [task for task in members[key] if task not in told],
            [task for task in members[following] if task not in waiting],
            # Only the pair that leads back to the first stage ends before it begins.
            following < key,
        )


@dataclass(frozen=True)
class _Task:
    address: int
    arguments: Sequence[int]
    what: Described
    cost: float
    phase: int
    group: int
    step: int
    stage: int
    urgent: bool
    awaited: bool
    light: bool


class GraphBuilder:
    """Collects tasks and edges in any order; `build` checks and freezes them. Not thread-safe."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._edges: list[tuple[Ints, Ints, bool]] = []  # before, after, carried; may be repeated

    @classmethod
    def of(cls, graph: TaskGraph) -> GraphBuilder:
        """Return a builder with the tasks and edges of a graph, without barriers, to build it under another policy."""
        builder = cls()
        keep = [task for task, what in enumerate(graph.tasks) if what != BARRIER]
        # Task numbers are kept below, so dropping barriers must not renumber anything.
        if keep != list(range(len(keep))):
            raise GraphError("barriers must come after all other tasks")
        for task in keep:
            builder.like(graph, task, int(graph.addresses[task]), graph.arguments(task).tolist())
        # Edges to and from barriers are dropped, too: `build` makes new ones if the new policy has
        # any.
        for carried in (False, True):
            before, after = graph.edges(carried=carried)
            inside = (before < len(keep)) & (after < len(keep))
            builder.connect(before[inside], after[inside], carried=carried)
        return builder

    def like(
        self,
        graph: TaskGraph,
        task: int,
        address: int = 0,
        arguments: Sequence[int] = (),
        *,
        share: float = 1.0,
    ) -> int:
        """Add a task that is described as one of a graph, with a `share` of its cost; return its number."""
        return self.task(
            address,
            arguments,
            graph.tasks[task],
            cost=share * float(graph.cost[task]),
            phase=int(graph.phase[task]),
            group=int(graph.group[task]),
            step=int(graph.step[task]),
            stage=int(graph.stage[task]),
            urgent=bool(graph.urgent[task]),
            awaited=bool(graph.awaited[task]),
            light=bool(graph.light[task]),
        )

    def task(
        self,
        address: int,
        arguments: Sequence[int],
        what: Described,
        *,
        cost: float,
        phase: int = -1,
        group: int = -1,
        step: int = 0,
        stage: int = 0,
        urgent: bool = False,
        awaited: bool = False,
        light: bool = False,
    ) -> int:
        """Add a task and return its number; numbers count from 0 in the order of the calls.

        address: machine code of a `void kernel(int64* args, int64 worker)`; it must outlive the
        graph. arguments: the kernel's int64 words, copied. cost: estimated seconds.
        phase >= 0: the task also waits for `release(phase)` from outside (one more join).
        group >= 0: its completion counts towards `wait(group)`. step: its parity, 0 of even steps and
        1 of odd ones; priorities look along edges within a parity only, so that both get
        the same ones. stage: layer and pass, counted within the step; the policy `layers` begins one
        when the one before is complete, so edges within a step must not lead to earlier stages. urgent:
        somebody beside the graph waits for it, so that no path shows how urgent it is. awaited: the same of
        a caller, for whom no other task stands back: it runs as soon as a worker is free. light: the
        thread that releases the phase which makes it ready may run it, as it is short and uses no worker's memory.
        """
        words = tuple(arguments)
        self._tasks.append(
            _Task(address, words, what, cost, phase, group, step, stage, urgent, awaited, light)
        )
        return len(self._tasks) - 1

    def precede(self, before: int, after: int, *, carried: bool = False) -> None:
        """Make `after` wait for `before`; carried: for the run of `before` in the previous step.

        A second edge between the same two tasks is merged into the first. If only one of them is carried, the other
        stays, as it implies the carried one.
        """
        for task in (before, after):
            if not 0 <= task < len(self._tasks):
                raise GraphError(
                    f"precede({before}, {after}): there is no task {task}; "
                    f"{len(self._tasks)} tasks were added so far"
                )
        self._edges.append((np.array([before]), np.array([after]), carried))

    def connect(self, before: Ints, after: Ints, *, carried: bool = False) -> None:
        """Make each of `after` wait for that of `before`: `precede` for many edges at once."""
        known = len(self._tasks)
        # The slow way, only for its message.
        wrong = (np.minimum(before, after) < 0) | (np.maximum(before, after) >= known)
        for edge in np.flatnonzero(wrong)[:1].tolist():
            self.precede(int(before[edge]), int(after[edge]))
        self._edges.append((before, after, carried))

    def between(
        self, joint: Joint, what: Described, step: int, group: int = -1, *, carried: bool = False
    ) -> None:
        """Add a task that does nothing, which all of a joint's tasks before precede, and which precedes all after.

        Many after it are told by as many more such tasks as each of these tells others: by several workers at once.
        `step`: of those before; carried: those after are of the next step, as in `precede`. `group`: as in `task`.
        """
        # As late as who comes before it: so barriers between stages make no cycle.
        stage = max(self._tasks[task].stage for task in joint.before.tolist())
        # Else what another rank waits for would wait behind tasks of here that nobody does.
        urgent = not carried and any(self._tasks[task].urgent for task in joint.after.tolist())

        def gate(before: Ints, group: int) -> int:
            number = self.task(
                wait_for_all.address,
                wait_for_all.arguments(),
                what,
                cost=0.0,
                group=group,
                step=step,
                stage=stage,
                urgent=urgent,
            )
            self.connect(before, np.full(len(before), number))
            return number

        told = len(joint.after)
        if told < ALONE:
            number = gate(joint.before, group)
            self.connect(np.full(told, number), joint.after, carried=carried)
            return
        first = np.array([gate(joint.before, -1)])
        for part in np.array_split(joint.after, isqrt(told)):
            number = gate(first, group)
            self.connect(np.full(len(part), number), part, carried=carried)

    def _distinct_edges(self) -> tuple[Edges, NDArray[np.bool_]]:
        """Return the edges (before, after), each once, and whether each is carried, by number of the later task."""
        none = np.zeros(0, np.int64)
        before = np.concatenate([none, *(edges for edges, _, _ in self._edges)])
        after = np.concatenate([none, *(edges for _, edges, _ in self._edges)])
        flags = [np.full(len(edges), carried) for edges, _, carried in self._edges]
        carried = np.concatenate([np.zeros(0, bool), *flags])
        # Of equal edges the carried come last, and the first stays: the plain edge is the stricter one.
        order = np.lexsort((carried, before, after))
        before, after, carried = before[order], after[order], carried[order]
        first = np.ones(len(before), bool)
        first[1:] = (before[1:] != before[:-1]) | (after[1:] != after[:-1])
        return (before[first], after[first]), carried[first]

    def build(self, policy: str = "critical-path") -> TaskGraph:
        """Check and freeze the graph. Raises GraphError for cycles and for tasks that nothing would start.

        The policy `layers` adds tasks that do nothing, of kind `barrier`, behind the others.
        """
        if policy == "layers":
            return self._with_barriers()._build(policy)
        return self._build(policy)

    def _with_barriers(self) -> GraphBuilder:
        other = GraphBuilder()
        other._tasks, other._edges = list(self._tasks), list(self._edges)
        step, stage = self._column("step"), self._column("stage")
        (first, second), carried = self._distinct_edges()
        pairs = zip(first.tolist(), second.tolist(), carried.tolist(), strict=True)
        inside = [(before, after) for before, after, later in pairs if not later]
        for barrier in barriers(step, stage, inside):
            task = other.task(
                wait_for_all.address,
                wait_for_all.arguments(),
                BARRIER,
                cost=0.0,
                step=barrier.step,
                stage=barrier.stage,
            )
            for before in barrier.before:
                other.precede(before, task)
            for after in barrier.after:
                other.precede(task, after, carried=barrier.carried)
        return other

    def _build(self, policy: str) -> TaskGraph:
        # Carried edges may close cycles: they hold a token at the start, so such a cycle can run.
        edges, carried = self._distinct_edges()
        refuse_cycle((edges[0][~carried], edges[1][~carried]), [t.what for t in self._tasks])
        phase = self._column("phase")
        # A phase is one more join: `release` takes it off like a predecessor.
        joins = np.bincount(edges[1], minlength=len(phase)) + (phase >= 0)
        # The first run of a task finds the tokens of its carried edges there already.
        initial = joins - np.bincount(edges[1][carried], minlength=len(phase))
        self._refuse_unstartable(initial)
        return self._freeze(policy, edges, carried, joins, initial)

    def _column(self, field: str) -> Ints:
        return np.array([getattr(task, field) for task in self._tasks], np.int64)

    def _refuse_unstartable(self, initial: Ints) -> None:
        # Executors start a task when its counter falls to 0; one that begins at 0 never falls.
        stuck = [self._tasks[task].what.label for task in np.flatnonzero(initial == 0)]
        if stuck:
            # Five names: enough to recognise the layer, short enough for one line.
            more = f" and {len(stuck) - 5} more" if len(stuck) > 5 else ""
            raise GraphError(
                f"nothing would ever start {', '.join(stuck[:5])}{more}: give a task without "
                "predecessors (carried ones do not count) a phase, so that release(phase) starts it"
            )

    def _freeze(
        self, policy: str, edges: Edges, carried: NDArray[np.bool_], joins: Ints, initial: Ints
    ) -> TaskGraph:
        cost = np.array([task.cost for task in self._tasks], np.float64)
        step = self._column("step")
        priority = priorities(policy, edges_within(edges, carried, step), cost)
        urgent, awaited = (self._column(it).astype(bool) for it in ("urgent", "awaited"))
        # What another rank or a caller waits for comes before everything here: no path of this graph shows it. So do
        # tasks that only make others wait: they take no time, and a gate run late holds up what could go on.
        waits = np.array([task.what.waits for task in self._tasks], bool)
        priority[urgent | awaited | waits] = priority.max(initial=0.0)
        starts, successors, order = told_in_order(edges, priority)
        words, offsets, lengths = _blocks([task.arguments for task in self._tasks])
        return TaskGraph(
            tasks=tuple(task.what for task in self._tasks),
            addresses=self._column("address"),
            words=words,
            offsets=offsets,
            lengths=lengths,
            successor_starts=starts,
            successors=successors,
            carried=carried[order],
            joins=joins,
            initial=initial,
            cost=cost,
            priority=priority,
            urgent=urgent,
            awaited=awaited,
            light=self._column("light").astype(bool),
            band=bands(priority, urgent),
            group=self._column("group"),
            phase=self._column("phase"),
            step=step,
            stage=self._column("stage"),
            policy=policy,
        )


def edges_within(edges: Edges, carried: NDArray[np.bool_], step: Ints) -> Edges:
    """Return the edges that priorities look along: those within one parity, not from one step to the next."""
    within = ~carried & (step[edges[0]] == step[edges[1]])
    return edges[0][within], edges[1][within]


def told_in_order(edges: Edges, priority: Floats) -> tuple[Ints, Ints, Ints]:
    """Return (starts, successors, order): successors by task, the least urgent first; `order` of the edges."""
    # By task, then by priority from low to high, then by number from high to low. A worker takes
    # the newest of its deque first, so the last one told is the next one run; among equals that is
    # the one declared first.
    order = np.lexsort((-edges[1], priority[edges[1]], edges[0]))
    starts, successors = csr((edges[0][order], edges[1][order]), len(priority))
    return starts, successors, order


def _blocks(arguments: list[Sequence[int]]) -> tuple[Ints, Ints, Ints]:
    """Return (words, offsets, lengths): all argument blocks in one array, each beginning on a 64-byte line."""
    lengths = np.array([len(block) for block in arguments], np.int64)
    # A block without words still gets a line, so that every task has an address of its own.
    rounded = -(-np.maximum(lengths, 1) // WORDS_A_LINE) * WORDS_A_LINE
    offsets = np.cumsum(rounded) - rounded
    words = zeros_on_a_line(int(rounded.sum()))
    for offset, block in zip(offsets.tolist(), arguments, strict=True):
        words[offset : offset + len(block)] = block
    return words, offsets, lengths


def zeros_on_a_line(count: int) -> Ints:
    """Return so many words, zeros, that begin on a 64-byte line."""
    # One line more than needed: NumPy aligns to 16 bytes only, and `first` moves up to the next
    # line.
    space = np.zeros(count + WORDS_A_LINE, np.int64)
    first = -(space.ctypes.data // 8) % WORDS_A_LINE
    return space[first : first + count]
