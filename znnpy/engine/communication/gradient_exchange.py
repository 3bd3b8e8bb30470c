"""Data-parallel updates: adds the tasks that sum gradients over ranks (all-reduce) or hand out rank 0's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from socket import gethostname
from typing import Any

import numpy as np
from znnpy_kernels.scheduling.barrier import wait_for_all
from znnpy_kernels.simd.lanes import LANES

from znnpy.config.training_section import DistributedSection
from znnpy.distributed.buckets import Pieces, in_turn
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.link_speed import chosen, measured
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.shared_memory import Windows
from znnpy.distributed.strategies import Strategy, strategy
from znnpy.distributed.world import World
from znnpy.engine.communication.outbox import SECONDS, Bundle, Outbox, by_layer, marked, touched
from znnpy.engine.communication.reductions import add_by_library, add_up, all_reduce, hand_down
from znnpy.engine.layers.gradient_accumulation import Total, add_results, moved, totals
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arrays import Floats
from znnpy.engine.memory.requests import Outside
from znnpy.engine.tasks.dependencies import loss_group
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.fields import shown
from znnpy.network import parameter_shapes
from znnpy.network.types import Network
from znnpy.plan import Plan, fftw
from znnpy.plan.record import saved_plan

Pair = tuple[float, float]
Record = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Party:
    """The ranks that train together: the microbatches of each, their strategy, and this rank's number.

    `near`: ranks of this host whose memory is read in place. `beside`: how many ranks run on this host, this one
    included. Without a `world`, graphs can be inspected but not run.
    """

    ranks: Ranks
    strategy: Strategy
    rank: int
    _world: World | None = None
    near: frozenset[int] = frozenset()
    windows: Windows | None = None
    beside: int = 1

    @classmethod
    def of(
        cls,
        world: World | None,
        microbatches: int,
        network: Network,
        wanted: DistributedSection,
        alike: Mapping[str, Any],
    ) -> Party | None:
        """Return the ranks of a world; None for a single one; all ranks call it together.

        `alike`: settings that must be those of all ranks, JSON-able. DistributedError where one has others, or could
        not add what others send, and for more ranks than microbatches.
        """
        if world is None or world.size == 1:
            return None
        ranks = Ranks.of(microbatches, world.size)
        hosts = _hosts(world, network, {**alike, **wanted.model_dump(mode="json")})
        if wanted.strategy == "auto":
            how = chosen(measured(world), ranks, _layers(network), wanted.colors, wanted.chunk)
        else:
            how = strategy(wanted.strategy, wanted.colors, wanted.chunk)
        # Sums of the library happen inside MPI, which reads no windows.
        shared = wanted.shared_memory and how.fixed
        # Tried before planning: a message whose memory can be read needs no room in the plan.
        near = Windows.near(world) if shared else frozenset()
        return cls(ranks, how, world.rank, world, near, beside=hosts.count(hosts[world.rank]))

    @property
    def world(self) -> World:
        """The connection between the ranks."""
        assert self._world, "a party without a world only shows its graphs"
        return self._world

    @property
    def moves(self) -> bool:
        """Whether this rank runs the optimiser itself."""
        return self.strategy.moves(self.rank)

    @property
    def numbers(self) -> range:
        """The microbatches of this rank."""
        return self.ranks.owned[self.rank].numbers

    def exchange(self, build: Build) -> Exchange:
        """Return a new `Exchange` for a build's tasks, of which nothing is declared yet."""
        if build.arena.apart:
            near, elsewhere = dict.fromkeys(self.near, 0), partial(build.outside, "theirs")
            outbox = Outbox(self.rank, build.outside("mailbox"), near, elsewhere)
        else:
            outbox = Outbox(self.rank, *self.outside)
        return Exchange(self.ranks, self.strategy, outbox)

    @property
    def outside(self) -> Outside:
        """What this rank's tasks touch outside its arena."""
        if self._world is None:
            return Outside(0, dict.fromkeys(self.near, 0))
        # Without windows the shift is never used: only its presence counts, which says that no room is needed.
        shifts = self.windows.shifts if self.windows else dict.fromkeys(self.near, 0)
        return Outside(self._world.messenger.address, shifts)

    def seeing(self, build: Build) -> Party:
        """Return the party with windows on the parameters of other ranks of this host; all ranks call it together.

        Raises DistributedError if a rank's memory cannot be read any more: no room is planned for its messages.
        """
        if not any(self.world.exchange(bool(self.near))):
            return self
        buffers = [
            it
            for parameter in build.parameters.values()
            for it in (parameter.stored, parameter.values_buffer, parameter.gradient_buffer)
            if it.address
        ]
        # One window over all of them. They are the first of the arena, in the same order on every
        # rank, so one shift serves all.
        first = min(buffer.address for buffer in buffers)
        last = max(buffer.address + 4 * buffer.floats for buffer in buffers)
        windows = Windows.open(self.world, first, last - first)
        # Plans count on it (docs/design/distributed.md, "Ranks of one host"), so ordinary messages
        # cannot step in any more.
        if self.near != windows.shifts.keys():
            raise DistributedError(
                "ranks of one host cannot see each other's memory, as they could before: set "
                "distributed.shared_memory: false"
            )
        return replace(self, windows=windows)

    def close(self) -> None:
        """Close the windows."""
        if self.windows:
            self.windows.close()

    def planned(self, record: Record | None, plan: Callable[[Record | None], Plan]) -> Plan:
        """Return rank 0's plan on every rank: rank 0 makes it, the others wait for it."""
        if self.world.rank == 0:
            own = plan(record)
            saved = saved_plan(own)
            self.world.broadcast({"layers": saved.layers, "fftw": saved.fftw})
            return own
        told = self.world.broadcast()
        # Before the plan is used: FFTs must be planned as rank 0 has planned them, or ranks would
        # round differently.
        if told["fftw"] is not None:
            fftw.pin(told["fftw"])
        return plan(told["layers"])

    def in_turn(self, compile_own: Callable[[], None]) -> None:
        """Compile kernels on rank 0, then on the others, which find them in the cache; all ranks call it together."""
        if self.world.rank == 0:
            compile_own()
        self.world.exchange(None)

    def added_pairs(self, own: Mapping[str, Pair]) -> dict[str, Pair]:
        """Return pairs of numbers summed over all ranks by the tree, by name; all ranks must call it."""
        told = self.world.exchange(own)
        return {name: self.ranks.add_up([it[name] for it in told], _add_pairs) for name in own}

    def added_arrays(self, own: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return float32 arrays summed over all ranks by the tree, by name; all ranks must call it."""
        return {
            # All ranks add all arrays in the tree's order, so no second message is needed.
            name: self.ranks.add_up(
                [
                    np.frombuffer(told, np.float32).reshape(array.shape)
                    for told in self.world.exchange(array.tobytes())
                ],
                np.add,
            )
            for name, array in own.items()
        }


def _hosts(world: World, network: Network, alike: Mapping[str, Any]) -> list[str]:
    """Return the host of each rank; DistributedError where one trains another model, or lays it out otherwise."""
    shapes = {f"parameter {name}": shape for name, shape in parameter_shapes(network).items()}
    own = {"floats in a vector": LANES, **shapes, **alike}
    told = world.exchange([gethostname(), own])
    (_, first), *others = told
    for rank, (_, other) in enumerate(others, 1):
        for what in first | other:
            one, two = first.get(what), other.get(what)
            if one != two:
                # Messages are numbers alone: sums would be of different things, and nobody would notice.
                raise DistributedError(
                    f"{what}: rank 0 has {shown(one)}, rank {rank} has {shown(two)}, and what they add up would not "
                    "fit together: all ranks need the same model, and CPUs with equal vectors"
                )
    return [host for host, _ in told]


def _layers(network: Network) -> list[list[Pieces]]:
    """Return about what layers add up, to choose a strategy: filters alone, a piece for each output channel."""
    filters = [it for it in parameter_shapes(network).items() if len(it[1]) > 1]
    return [
        [Pieces(name, tuple(prod(shape[1:]) * (n + 1) for n in range(shape[0])))]
        for name, shape in filters
    ]


def _add_pairs(first: Pair, second: Pair) -> Pair:
    return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True)
class Exchange:
    """One rank's share of data-parallel updates: the tasks for sums and messages that it adds to its graph."""

    ranks: Ranks
    strategy: Strategy
    outbox: Outbox

    @property
    def moves(self) -> bool:
        """Whether this rank runs the optimiser itself."""
        return self.strategy.moves(self.outbox.rank)

    def add_up(self, step: Step, build: Build) -> None:
        """Declare the all-reduce of loss, error, gradients and the statistics of normalisation.

        With a strategy in which rank 0 hands out weights, gradients are summed for rank 0 alone.
        """
        # Results first: the loss is asked for while the backward pass still runs.
        self.outbox.begin()
        self._add_results(step, build)
        for color, bundle in self._in_turn(build, totals(build)):
            if not self.strategy.fixed:
                add_by_library(step, build, self.outbox, bundle)
                continue
            # The color only moves additions to other ranks; the tree, and so every bit, is the
            # same.
            if self.strategy.weights_down:
                add_up(step, build, self.outbox, self.ranks.hops(color or 0), bundle)
            else:
                all_reduce(step, build, self.outbox, self.ranks, color, bundle)

    def hand_out(self, step: Step, build: Build) -> None:
        """Declare the broadcast of parameters that rank 0 has updated, where the others do not update them."""
        if self.strategy.weights_down:
            for color, bundle in self._in_turn(build, moved(build)):
                hand_down(step, self.outbox, self.ranks.hops(color or 0), bundle)

    def hasten(self, step: Step, workers: int) -> None:
        """Mark the tasks that other ranks wait for as urgent, and those of messages as light."""
        step.tasks[:] = marked(step.tasks, self.strategy, workers)

    def _add_results(self, step: Step, build: Build) -> None:
        own = tuple(add_results(step, build))
        # With every strategy: all ranks report the same numbers.
        all_reduce(step, build, self.outbox, self.ranks, None, own)
        step.add(
            wait_for_all,
            {},
            what=Identity(None, Pass.ORDER, Part.RECEIVED),
            cost=SECONDS,
            reads=touched(own),
            writes=[],
            # Whoever waits for the loss waits for the sum over ranks.
            group=loss_group(build.parity),
        )

    def _in_turn(self, build: Build, found: Sequence[Total]) -> Iterator[tuple[int | None, Bundle]]:
        return in_turn(self.strategy, by_layer(build.layout.network, found), self.ranks)
