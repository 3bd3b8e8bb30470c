"""Plans memory before allocating any: peak bytes, places of buffers, rematerialisation, microbatches in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from znnpy_kernels.machine.abi import Kernel

from znnpy.data.process_memory import whole_memory
from znnpy.engine.memory.allocation import STEPS, WORKERS, Build
from znnpy.engine.memory.arena import Arena, Sharing, buffer_bytes
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.limits import refuse_above
from znnpy.engine.memory.regions import Name
from znnpy.engine.step_tasks import (
    Connected,
    PlannedTasks,
    Settings,
    all_steps,
    all_transfers,
    count_of_microbatch,
    declare,
    declare_all,
    declare_gradients,
    declare_planned,
)
from znnpy.engine.tasks.buffer_sharing import gated, share
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.dependencies import connect
from znnpy.engine.tasks.memory_traffic import touched
from znnpy.engine.tasks.rematerialization import MOST_AIMS, Sparing, repeated
from znnpy.engine.tasks.runs import in_runs
from znnpy.engine.tasks.task_identity import ELEMENTWISE, Pass
from znnpy.graph import TaskGraph, Touched
from znnpy.lazily import lazily

if TYPE_CHECKING:
    from znnpy.engine.communication import outbox
    from znnpy.engine.layers import gradient_accumulation
    from znnpy.engine.layers.gradient_accumulation import Total
else:
    outbox = lazily("znnpy.engine.communication.outbox")
    gradient_accumulation = lazily("znnpy.engine.layers.gradient_accumulation")

# Seconds of work for each worker before the memory of a buffer is reused, so that tasks seldom wait for it:
# simulated on 16 and 64 workers, updates are as fast as with separate memory for every buffer. Below SLACK_WORKERS
# less is in flight and slack shrinks: memory that is reused soon is still in the caches.
SLACK_SECONDS, SLACK_WORKERS = 2e-3, 8
LEAN_SLACK = (
    1.05  # times the least memory, where memory counts for more than that workers never wait
)
CHAIN_SHARE = 0.25
"""The longest chains of microbatches that follow each other take at most this share of the time of all work.

LeNet, 64 samples in 8 microbatches, was simulated on 16 workers: 13.1, 14.8 and 15.3 times as fast as one with 0.5,
0.25 and 0.1, in 39, 55 and 59 MB.
"""

# The name under which reports tell what tasks take, beside the uses of buffers.
TASKS = "tasks"
TASK_BYTES = 3600
"""Bytes of a task: arguments, edges, identity, and what the system keeps of the memory in which its order was found.

By how much processes grew beyond their arenas: 3.3 to 4.2 kB a task, for 2,300 to 5,200 tasks of 16 and of 8 lanes.
"""
LEAF_BYTES = 1000  # of these, for arguments: each leaf of a run has its own
# Of a task in each worker's deques, whose lengths are powers of two: each has room for all tasks, as no worker may
# have to wait to put one away.
DEQUE_BYTES = 8


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of `layout`: `bytes` in all, and where the buffers that share memory lie.

    `workspace`: floats of each worker's scratch. `uses`: bytes by use at the moment of peak memory; "gaps" are idle
    then, "tasks" lie outside the arena. `again`: estimated seconds of rematerialisation; `kept`: bytes that would do
    without it. `kernels`: of all graphs of a single microbatch, and of `tasks`. `elementwise`: estimated seconds on one
    core of what an update does beside convolutions. `tasks`: those of all graphs, or of the main one and of derived
    filters, if they were to be kept and can be. `connected`: of a plan that was kept by another process, the graphs
    that came of its tasks.
    """

    layout: Layout
    bytes: int
    sharing: Sharing
    workspace: int
    uses: Mapping[str, int]
    again: float
    kept: int
    kernels: frozenset[Kernel]
    elementwise: float
    tasks: PlannedTasks | None = None
    connected: Connected | None = None

    @property
    def arena(self) -> int:
        """Bytes of all buffers: what tasks touch."""
        return self.bytes - self.uses[TASKS]


@dataclass(frozen=True)
class _OneMicrobatch:
    """One microbatch of a layout, declared without memory: what it needs without rematerialisation.

    `uses`: bytes by use, shared buffers excluded, of what all microbatches have in common; `own`: of each one in
    flight. `kept`: where shared buffers lie; `room`: bytes that these may take in each replica.
    """

    layout: Layout
    build: Build
    step: Sequence[Declared]
    kernels: frozenset[Kernel]
    uses: Counter[str]
    own: Counter[str]
    kept: Sharing
    room: int | None
    tasks: PlannedTasks | None

    @classmethod
    def of(cls, layout: Layout, settings: Settings, *, keep: bool = False) -> _OneMicrobatch:
        """Declare the first microbatch of a layout; the others are alike. `keep`: its tasks, if there is but one."""
        keep = keep and len(layout.numbers) == 1
        arena = Arena(apart=keep)
        # Slots and staging are reserved for all microbatches, but the tasks of one are enough: the
        # others have as many.
        build = _alone(Build.new(arena, layout, settings.states, frozen=settings.frozen))
        tasks = declare_planned(build := build.told_apart(), settings) if keep else None
        declared = tasks.steps if tasks else declare_all(build, settings)
        main = "update" if layout.training else "forward"
        step = declared[main][0]
        kernels = frozenset(
            task.kernel for steps in declared.values() for tasks in steps for task in tasks
        )
        # Read after all tasks are declared: emitters reserve as they go.
        uses = Counter(arena.uses)
        runs = in_runs(step, layout.sharers, len(layout.numbers))
        uses[TASKS] = _task_bytes(layout, step, runs)
        if arena.most_scratch:
            uses[WORKERS.told] = buffer_bytes(arena.most_scratch * layout.workers)
        own = Counter(build.replica.uses)
        room = None
        if settings.max_memory is not None:
            # What all microbatches have in common comes off first; the rest is divided among those
            # in flight.
            room = (settings.max_memory - uses.total()) // layout.replicas - own.total()
        return cls(
            layout, build, step, kernels, uses, own, _share(arena, runs, layout, room), room,
            tasks.in_runs(main, runs) if tasks and arena.tells else None,
        )  # fmt: skip

    def graph(self, settings: Settings, seconds: Callable[[Declared], float]) -> TaskGraph:
        """Return the graph of a microbatch's own tasks, with the gates of the memory that they share."""
        tasks = gated(declare_gradients(self.build, settings), self.kept)
        runs = in_runs(tasks, self.layout.sharers, self.layout.planned)
        return connect([[replace(run, cost=seconds(run)) for run in runs]]).build()

    def bytes(self, sharing: Sharing) -> int:
        """Return the bytes of everything if shared buffers lie like this."""
        return self.uses.total() + (self.own.total() + sharing.bytes) * sharing.replicas

    def _times(self, task: Declared) -> int:
        """Return how many tasks of a step are like one of this microbatch."""
        return 1 if task.what.serves is Pass.UPDATE else len(self.layout.numbers)

    def plan(self, settings: Settings) -> MemoryPlan:
        """Return the memory plan, with rematerialisation if there is not room for everything."""
        sharing, seconds, arena, layout = self.kept, 0.0, self.build.arena, self.layout
        if self.room is not None and sharing.bytes > self.room and layout.training:
            sharing, seconds = _spared(self.build, settings, self.step, self.kept, self.room)
        uses, own = Counter(self.uses), Counter(self.own)
        for name in sharing.busiest:
            own[arena.shared[name].use.told] += arena.shared[name].bytes
        # What is left between buffers at the peak, so that the uses add up to the bytes.
        own["gaps"] = self.own.total() + sharing.bytes - own.total()
        for what, bytes_ in own.items():
            uses[what] += bytes_ * layout.replicas
        seconds *= len(layout.numbers)
        # Told beside the plan, so that users see what limit would spare the repeated work.
        kept = self.bytes(self.kept)
        return MemoryPlan(
            layout,
            self.bytes(sharing),
            sharing,
            arena.most_scratch,
            uses,
            seconds,
            kept,
            self.kernels,
            sum(
                self._times(task) * task.seconds
                for task in self.step
                if task.what.kind in ELEMENTWISE
            ),
            None if sharing.again else self.tasks,
        )


def _task_bytes(layout: Layout, leaves: Sequence[Declared], runs: Sequence[Declared]) -> int:
    """Return the bytes of the tasks of an even and an odd update, or of a forward pass, from one microbatch's."""
    each = TASK_BYTES + DEQUE_BYTES * layout.workers - LEAF_BYTES
    calls = [1 + len(task.more) for task in leaves]
    return each * _count(layout, runs, [1] * len(runs)) + LEAF_BYTES * _count(layout, leaves, calls)


def _count(layout: Layout, step: Sequence[Declared], each: Sequence[int]) -> int:
    """Return how many of `each` task of a microbatch all steps that are in one graph have."""
    if not layout.training:
        return layout.replicas * sum(each)
    once = sum(
        count for task, count in zip(step, each, strict=True) if task.what.serves is Pass.UPDATE
    )
    # Tasks of the optimiser are there once a step, all others once a microbatch; both parities are
    # one graph.
    return STEPS * (once + len(layout.numbers) * (sum(each) - once))


def planned_memory(layout: Layout, settings: Settings, *, keep: bool = False) -> MemoryPlan:
    """Return the memory plan of a layout, found by declaring its tasks without memory; `keep`: with these."""
    return _OneMicrobatch.of(layout, settings, keep=keep).plan(settings)


def with_tasks(plan: MemoryPlan, settings: Settings) -> MemoryPlan:
    """Return a plan with the tasks of its main graph and of derived filters, where memory was planned with others.

    That is of several microbatches, and where values are computed again.
    """
    if len(plan.layout.numbers) == 1 and not plan.sharing.again:
        return plan
    arena = Arena(sharing=plan.sharing, apart=True)
    build = Build.new(arena, plan.layout, settings.states, frozen=settings.frozen).told_apart()
    main = "update" if plan.layout.training else "forward"
    exchange = settings.exchange(build) if plan.layout.training else None
    steps = {name: declare(name, build, settings, exchange) for name in ("derive", main)}
    transfers = all_transfers(build, exchange)
    if not arena.tells:
        return plan
    kernels = {task.kernel for step in steps.values() for tasks in step for task in tasks}
    return replace(
        plan, kernels=plan.kernels | kernels, tasks=PlannedTasks(build, steps, transfers)
    )


def _alone(build: Build) -> Build:
    """Return a build of the first microbatch alone: the others are alike."""
    layout = build.layout
    if len(layout.numbers) == 1:
        return build
    alone = replace(layout, numbers=layout.numbers[:1], planned=len(layout.numbers))
    return replace(build, layout=alone)


def _share(arena: Arena, step: Sequence[Declared], layout: Layout, room: int | None) -> Sharing:
    """Return places of shared buffers with as much slack as fits; a single worker never waits and needs none."""
    workers = layout.workers if layout.workers > 1 and (room is None or room > 0) else 0
    # Quadratic in few workers: 0.5 ms each of two, 2 ms each of eight or more
    # (docs/design/order.md).
    most = workers * SLACK_SECONDS * min(workers, SLACK_WORKERS) / SLACK_WORKERS
    sizes = _sizes(arena)
    if layout.lean and most:
        least = share(sizes, step).bytes
        room = int(LEAN_SLACK * least) if room is None else min(room, int(LEAN_SLACK * least))
    return replace(share(sizes, step, most, room), replicas=layout.replicas)


def _sizes(arena: Arena) -> dict[Name, int]:
    """Return the bytes of the shared buffers of one replica, by name."""
    # Replicas have the same buffers at the same places, one replica behind the other.
    return {name: buffer.bytes for name, buffer in arena.shared.items() if not name.replica}


def _spared(
    build: Build, settings: Settings, step: Sequence[Declared], kept: Sharing, room: int
) -> tuple[Sharing, float]:
    """Return places within `room` bytes, or as few as possible, with what is recomputed; and its seconds."""
    sizes, end = _sizes(build.arena), count_of_microbatch(build, settings)
    sparing = Sparing(sizes, step, end)
    best, seconds, aim = kept, 0.0, room
    # The choice counts bytes alone; placing leaves gaps. So each try aims lower by what the one
    # before was over.
    for left in reversed(range(MOST_AIMS)):
        saved = sparing.to(aim)
        # Without slack: time between uses is given up before anything is computed twice.
        tasks = [*repeated(step[:end], saved.names), *step[end:]]
        found = share(sizes, in_runs(tasks, build.layout.sharers, build.layout.planned))
        if found.bytes < best.bytes:
            best = replace(found, again=tuple(saved.names), replicas=kept.replicas)
            seconds = saved.seconds
        if best.bytes <= room:
            break
        # The last try aims at 0, that is, at the least that can be reached.
        aim = aim - max(0, found.bytes - room) if left > 1 else 0
    return best, seconds


def planned_bytes(layout: Layout, settings: Settings) -> int:
    """Return the bytes of a layout."""
    return planned_memory(layout, settings).bytes


def planned_within(layout: Layout, settings: Settings, *, keep: bool = False) -> MemoryPlan:
    """Return `planned_with_replicas`; raise PlanError if it needs more than `max_memory`."""
    found = planned_with_replicas(layout, settings, keep=keep)
    if settings.max_memory is not None:
        # Only for the hint of a refusal, which plans other sizes.
        needs = partial(planned_bytes, settings=settings)
        refuse_above(settings.max_memory, found.bytes, found.layout, needs)
    return found


def planned_with_replicas(layout: Layout, settings: Settings, *, keep: bool = False) -> MemoryPlan:
    """Return the memory plan with as many microbatches in flight as the workers need and memory allows.

    Microbatches of one replica follow each other: their longest chains of tasks together should take no more than
    `CHAIN_SHARE` of the time of all work on all workers. What is derived from filters is kept for all of them if it
    fits. The number in flight is reduced before anything is recomputed to save memory. `keep`: the tasks of a layout of
    one microbatch, for who will run them.
    """
    return _with_replicas(layout, settings, keep=keep).plan(settings)


def _with_replicas(layout: Layout, settings: Settings, *, keep: bool = False) -> _OneMicrobatch:
    """Return one microbatch of the layout with as many in flight as `planned_with_replicas` says."""
    layout = replace(layout, replicas=1)
    # Nothing can be kept for other microbatches, nor be in flight beside this one.
    if len(layout.numbers) == 1:
        return _OneMicrobatch.of(layout, settings, keep=keep)
    one = found = _OneMicrobatch.of(replace(layout, filters_kept=True), settings)
    room = room_for_replicas(settings)
    wanted = _wanted(one, settings)
    # First as many as wanted, then half as many, down to one; for each number with derived filters
    # kept, then without.
    for halved in range(wanted.bit_length()):
        for kept in (True, False):
            tried = replace(layout, replicas=wanted >> halved, filters_kept=kept)
            found = one if one.layout == tried else _OneMicrobatch.of(tried, settings)
            if found.bytes(found.kept) <= room:
                return found
    return found


def room_for_replicas(settings: Settings) -> int:
    """Return the bytes that microbatches in flight may take: the limit, or half of the machine, divided by its ranks.

    More of them are a gain of speed, not worth swapping.
    """
    ranks = settings.party.beside if settings.party else 1
    return whole_memory() // (2 * ranks) if settings.max_memory is None else settings.max_memory


def _wanted(one: _OneMicrobatch, settings: Settings) -> int:
    """Return how many microbatches should be in flight if memory does not matter."""
    layout = one.layout
    most = min(layout.workers, len(layout.numbers))
    if most == 1:
        return 1
    # With gates: the chain is what a microbatch takes in shared memory, where tasks also wait for
    # buffers.
    # n in flight take work * count / workers in time, and their chains span * count / n: solved for
    # the n at which these are CHAIN_SHARE of the former.
    graph = one.graph(settings, lambda task: task.cost)
    wanted = ceil(layout.workers * graph.span / (CHAIN_SHARE * graph.work))
    return max(1, min(most, wanted))


@dataclass(frozen=True)
class Forecast:
    """What an update is estimated to take on all workers: bytes without rematerialisation, seconds.

    `least`: the seconds if no worker ever waited for another.
    """

    bytes: int
    seconds: float
    least: float


def forecast(layout: Layout, settings: Settings) -> Forecast:
    """Return the forecast of an update in the microbatches of a layout; declares one of them."""
    one = _with_replicas(layout, settings)
    graph, workers = one.graph(settings, lambda task: task.seconds), layout.workers
    count = len(layout.numbers)
    once = sum(task.seconds for task in one.step if task.what.serves is Pass.UPDATE)
    least = (graph.work * count + once) / workers
    # Brent's bound: microbatches of one replica follow each other.
    chain = graph.span * -(-count // one.layout.replicas) * (1 - 1 / workers)
    return Forecast(one.bytes(one.kept), least + chain, least)


def declared_graph(plan: MemoryPlan, settings: Settings) -> TaskGraph:
    """Return the graph of an even and an odd update, or of a forward pass, without memory: not to be run."""
    many = plan.layout.grain.many
    return connect(_declared(plan, settings), many=many).build(settings.policy)


def declared_touches(plan: MemoryPlan, settings: Settings) -> Touched:
    """Return what the tasks of `declared_graph` touch."""
    return touched(_declared(plan, settings))


def _declared(plan: MemoryPlan, settings: Settings) -> Sequence[Sequence[Declared]]:
    """Return the tasks of an even and an odd update, or of a forward pass, without memory, as they would be run."""
    planned, name = plan.tasks, "update" if plan.layout.training else "forward"
    build = planned.build if planned else _without_memory(plan, settings)
    exchange = settings.exchange(build)
    steps = planned.steps[name] if planned else declare(name, build, settings, exchange)
    runs = gated_runs(name, steps, planned, plan.sharing, plan.layout.sharers)
    return all_steps(build, runs, name)


def gated_runs(
    name: str,
    steps: Sequence[Sequence[Declared]],
    planned: PlannedTasks | None,
    sharing: Sharing,
    workers: int,
) -> list[list[Declared]]:
    """Return the steps of a graph in runs for so many workers, with the gates of the memory that they share.

    Before leaves are joined: a run with a gate within it would hand over memory too early. Those that memory was
    `planned` with are joined already.
    """
    found = [gated(tasks, sharing) for tasks in steps]
    joined = planned is not None and planned.joined == name
    return found if joined else [in_runs(tasks, workers) for tasks in found]


def declared_layers(layout: Layout) -> list[list[Total]]:
    """Return what an update sums over microbatches and ranks, layer by layer; without memory."""
    totals = gradient_accumulation.totals(Build.new(Arena(), layout, 0))
    return outbox.by_layer(layout.network, totals)


def _without_memory(plan: MemoryPlan, settings: Settings) -> Build:
    """Return a build whose buffers lie as planned, without memory."""
    return Build.new(
        Arena(None, plan.sharing), plan.layout, settings.states, frozen=settings.frozen
    )
