"""Declares all tasks of a step: an update, a forward pass, gradients alone, or what is derived from filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from znnpy.distributed.transfers import Transfer
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.requests import Requests
from znnpy.engine.memory.staging import Move
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.dependencies import loss_group
from znnpy.engine.tasks.frozen_graph import FrozenGraph
from znnpy.engine.tasks.odd_step import odd_step
from znnpy.engine.tasks.step import Step
from znnpy.lazily import lazily
from znnpy.network.objectives import Objectives

if TYPE_CHECKING:
    from znnpy.engine import emit
    from znnpy.engine.communication.gradient_exchange import Exchange, Party
    from znnpy.engine.layers import data_movement
else:
    # What declares tasks, which a kept graph is made without: half of the engine, and all kernels.
    emit = lazily("znnpy.engine.emit")
    data_movement = lazily("znnpy.engine.layers.data_movement")

Declarations = dict[str, Sequence[Sequence[Declared]]]


@dataclass(frozen=True)
class Settings:
    """The settings of a step beside its network: losses, optimiser, clipping, and how tasks are run."""

    losses: Objectives  # by output node
    optimizer: Optimizer
    clip_norm: float | None
    threads: int  # 0: the serial executor
    policy: str = "critical-path"
    steal_seed: int = 0
    record: int = 0
    max_memory: int | None = None  # bytes
    party: Party | None = None  # of several ranks
    frozen: frozenset[str] = frozenset()  # parameters that updates leave as they are

    @property
    def states(self) -> int:
        """Buffers that the optimiser keeps for each parameter: none where another rank updates it."""
        moves = self.party is None or self.party.moves
        return len(self.optimizer.state_names) if moves else 0

    def exchange(self, build: Build) -> Exchange | None:
        """Return a new exchange between ranks for a build's tasks, none declared yet; None for a single rank."""
        return self.party.exchange(build) if self.party else None


@dataclass(frozen=True)
class PlannedTasks:
    """Tasks that were declared to plan memory, by graph, until the graphs are made: no task is declared twice.

    `build`: of an arena that tells buffers apart (`Arena.apart`), whose addresses they have, as the messages of updates
    have (`transfers`). `joined`: the graph whose tasks are in runs already.
    """

    build: Build
    steps: Declarations
    transfers: Sequence[Transfer] = ()
    joined: str = ""

    def in_runs(self, name: str, runs: Sequence[Declared]) -> PlannedTasks:
        """Return these with the tasks of one graph in the runs by which memory was planned.

        Gates before such a run are early enough: all buffers that it touches live as long as it does.
        """
        return replace(self, steps={**self.steps, name: [runs]}, joined=name)


@dataclass(frozen=True)
class Connected:
    """Graphs that another process has connected, by name; others are connected here.

    `requests`: what their tasks have asked for, of an arena that tells buffers apart, whose addresses they have, as the
    messages of updates have (`transfers`).
    """

    requests: Requests
    graphs: Mapping[str, FrozenGraph]
    transfers: Sequence[Transfer] = ()


def declare_planned(build: Build, settings: Settings) -> PlannedTasks:
    """Return every graph of a layout of one microbatch; of gradients if they are a part of updates.

    Where filters are updated at once, or ranks add up, gradients have tasks of their own, which are declared for who
    asks for them.
    """
    steps: Declarations = {"derive": [_declare_derived(build)]}
    if not build.layout.training:
        return PlannedTasks(build, steps | {"forward": [_declare_forward(build)]})
    exchange = settings.exchange(build)
    step, gradients = _update(build, settings, 0, exchange)
    steps |= {"update": [step.tasks]}
    if gradients and not exchange:
        steps |= {"gradients": [step.tasks[:gradients]]}
    # Read before another graph is declared.
    alike = step.valued if build.predicts_alike else None
    forward = _predicted(build, alike) if alike else _declare_forward(build)
    found = PlannedTasks(build, steps | {"forward": [forward]})
    return replace(found, transfers=all_transfers(build, exchange))


def declare_all(build: Build, settings: Settings) -> Declarations:
    """Return every graph of a layout but `gradients` as steps of declared tasks; also reserves all scratch."""
    names = ("derive", "update", "forward") if build.layout.training else ("derive", "forward")
    return {
        name: declare(name, build, settings, settings.exchange(build) if name == "update" else None)
        for name in names
    }


def declare(
    name: str, build: Build, settings: Settings, exchange: Exchange | None = None
) -> Sequence[Sequence[Declared]]:
    """Return the steps of one graph: `derive`, `update`, `forward`, `gradients` (without an update).

    Of updates the even one, from which `all_steps` makes the odd one. `exchange`: of an update by several ranks, a new
    one, which has its messages afterwards.
    """
    if name == "update":
        return [declare_update(build, settings, 0, exchange)]
    if name == "gradients":
        return [declare_gradients(build, settings)]
    return [_declare_forward(build) if name == "forward" else _declare_derived(build)]


def all_steps(
    build: Build, steps: Sequence[Sequence[Declared]], name: str
) -> Sequence[Sequence[Declared]]:
    """Return the steps of a graph from those that `declare_all` declared, or from their tasks in runs."""
    if name != "update":
        return steps
    move = Move.of(*build.staging)
    return [steps[0], odd_step(steps[0], move, {loss_group(0): loss_group(1)})]


def all_transfers(build: Build, exchange: Exchange | None) -> list[Transfer]:
    """Return the messages of `all_steps` of an update whose even step was declared with an exchange."""
    if not exchange:
        return []
    exchange.outbox.number_odd(Move.of(*build.staging))
    return exchange.outbox.transfers


def _declare_derived(build: Build) -> list[Declared]:
    """Declare what is derived from filters that are set from outside; updates have the same tasks at their end."""
    step = Step(counting=build.arena.counting)
    emit.emit_derived(step, build)
    return step.tasks


def _declare_forward(build: Build) -> list[Declared]:
    """Declare the forward pass of as many microbatches as have feature maps of their own."""
    # With the even step's staging, and nothing is dropped.
    build.parity, build.dropping = 0, False
    step = Step(counting=build.arena.counting)
    # Prediction keeps nothing for a backward pass, so only what runs at once needs to be declared;
    # `forward` calls it again for the rest.
    for microbatch in range(min(build.layout.replicas, len(build.layout.numbers))):
        step.begin()
        own = build.of(microbatch, 0)
        emit.emit_forward(step, own)
        _unpack_outputs(step, own)
    return step.tasks


def _predicted(build: Build, valued: Step) -> list[Declared]:
    """Return the forward pass of a single microbatch from an update that has its values, and no other tasks."""
    _unpack_outputs(valued, build.of(0, 0))
    return valued.tasks


def _unpack_outputs(step: Step, build: Build) -> None:
    for node in build.layout.network.outputs:
        data_movement.unpack_output(step, build, node.name)


def declare_gradients(build: Build, settings: Settings, *, keeps: bool = True) -> list[Declared]:
    """Declare loss and gradients of all microbatches, without an update; if not `keeps`, with updates at once."""
    build.parity, build.dropping = 0, True
    at_once = emit.updates_at_once(
        build,
        settings.optimizer,
        settings.clip_norm,
        ranks=settings.party is not None,
        frozen=settings.frozen,
    )
    step = Step(counting=build.arena.counting, at_once=at_once, keeps=keeps)
    emit.emit_gradients(step, build, settings.losses)
    return step.tasks


def count_of_microbatch(build: Build, settings: Settings) -> int:
    """Return how many tasks of an update of a single microbatch come before sums over ranks and other updates.

    Updates at once are among them.
    """
    return len(declare_gradients(build, settings, keeps=False))


def declare_update(
    build: Build, settings: Settings, parity: int, exchange: Exchange | None
) -> list[Declared]:
    """Declare the even or odd update."""
    return _update(build, settings, parity, exchange)[0].tasks


def _update(
    build: Build, settings: Settings, parity: int, exchange: Exchange | None
) -> tuple[Step, int]:
    """Declare the even or odd update; return how many of its tasks are those of `declare_gradients`; 0: others are."""
    # Emitters read the parity's staging; buffers are the same in both steps, which orders them.
    build.parity, build.dropping = parity, True
    step = Step(counting=build.arena.counting)
    gradients = emit.emit_update(
        step,
        build,
        settings.losses,
        settings.optimizer,
        settings.clip_norm,
        exchange,
        settings.frozen,
    )
    return step, gradients
