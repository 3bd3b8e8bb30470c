"""Steps that every rank shares: resume the model, choose threads, prepare batches for the loop, verify files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from math import prod
from typing import Protocol

from znnpy.config.models import Config
from znnpy.data.sampling.prefetch import Prefetcher
from znnpy.distributed.core_shares import Place, threads_of
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.engine.step_result import StepResult
from znnpy.evaluation.loss_totals import step_weights
from znnpy.network.objectives import Objectives
from znnpy.train.checkpoint import Arrays
from znnpy.train.environment import Member
from znnpy.train.loop import Batch
from znnpy.train.run_writer import Pace
from znnpy.train.shards import PeriodicSource


def resume(model: Model, parameters: Arrays, optimizer_state: Arrays, iteration: int) -> None:
    """Load parameters and optimiser state into a model, and set its iteration."""
    model.set_parameters(parameters)
    if model.moves:  # else rank 0 keeps all of it
        model.set_optimizer_state(optimizer_state)
    # Last: dropout and the optimiser's corrections count by it, whatever was loaded before.
    model.iteration = iteration


def with_threads(config: Config, members: Sequence[Member], rank: int) -> Config:
    """Return the config with the number of threads of one of several ranks, if it names none."""
    if config.run.threads is not None or not members:
        return config
    places = [Place(member["host"], member["cores"]) for member in members]
    run = config.run.model_copy(update={"threads": threads_of(places, rank)})
    return config.model_copy(update={"run": run})


def pace_of(config: Config, model: Model) -> Pace:
    """Return how often a run logs, validates and saves."""
    training, run = config.training, config.run
    return Pace(
        iterations=training.iterations,
        batch=training.batch,
        voxels=training.batch * sum(prod(s) for s in model.geometry.output_shapes.values()),
        seed=training.seed,
        log_every=run.log_every,
        validate_every=training.validation.every if config.data.validation else 0,
        save_every=run.checkpoint.every,
        keep=run.checkpoint.keep,
        patient=training.validation.patience is not None,
        averaged=training.ema is not None,
    )


class Verified(Protocol):
    """Anything that has read files and can check them."""

    def verify(self) -> None:
        """Raise ChangedError unless all that was read came from the files that were opened."""


def verify_all(readers: Iterable[Verified | None], world: World, wrong: str | None) -> str | None:
    """Return rank 0's word on what is not finite in a state to be saved, the same on all ranks.

    Raises ChangedError unless all that any rank read came from the files that were opened.
    """
    for reader in readers:
        if reader:
            # Every rank's own files, before rank 0's word is waited for.
            reader.verify()
    found: str | None = world.broadcast(wrong)
    return found


def loop_batches(
    source: PeriodicSource, losses: Objectives, batch: int, iteration: int, own: range
) -> Generator[Batch]:
    """Yield batches from an update on, as the loop takes them; prepared ahead within a period of the source."""
    for end in source.periods(iteration):
        # Not beyond the period: its blocks leave before the next one's have come.
        with Prefetcher(source, batch, iteration, own=own, stop=end) as ready:
            for found in ready:
                weights = step_weights(losses, found.targets, found.weights)
                yield Batch(found.images, found.targets, weights)
                iteration += 1


def made_updates(
    model: Model, batches: Iterable[Batch], rate: Callable[[int], float]
) -> Iterator[StepResult]:
    """Make updates by rates of their numbers from 0, and yield their results: one stays in flight, as in training.

    Who stops before the batches end drains the model.
    """
    tickets = deque[int]()
    for number, batch in enumerate(batches):
        made = model.submit(batch.input, batch.target, batch.weight, learning_rate=rate(number))
        tickets.append(made)
        if len(tickets) > 1:
            yield model.result(tickets.popleft())
    while tickets:
        yield model.result(tickets.popleft())
