"""Declares all tasks of a step: an update, a forward pass, gradients alone, or what is derived from filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from znnpy.engine.communication.gradient_exchange import Exchange, Party
from znnpy.engine.emit import emit_derived, emit_forward, emit_gradients, emit_update
from znnpy.engine.layers.data_movement import unpack_output
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.step import Step
from znnpy.network.objectives import Objectives

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

    @property
    def exchange(self) -> Exchange | None:
        """A new exchange between ranks, of which nothing is declared; None for a single rank."""
        return self.party.exchange() if self.party else None


def declare_all(
    build: Build, settings: Settings, exchange: Exchange | None = None, updates: int = STEPS
) -> Declarations:
    """Return every graph of a layout as steps of declared tasks; also reserves all scratch.

    `updates`: 2 declares an even and an odd one, 1 the even one alone, which needs the same memory.
    """
    # `derive` is a graph of its own for parameters that are set from outside; updates have the same
    # tasks at their end.
    derive = Step()
    emit_derived(derive, build)
    declared: Declarations = {"derive": [derive.tasks]}
    if build.layout.training:
        declared["update"] = [
            declare_update(build, settings, parity, exchange) for parity in range(updates)
        ]
    # After the updates: the forward graph has the even step's staging and drops nothing.
    build.parity, build.dropping = 0, False
    declared["forward"] = [_declare_forward(build)]
    return declared


def _declare_forward(build: Build) -> list[Declared]:
    """Declare the forward pass of as many microbatches as have feature maps of their own."""
    step = Step()
    # Prediction keeps nothing for a backward pass, so only what runs at once needs to be declared;
    # `forward` calls it again for the rest.
    for microbatch in range(min(build.layout.replicas, len(build.layout.numbers))):
        step.begin()
        own = build.of(microbatch, 0)
        emit_forward(step, own)
        for node in build.layout.network.outputs:
            unpack_output(step, own, node.name)
    return step.tasks


def declare_gradients(build: Build, settings: Settings) -> list[Declared]:
    """Declare loss and gradients of all microbatches, without an update."""
    build.parity, build.dropping = 0, True
    step = Step()
    emit_gradients(step, build, settings.losses)
    return step.tasks


def declare_update(
    build: Build, settings: Settings, parity: int, exchange: Exchange | None
) -> list[Declared]:
    """Declare the even or odd update."""
    # Emitters read the parity's staging; buffers are the same in both steps, which orders them.
    build.parity, build.dropping = parity, True
    step = Step()
    emit_update(
        step,
        build,
        settings.losses,
        settings.optimizer,
        settings.clip_norm,
        exchange,
        settings.frozen,
    )
    return step.tasks
