"""`Graphs`: compiles the kernels of a layout's task graphs, makes their executors and runs steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.compile import compile_all
from znnpy_kernels.machine.stored_code import Linked
from znnpy_kernels.scheduling.run import run_in_turn

from znnpy.data.process_memory import give_back, give_back_libraries
from znnpy.distributed.transfers import Transfer
from znnpy.engine.kept.graphs import Keeper
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.arena import Arena, moved
from znnpy.engine.memory.requests import Outside
from znnpy.engine.memory_planning import MemoryPlan, gated_runs
from znnpy.engine.progress import COMPILING, Report
from znnpy.engine.step_tasks import (
    Declarations,
    PlannedTasks,
    Settings,
    all_steps,
    all_transfers,
    declare,
)
from znnpy.engine.tasks.buffer_sharing import gated
from znnpy.engine.tasks.declaration import Declared, uncollected
from znnpy.engine.tasks.dependencies import connect, last_group, loss_group
from znnpy.engine.tasks.frozen_graph import FrozenGraph
from znnpy.engine.tasks.step import Step
from znnpy.graph import TaskGraph
from znnpy.lazily import lazily
from znnpy.meanwhile import meanwhile
from znnpy.scheduler import Executor, SerialExecutor, available_cores

if TYPE_CHECKING:
    from znnpy.engine import emit
else:
    # What a kept graph is made without.
    emit = lazily("znnpy.engine.emit")


def compile_planned(plan: MemoryPlan, settings: Settings, report: Report | None) -> None:
    """Compile the kernels of a layout's graphs, without memory for them."""
    layout, steps = plan.layout, list[Sequence[Declared]]()
    if not _knows_kernels(plan):
        build = Build.new(Arena(), layout, settings.states, frozen=settings.frozen)
        name = "update" if layout.training else "forward"
        steps += declare(name, build, settings, settings.exchange(build))
    _compile(steps, plan, settings, report)


def _knows_kernels(plan: MemoryPlan) -> bool:
    """Return whether a plan knows all kernels of its main graph."""
    return bool(len(plan.layout.numbers) == 1 or plan.tasks or plan.connected)


_linked = False
"""Whether this process has linked kernels since a model that predicts has handed back what that took."""


def _compile(
    steps: Sequence[Sequence[Declared]], plan: MemoryPlan, settings: Settings, report: Report | None
) -> None:
    """Compile the kernels of the main graph and of those that are declared later, but those that came linked."""
    global _linked
    # The plan knows all, but where it has no tasks of several microbatches those that add these up.
    kernels = {*plan.kernels, *(task.kernel for step in steps for task in step)}
    own = {it for it in kernels if not isinstance(it, Linked)}
    loaded = all(kernel.loaded for kernel in own)
    # A graph that is kept has the kernels that it calls, and needs no function that connects one.
    if own or not plan.connected:
        tell = partial(report, COMPILING) if report else None
        # Workers may be more than cores: processes that compile would take memory, and no less time.
        compile_all({run_in_turn, *own}, max(1, min(settings.threads, available_cores())), tell)
    # Afterwards, and never set to False here: other threads make models meanwhile and hand back.
    if not loaded or len(own) < len(kernels):
        _linked = True


class Graphs:
    """The graphs of one layout: `update` (an even and an odd step), `forward`, `derive`, `gradients` (no update).

    They share all buffers: only one may run at a time. What is not the main graph is declared on first use, as
    declaring takes long for large networks. Executors are made on first use and keep their threads, parked, until
    `close`. One caller at a time.
    """

    def __init__(
        self, build: Build, plan: MemoryPlan, settings: Settings, report: Report | None
    ) -> None:
        self._build, self._sharing, self._settings = build, plan.sharing, settings
        self.main = "update" if plan.layout.training else "forward"
        self._declared: Declarations = {}
        self._planned, self._connected = plan.tasks, plan.connected
        self._keeper = Keeper.of(plan, settings, self.main)
        requests = plan.tasks.build.requests() if plan.tasks else None
        if plan.connected:
            requests = plan.connected.requests
        outside = settings.party.outside if settings.party else Outside()
        self._places = build.places(requests, outside) if requests else np.zeros(0, np.int64)
        self._transfers: list[Transfer] = []  # of updates, by number; the same list in each of them
        if own := plan.tasks or plan.connected:
            self._transfers += _in_place(own.transfers, self._places)
        # Where the plan knows the kernels, tasks are declared for who asks for them, which for many models is a forward
        # pass or gradients alone.
        steps = () if _knows_kernels(plan) else self._steps(self.main)
        _compile(steps, plan, settings, report)
        # Before parameters are set, which may take the most memory.
        self._give_back()
        self._executors: dict[str, Executor | SerialExecutor] = {}
        self._groups: dict[str, frozenset[int]] = {}  # that tasks belong to

    def _steps(self, name: str) -> Sequence[Sequence[Declared]]:
        """Return the declared steps of a graph whose executor is not made yet."""
        if planned := self._planned_with(name):
            return planned.steps[name]
        if name not in self._declared:
            exchange = self._settings.exchange(self._build) if name == "update" else None
            with uncollected():
                self._declared[name] = declare(name, self._build, self._settings, exchange)
            transfers = all_transfers(self._build, exchange)
            self._transfers += transfers if not self._transfers else []
        return self._declared[name]

    def _planned_with(self, name: str) -> PlannedTasks | None:
        """Return the tasks that memory was planned with, while they are kept, if a graph's are among them."""
        return self._planned if self._planned and name in self._planned.steps else None

    def executor(self, name: str) -> Executor | SerialExecutor:
        """Return the executor of a graph, made on first use."""
        if name not in self._executors:
            # What predicts in little memory uses nearly all of it in each pass. Before, it need not be there.
            first = name == self.main and self._build.layout.lean
            with meanwhile(self._build.arena.touch) if first else nullcontext():
                self._make(name)
        return self._executors[name]

    @uncollected()
    def _make(self, name: str) -> None:
        settings = self._settings
        frozen = self._frozen(name)
        graph = frozen.graph() if frozen else self._connected_here(name)
        if self._keeper and self._planned_with(name):
            graph = self._keeper.noted(name, graph)
        moved(graph.words, self._places)
        # Derived filters are made once in a while by few tasks: threads of their own would
        # mostly be parked.
        if settings.threads == 0 or name == "derive":
            self._executors[name] = SerialExecutor(graph, record=settings.record)
        else:
            self._executors[name] = Executor(
                graph,
                settings.threads,
                seed=settings.steal_seed,
                record=settings.record,
                beside=_threads_beside(settings),
            )
        self._groups[name] = frozenset(graph.group.tolist())
        if name == self.main:
            self._planned = self._connected = None
            if self._keeper:
                self._keeper.write(name)
                self._keeper = None
            self._give_back(last=True)

    def _frozen(self, name: str) -> FrozenGraph | None:
        """Return a graph that another process has connected, if it is kept."""
        return self._connected.graphs.get(name) if self._connected else None

    def _connected_here(self, name: str) -> TaskGraph:
        steps = self._steps(name)
        # `gradients` may have others than were compiled.
        compile_all({task.kernel for step in steps for task in step}, 1)
        # Gates are added here and not when tasks are declared: planning declares them without
        # places in memory.
        planned, workers = self._planned_with(name), self._build.layout.sharers
        runs = gated_runs(name, steps, planned, self._sharing, workers)
        build = planned.build if planned else self._build
        many = self._build.layout.grain.many
        graph = connect(all_steps(build, runs, name), many=many).build(self._settings.policy)
        # The graph has all that is needed; declarations of a large network take as much memory
        # again.
        self._declared.pop(name, None)
        return graph

    def _give_back(self, *, last: bool = False) -> None:
        """Hand back what compiling and linking took, where a model only predicts: many predict large volumes.

        Nothing where all kernels were there: to look through what is mapped takes 40 ms, a small model 10. `last`:
        before its first pass, after which there is nothing left to hand back until others are linked.
        """
        global _linked
        if _linked and not self._build.layout.training:
            # First, as other threads may link more while this one hands back.
            _linked = not last
            give_back_libraries()
            give_back()

    def run(self, name: str) -> None:
        """Run a graph of one step to its end, after everything that an interrupt left running."""
        self.drain()
        # A network without derived filters has no tasks in `derive`, and no graph can be made of
        # none.
        if name in self._executors or self._frozen(name) or self._steps(name)[0]:
            self.release(name, 0)
            self.finish(name, 0)

    def node_by_node(self) -> Iterator[tuple[str, int]]:
        """Run the forward pass of an update on this thread; yield each node and microbatch once it has values.

        They must be read at once: later nodes may lie in the same memory.
        """
        self.drain()
        layout = self._build.layout
        # The same dropout as in the update whose values are looked for.
        self._build.dropping = layout.training
        for microbatch in range(len(layout.numbers)):
            step, done, own = Step(), 0, self._build.of(microbatch, 0)
            for node in layout.network.nodes:
                emit.emit_values(step, own, node)
                tasks, done = step.tasks[done:], len(step.tasks)
                if tasks:
                    # Only a node's own tasks are connected, so all that they read counts as filled.
                    there = {region.buffer for task in tasks for region in task.reads}
                    executor = SerialExecutor(connect([gated(tasks, self._sharing)], there).build())
                    executor.release(0)
                    executor.wait(last_group(0), 1)
                yield node.name, microbatch

    def release(self, name: str, parity: int) -> None:
        """Start one step of this parity; does not wait."""
        executor = self.executor(name)
        if name == "update":
            # Each time: models of one world take turns with its messages.
            self._attach(executor)
        executor.release(parity)

    def released(self, name: str, parity: int) -> int:
        """Return how many steps of this parity have started."""
        return self._executors[name].released(parity) if name in self._executors else 0

    def waits_for(self, name: str, group: int) -> bool:
        """Return whether a graph that has its executor has tasks of a group."""
        return group in self._groups[name]

    def finish(self, name: str, parity: int, *, loss: bool = True) -> None:
        """Wait until the last released step of this parity is complete, and its loss known unless that is left out."""
        if name not in self._executors:
            return
        self._wait(name, parity, last_group(parity))
        if loss and name not in ("forward", "derive"):
            self.wait_for_loss(name, parity)

    def wait_for_loss(self, name: str, parity: int) -> None:
        """Wait until the loss of the last released step of this parity is known."""
        self._wait(name, parity, loss_group(parity))

    def drain(self) -> None:
        """Wait until every released step of every graph is complete."""
        for name, parity in product(list(self._executors), range(STEPS)):
            self.finish(name, parity)

    def close(self) -> None:
        """Stop all workers; with several ranks, after everything that the others wait for."""
        if party := self._settings.party:
            if "update" in self._executors:
                self.drain()
                # Before windows are closed and threads stopped: other ranks may still read this
                # one's memory.
                party.world.messenger.detach(self._transfers)
            party.close()
        for executor in self._executors.values():
            executor.close()
        self._executors.clear()

    def _attach(self, executor: Executor | SerialExecutor) -> None:
        """Direct messages of other ranks to this model: another one of this process may have had them last."""
        if party := self._settings.party:
            # Of native workers alone: the serial executor has no control block.
            control = executor.control if isinstance(executor, Executor) else None
            messenger = party.world.messenger
            messenger.attach(self._transfers, executor.release, self.drain, control)

    def _wait(self, name: str, parity: int, group: int) -> None:
        count = self.released(name, parity)
        if not count:
            return
        executor = self.executor(name)
        if group in self._groups[name]:  # a network without parameters ends with its loss
            executor.wait(group, count)


def _in_place(transfers: Sequence[Transfer], places: NDArray[np.int64]) -> list[Transfer]:
    """Return messages whose addresses an arena tells apart, with those of buffers in their places."""
    words = np.array([span.address for it in transfers for span in it.spans], np.int64)
    moved(words, places)
    address = iter(words.tolist())
    return [
        it._replace(spans=tuple(span._replace(address=next(address)) for span in it.spans))
        for it in transfers
    ]


def _threads_beside(settings: Settings) -> int:
    """Return how many threads share this host's cores with the workers: other ranks', and those for messages."""
    # Ranks with cores of their own count, too: there the thread for messages shares cores with the workers anyway.
    ranks = settings.party.beside if settings.party else 0
    return max(0, ranks * (settings.threads + 1) - settings.threads)
