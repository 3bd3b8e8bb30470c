"""The task graphs of one layout and the executors that run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from znnpy_kernels.compile import compile_all
from znnpy_kernels.machine.abi import Kernel

from znnpy.data.memory import whole_memory
from znnpy.engine.communication.bundles import by_layer
from znnpy.engine.communication.exchange import Exchange, Party
from znnpy.engine.emit import (
    emit_derived,
    emit_forward,
    emit_gradients,
    emit_update,
    emit_values,
)
from znnpy.engine.layers.loss import loss_group
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.totals import Total, totals
from znnpy.engine.memory.arena import Arena, Sharing, buffer_bytes
from znnpy.engine.memory.build import STEPS, WORKERS, Build
from znnpy.engine.memory.images import Layout
from znnpy.engine.memory.regions import Name
from znnpy.engine.report import COMPILING, Report
from znnpy.engine.tasks.again import repeated
from znnpy.engine.tasks.declared import Declared
from znnpy.engine.tasks.dependencies import connect, last_group
from znnpy.engine.tasks.sharing import gated, share
from znnpy.engine.tasks.spare import MOST_AIMS, spare
from znnpy.engine.tasks.step import Step
from znnpy.graph import TaskGraph
from znnpy.network.outputs import Objectives
from znnpy.scheduler import Executor, SerialExecutor

Declarations = dict[str, Sequence[Sequence[Declared]]]

# Seconds of work for each of so many workers before the memory of a buffer is used again, so that tasks
# seldom wait for it: simulated on 16 and 64 workers, updates are as fast as with memory of its own for
# every buffer. Fewer workers have less under way and get less: memory that is used again is in the caches.
SLACK_SECONDS, SLACK_WORKERS = 2e-3, 8
CHAIN_SHARE = 0.25
"""Of the time of an update that is all work: longest chains of microbatches that follow each other.

LeNet, 64 images in 8 microbatches, was simulated on 16 workers: 13.1, 14.8 and 15.3 times as fast as one with 0.5,
0.25 and 0.1, in 39, 55 and 59 MB.
"""


@dataclass(frozen=True)
class Settings:
    """What a step does beside its network: losses, optimiser, clipping; and how tasks are run."""

    losses: Objectives  # by output node
    optimizer: Optimizer
    clip_norm: float | None
    threads: int  # 0: the serial executor
    policy: str = "critical-path"
    steal_seed: int = 0
    record: int = 0
    max_memory: int | None = None  # bytes
    party: Party | None = None  # of several ranks

    @property
    def exchange(self) -> Exchange | None:
        """A new one, of which nothing is declared; None for who is alone."""
        return self.party.exchange() if self.party else None


@dataclass(frozen=True)
class MemoryPlan:
    """What a layout needs: `bytes` in all, and where buffers lie that share memory.

    `workspace`: floats of each worker's scratch. `uses` tells how many bytes serve what at the moment
    that needs most; "gaps" are those that then lie idle. `again`: estimated seconds of tasks that make
    once more what does not stay; `kept`: bytes with which nothing would have to.
    """

    bytes: int
    sharing: Sharing
    workspace: int
    uses: Mapping[str, int]
    again: float
    kept: int


def planned_memory(layout: Layout, settings: Settings) -> MemoryPlan:
    """The memory that a layout needs, found by building without any."""
    arena = Arena()
    build = _alone(Build.new(arena, layout, len(settings.optimizer.state_names)))
    declared = _declare_all(build, settings, settings.exchange)
    step = declared["update" if layout.training else "forward"][0]
    uses = Counter(arena.uses)
    if arena.most_scratch:
        uses[WORKERS.told] = buffer_bytes(arena.most_scratch * layout.workers)
    own = Counter(build.replica.uses)
    room = None
    if settings.max_memory is not None:
        room = (settings.max_memory - uses.total()) // layout.replicas - own.total()
    kept, seconds = _share(arena, step, layout, room), 0.0
    sharing = kept
    if room is not None and kept.bytes > room and layout.training:
        sharing, seconds = _spared(build, settings, step, kept, room)
    for name in sharing.busiest:
        own[arena.shared[name].use.told] += arena.shared[name].bytes
    own["gaps"] = build.replica.uses.total() + sharing.bytes - own.total()
    for what, bytes_ in own.items():
        uses[what] += bytes_ * layout.replicas
    whole = uses.total() + (kept.bytes - sharing.bytes) * layout.replicas
    seconds *= len(layout.numbers)
    return MemoryPlan(uses.total(), sharing, arena.most_scratch, uses, seconds, whole)


def _alone(build: Build) -> Build:
    """A build of which only the first microbatch is declared: the others are like it."""
    layout = build.layout
    return replace(build, layout=replace(layout, numbers=layout.numbers[:1]))


def _share(arena: Arena, step: Sequence[Declared], layout: Layout, room: int | None) -> Sharing:
    """Places with as much slack as there is room for; one worker never waits and needs none."""
    sizes = _sizes(arena)
    workers = layout.workers if layout.training and layout.workers > 1 else 0
    most = workers * SLACK_SECONDS * min(workers, SLACK_WORKERS) / SLACK_WORKERS
    for slack in (most, most / 2, most / 4, most / 8, 0.0):
        sharing = share(sizes, step, slack)
        if room is None or sharing.bytes <= room or not slack:
            break
    return replace(sharing, replicas=layout.replicas)


def _sizes(arena: Arena) -> dict[Name, int]:
    """Bytes of the shared buffers of one set of images."""
    return {name: buffer.bytes for name, buffer in arena.shared.items() if not name.replica}


def _spared(
    build: Build, settings: Settings, step: Sequence[Declared], kept: Sharing, room: int
) -> tuple[Sharing, float]:
    """Places in `room` bytes, or as few as it gets, with what is made again; and the seconds that this takes."""
    sizes, end = _sizes(build.arena), len(_declare_gradients(build, settings))
    best, seconds, aim = kept, 0.0, room
    for _ in range(MOST_AIMS):
        saved = spare(sizes, step, end, aim)
        found = share(sizes, [*repeated(step[:end], saved.names), *step[end:]])
        if found.bytes < best.bytes:
            best = replace(found, again=saved.names, replicas=kept.replicas)
            seconds = saved.seconds
        if best.bytes <= room:
            break
        aim -= max(0, found.bytes - room)
    return best, seconds


def planned_bytes(layout: Layout, settings: Settings) -> int:
    """Size of the arena that a layout needs."""
    return planned_memory(layout, settings).bytes


def with_replicas(layout: Layout, settings: Settings) -> Layout:
    """The layout with as many microbatches under way at once as its workers need, where there is room.

    Microbatches of one set of images follow each other: their longest chains of tasks together shall take
    no longer than a share of what all work takes on all workers. Fewer are under way before anything is made
    again to save memory.
    """
    layout = replace(layout, replicas=1)
    most = min(layout.workers, len(layout.numbers))
    if most == 1:
        return layout
    sharing = planned_memory(layout, settings).sharing
    build = _alone(Build.new(Arena(None, sharing), layout, len(settings.optimizer.state_names)))
    graph = connect([gated(_declare_gradients(build, settings), sharing)]).build()
    wanted = ceil(layout.workers * graph.span / (CHAIN_SHARE * graph.work))
    found = replace(layout, replicas=max(1, min(most, wanted)))
    ranks = settings.party.ranks.size if settings.party else 1  # which may share this machine
    room = whole_memory() // (2 * ranks) if settings.max_memory is None else settings.max_memory
    while found.replicas > 1 and planned_memory(found, settings).kept > room:
        found = replace(found, replicas=found.replicas // 2)
    return found


def estimated_work(layout: Layout, settings: Settings) -> float:
    """T1: estimated seconds of all tasks of one update on one core."""
    build = Build.new(Arena(), layout, len(settings.optimizer.state_names))
    return sum(task.cost for task in _declare_update(build, settings, 0, settings.exchange))


def declared_graph(layout: Layout, settings: Settings) -> TaskGraph:
    """The graph of an even and an odd update, or of a forward pass, without memory: not to be run."""
    sharing = planned_memory(layout, settings).sharing
    build = Build.new(Arena(None, sharing), layout, len(settings.optimizer.state_names))
    declared = _declare_all(build, settings, settings.exchange)
    steps = declared["update" if layout.training else "forward"]
    return connect([gated(tasks, sharing) for tasks in steps]).build(settings.policy)


def declared_layers(layout: Layout) -> list[list[Total]]:
    """What an update adds up over microbatches and ranks, layer by layer; without memory."""
    return by_layer(layout.network, totals(Build.new(Arena(), layout, 0)))


def compile_planned(layout: Layout, settings: Settings, report: Report | None) -> None:
    """Compile what the graphs of a layout need, before there is memory for them."""
    build = Build.new(Arena(), layout, len(settings.optimizer.state_names))
    _compile(_declare_all(build, settings, settings.exchange), settings, report)


def _compile(declared: Declarations, settings: Settings, report: Report | None) -> None:
    kernels: set[Kernel] = {
        task.kernel for steps in declared.values() for it in steps for task in it
    }
    tell = partial(report, COMPILING) if report else None
    compile_all(kernels, max(1, settings.threads), tell)


class Graphs:
    """`update` (an even and an odd step), `forward`, `derive`, and `gradients` without an update.

    Graphs of one layout share all buffers: only one may run at a time. Executors are made when
    first asked for and keep their threads, parked, until `close`.
    """

    def __init__(
        self, build: Build, sharing: Sharing, settings: Settings, report: Report | None
    ) -> None:
        self._build, self._sharing, self._settings = build, sharing, settings
        self._exchange = settings.exchange
        self._declared = _declare_all(build, settings, self._exchange)
        _compile(self._declared, settings, report)
        self._executors: dict[str, Executor | SerialExecutor] = {}
        self._groups: dict[str, frozenset[int]] = {}  # that tasks belong to
        self._released: dict[tuple[str, int], int] = {}

    def add_gradients(self) -> str:
        """Name of the graph that computes gradients without an update, made when it is first wanted."""
        name = "gradients"
        if name not in self._declared and name not in self._executors:
            self._declared[name] = [_declare_gradients(self._build, self._settings)]
            compile_all({task.kernel for task in self._declared[name][0]}, 1)
        return name

    def executor(self, name: str) -> Executor | SerialExecutor:
        """The executor of a graph."""
        if name not in self._executors:
            settings = self._settings
            steps = [gated(tasks, self._sharing) for tasks in self._declared[name]]
            graph = connect(steps).build(settings.policy)
            if settings.threads == 0 or name == "derive":
                self._executors[name] = SerialExecutor(graph, record=settings.record)
            else:
                executor = self._executors[name] = Executor(
                    graph, settings.threads, seed=settings.steal_seed, record=settings.record
                )
                if settings.party and self._exchange and name == "update":
                    transfers = self._exchange.outbox.transfers
                    settings.party.world.messenger.attach(transfers, executor.release)
            self._groups[name] = frozenset(graph.group.tolist())
            del self._declared[name]
        return self._executors[name]

    def run(self, name: str) -> None:
        """Run a graph of one step to its end, after everything that an interrupt left under way."""
        self.drain()
        if name in self._executors or self._declared[name][0]:
            self.release(name, 0)
            self.finish(name, 0)

    def node_by_node(self) -> Iterator[tuple[str, int]]:
        """Pass what is staged forward, as updates do, on this thread.

        A node and a microbatch when its values are there: those of later ones may lie in the same memory.
        """
        self.drain()
        layout = self._build.layout
        self._build.dropping = layout.training
        for microbatch in range(len(layout.numbers)):
            step, done, own = Step(), 0, self._build.of(microbatch, 0)
            for node in layout.network.nodes:
                emit_values(step, own, node)
                tasks, done = step.tasks[done:], len(step.tasks)
                if tasks:
                    there = {region.buffer for task in tasks for region in task.reads}
                    executor = SerialExecutor(connect([gated(tasks, self._sharing)], there).build())
                    executor.release(0)
                    executor.wait(last_group(0), 1)
                yield node.name, microbatch

    def release(self, name: str, parity: int) -> None:
        """Start one step."""
        executor = self.executor(name)
        self._released[name, parity] = self._released.get((name, parity), 0) + 1
        executor.release(parity)

    def finish(self, name: str, parity: int) -> None:
        """Wait until the last released step of this parity is complete."""
        self._wait(name, parity, last_group(parity))
        if name not in ("forward", "derive"):
            self.wait_for_loss(name, parity)

    def wait_for_loss(self, name: str, parity: int) -> None:
        """Wait until the loss of the last released step of this parity is known."""
        self._wait(name, parity, loss_group(parity))

    def drain(self) -> None:
        """Wait until every released step of every graph is complete."""
        for name, parity in list(self._released):
            self.finish(name, parity)

    def close(self) -> None:
        """Stop all workers; with other ranks, once what they wait for has been done."""
        if party := self._settings.party:
            if "update" in self._executors:
                self.drain()
                party.world.messenger.detach()
            party.close()
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()

    def _wait(self, name: str, parity: int, group: int) -> None:
        count = self._released.get((name, parity), 0)
        if not count:
            return
        executor = self.executor(name)
        if group in self._groups[name]:  # a network without parameters ends with its loss
            executor.wait(group, count)


def _declare_all(
    build: Build, settings: Settings, exchange: Exchange | None = None
) -> Declarations:
    """Every graph of a layout, as steps of declared tasks; also reserves all scratch."""
    derive = Step()
    emit_derived(derive, build)
    declared: Declarations = {"derive": [derive.tasks]}
    if build.layout.training:
        declared["update"] = [
            _declare_update(build, settings, parity, exchange) for parity in range(STEPS)
        ]
    build.parity, build.dropping = 0, False
    declared["forward"] = [_declare_forward(build)]
    return declared


def _declare_forward(build: Build) -> list[Declared]:
    """Of as many microbatches as have images of their own."""
    step = Step()
    for microbatch in range(min(build.layout.replicas, len(build.layout.numbers))):
        step.begin()
        emit_forward(step, build.of(microbatch, 0))
    return step.tasks


def _declare_gradients(build: Build, settings: Settings) -> list[Declared]:
    build.parity, build.dropping = 0, True
    step = Step()
    emit_gradients(step, build, settings.losses)
    return step.tasks


def _declare_update(
    build: Build, settings: Settings, parity: int, exchange: Exchange | None
) -> list[Declared]:
    build.parity, build.dropping = parity, True
    step = Step()
    emit_update(step, build, settings.losses, settings.optimizer, settings.clip_norm, exchange)
    return step.tasks
