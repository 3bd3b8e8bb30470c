"""Ranks other than 0: compute their share of updates and validations; they leave logs and checkpoints to rank 0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

from znnpy.config import config_from
from znnpy.config.models import Config
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.errors import TrainingError, WaitWarning
from znnpy.infer.config_model import training_model
from znnpy.network import Network, trained_network, training_losses
from znnpy.train.averages import by_averages
from znnpy.train.consensus import CommonStop, state_from_bytes
from znnpy.train.environment import Member, member, share_host
from znnpy.train.known_volumes import known_to_all
from znnpy.train.learning_rate import learning_rate
from znnpy.train.log import Record
from znnpy.train.loop import Loop
from znnpy.train.run_writer import Stateful, StepOutcome
from znnpy.train.shards import Whole, training_source
from znnpy.train.shared_forward import SharedForward, SharedValidation
from znnpy.train.shared_prediction import assist
from znnpy.train.signals import StopSignals
from znnpy.train.start import contents_of
from znnpy.train.update_driver import (
    loop_batches,
    pace_of,
    resume,
    verify_all,
    with_threads,
)
from znnpy.train.watch import Watch


class Begun(NamedTuple):
    """Where a run stands: its iteration, whether that is saved, and the last one that was validated."""

    iteration: int
    saved: bool
    validated: int


@dataclass
class Bystander:
    """A keeper that writes nothing, as rank 0 does that. `verify` and `written` as in `RunKeeper`."""

    saved: int
    verify: Callable[[str | None], str | None]
    written: Callable[[], object]

    def start(self, done: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def record(self, iteration: int, outcome: StepOutcome) -> None:
        """Do nothing."""

    @property
    def enough(self) -> bool:
        """Return nothing of its own: rank 0 decides."""
        return False

    def validated(self, model: Stateful, iteration: int, record: Record) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def save(self, model: Stateful, iteration: int) -> str | None:
        """Verify this rank's files and wait until rank 0 has saved; no signal may end that."""
        # In the order of `RunKeeper.save`: verify with all ranks, then wait until the file is
        # there.
        wrong = self.verify(None)
        if wrong is None:
            self.written()
            self.saved = iteration
        return wrong


def follow(world: World) -> int | None:
    """Train with rank 0, which calls `train`, until it is done with everything; return the signal that stopped them.

    Warns only of waiting: rank 0 reports all else on the same files. Raises as `train` does.
    """
    with StopSignals() as signals, warnings.catch_warnings():
        # Other ranks see the same volumes and would say the same.
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", WaitWarning)
        stop, members = CommonStop(signals, world), world.exchange(member())
        share_host(members, world.rank)
        told = world.broadcast()
        if told is not None:
            *standing, config = told
            _train(config_from(config), members, world, stop, Begun(*standing))
        # Rank 0 comes here when it evaluates, and to the end when it has; ending earlier would end it, too.
        assist(world, members)
    return stop.requested


def _train(
    config: Config,
    members: list[Member],
    world: World,
    stop: CommonStop,
    standing: Begun,
) -> None:
    """Make all updates; releases the data before rank 0 evaluates the network."""
    with ExitStack() as stack:
        loop = _loop(stack, config, members, world, stop, standing)
        with suppress(TrainingError):  # rank 0 has the same, and ends us when it says so
            loop.run()


def _loop(
    stack: ExitStack,
    config: Config,
    members: list[Member],
    world: World,
    stop: CommonStop,
    standing: Begun,
) -> Loop:
    """Return the loop from where the run stands."""
    iteration = standing.iteration
    network, training = trained_network(config), config.training
    source = training_source(stack, config, network, world, iteration)
    # The order of calls is that of `_Session._train`, exchange by exchange.
    if isinstance(source, Whole):
        known_to_all(source.scenes, world, [it["host"] for it in members])
    config = with_threads(config, members, world.rank)
    model = _model(config, network, world, iteration)
    stack.enter_context(model)
    # This rank's own first sample, as rank 0 draws its: what cannot be read shows before the first
    # update.
    source.sample(iteration * training.batch + model.samples.start)
    world.exchange("ready")
    losses = training_losses(config, network)
    batches = loop_batches(source, losses, training.batch, iteration, model.samples)
    return Loop(
        model,
        stack.enter_context(closing(batches)),
        pace_of(config, model),
        partial(learning_rate, training),
        Bystander(
            iteration if standing.saved else -1,
            partial(verify_all, [source], world),
            partial(world.exchange, None),
        ),
        stop,
        _validation(config, model, world),
        standing.validated,
        world,
        Watch(config, network, partial(learning_rate, training), None, world)
        if not iteration
        else None,
    )


def _validation(config: Config, model: Model, world: World) -> SharedValidation | None:
    """Return this rank's part of validations; None: there are none."""
    training = config.training
    if not config.data.validation:
        return None
    return SharedValidation(
        SharedForward(model, world),
        ceil(training.validation.patches / training.batch),
        partial(by_averages, model, world) if training.ema else nullcontext,
    )


def _model(config: Config, network: Network, world: World, iteration: int) -> Model:
    """Return the model at the state of the run, planned as by rank 0."""
    state = world.broadcast()
    model = training_model(config, network, None, ranks=world)
    if state is not None:
        parameters, states = state_from_bytes(state, contents_of(config))
        resume(model, parameters, states, iteration)
    return model
