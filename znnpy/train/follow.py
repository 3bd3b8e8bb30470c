"""A rank other than 0: computes its share of every update, and leaves all else to rank 0."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from znnpy.config import config_from
from znnpy.config.models import Config
from znnpy.data.sampling.prefetch import Prefetcher
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.infer.build import training_model
from znnpy.network import Network, trained_network, training_losses
from znnpy.train.keeper import Stateful, StepOutcome
from znnpy.train.loop import Loop
from znnpy.train.members import Member, member, share_host
from znnpy.train.records import Record
from znnpy.train.schedule import learning_rate
from znnpy.train.signals import StopSignals
from znnpy.train.start import contents_of
from znnpy.train.together import CommonStop, state_from_bytes
from znnpy.train.work import (
    loop_batches,
    open_sampler,
    pace_of,
    resume,
    verify_all,
    with_threads,
)


@dataclass
class Bystander:
    """Keeps nothing: rank 0 does. `verify` and `written` as in `RunKeeper`."""

    saved: int
    verify: Callable[[], None]
    written: Callable[[], object]

    def start(self, done: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def record(self, iteration: int, outcome: StepOutcome) -> None:
        """Nothing."""

    def validated(self, iteration: int, record: Record) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""

    def save(self, model: Stateful, iteration: int) -> str | None:
        """Let rank 0 save what was trained on this rank's files, and wait: no signal may end that."""
        self.verify()
        self.written()
        self.saved = iteration
        return None


def follow(world: World) -> int | None:
    """Train with rank 0, which calls `train`, until it is done with all; the signal that stopped them.

    Raises as `train` does.
    """
    with StopSignals() as signals:
        stop, members = CommonStop(signals, world), world.exchange(member())
        share_host(members, world.rank)
        config = world.broadcast()
        if config is not None:
            with ExitStack() as stack:
                _loop(stack, config_from(config), members, world, stop).run()
        world.exchange(None)
    return stop.requested


def _loop(
    stack: ExitStack, config: Config, members: list[Member], world: World, stop: CommonStop
) -> Loop:
    network, training = trained_network(config), config.training
    sampler = open_sampler(stack, config, network, config.data.train, "data.train")
    model, saved = _model(with_threads(config, members, world.rank), network, world)
    stack.enter_context(model)
    sampler.sample(model.iteration * training.batch + model.samples.start)
    world.exchange("ready")
    batches = stack.enter_context(
        Prefetcher(sampler, training.batch, model.iteration, own=model.samples)
    )
    return Loop(
        model,
        loop_batches(batches, training_losses(config, network)),
        pace_of(config, model),
        partial(learning_rate, training),
        Bystander(saved, partial(verify_all, [sampler], world), partial(world.exchange, None)),
        stop,
    )


def _model(config: Config, network: Network, world: World) -> tuple[Model, int]:
    """The model where the run stands, planned as rank 0 does, and the iteration that is saved."""
    iteration, state = world.broadcast(), world.broadcast()
    model = training_model(config, network, None, ranks=world)
    if state is None:
        return model, -1
    parameters, states = state_from_bytes(state, contents_of(config))
    resume(model, parameters, states, iteration)
    return model, iteration
