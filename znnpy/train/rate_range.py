"""The learning-rate range test (Smith 2015): trains while the rate rises, until the loss diverges; keeps nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic

from znnpy.config.models import Config
from znnpy.data.process_memory import readable
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.errors import TrainingError
from znnpy.infer.config_model import training_model
from znnpy.network import Network, self_contained, trained_network, training_losses
from znnpy.train.loop import Batch
from znnpy.train.progress import Reporter, Status
from znnpy.train.rate_suggestion import Divergence, Suggestion, suggest_rate
from znnpy.train.shards import training_source
from znnpy.train.signals import StopSignals
from znnpy.train.start import first_state
from znnpy.train.update_driver import loop_batches, pace_of, resume


@dataclass(frozen=True)
class RangeTest:
    """The losses of a range test before the update with each rate, up to divergence.

    `diverged`: the rate after whose update they did. `signal`: the number of the signal that stopped it.
    """

    optimizer: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    diverged: float | None
    signal: int | None
    suggestion: Suggestion


def rising(low: float, high: float, updates: int) -> list[float]:
    """Return so many learning rates from `low` to `high`, each the same number of times the one before."""
    return [low * (high / low) ** (n / (updates - 1)) for n in range(updates)]


def range_test(config: Config, rates: Sequence[float], reporter: Reporter) -> RangeTest:
    """Train a config's network from its first weights, an update with each rate in turn; writes no run.

    Patches, augmentation, optimiser, clipping and frozen parameters are those of training; its schedule does not
    count. Raises ZnnpyError subclasses for errors that the user can mend, TrainingError where the first loss is not
    finite, Stopped for a signal before the first update.
    """
    config = self_contained(config)
    network = trained_network(config)
    with StopSignals() as stop, ExitStack() as stack:
        source = training_source(stack, config, network, World(), 0)
        source.sample(0)  # volumes that cannot be read show before anything is compiled
        model = stack.enter_context(_model(config, network, reporter))
        losses = training_losses(config, network)
        batches = loop_batches(source, losses, config.training.batch, 0, model.samples)
        ready = stack.enter_context(closing(batches))
        with stop.deferred():
            found = _Updates(config, model, ready, rates, reporter, stop).run()
        source.verify()
    return found


def _model(config: Config, network: Network, reporter: Reporter) -> Model:
    first = first_state(config, reporter)
    model = training_model(config, network, None, report=reporter.preparing)
    reporter.note(f"updates take {readable(model.memory)} of memory, threads: {model.threads}")
    if first:
        resume(model, first.parameters, first.optimizer_state, 0)
    return model


class _Updates:
    """The updates of one test: submitted one ahead, as in training."""

    def __init__(
        self,
        config: Config,
        model: Model,
        batches: Iterator[Batch],
        rates: Sequence[float],
        reporter: Reporter,
        stop: StopSignals,
    ) -> None:
        self._optimizer = config.training.optimizer.kind
        self._model, self._batches, self._rates = model, batches, rates
        self._reporter, self._stop = reporter, stop
        self._voxels = pace_of(config, model).voxels
        self._losses: list[float] = []
        self._divergence = Divergence()
        self._diverged: float | None = None
        self._pending: deque[int] = deque()

    def run(self) -> RangeTest:
        self._reporter.start(len(self._rates), 0)
        self._began = monotonic()
        try:
            for rate in self._rates:
                if self._diverged is not None or self._stop.requested is not None:
                    break
                batch = next(self._batches)
                self._pending.append(
                    self._model.submit(batch.input, batch.target, batch.weight, learning_rate=rate)
                )
                self._finish_all_but(1)
            self._finish_all_but(0)
        finally:
            self._model.drain()
            self._reporter.close()
        return self._found()

    def _finish_all_but(self, ahead: int) -> None:
        while len(self._pending) > ahead:
            outcome = self._model.result(self._pending.popleft())
            # What is heard after a divergence tells nothing.
            if self._diverged is not None:
                continue
            heard = len(self._losses)
            if self._divergence.heard(outcome.loss):
                # A loss is that of weights which the update before it has made.
                self._diverged = self._rates[max(heard - 1, 0)]
            if math.isfinite(outcome.loss):
                self._losses.append(outcome.loss)
                done = len(self._losses)
                speed = done / max(monotonic() - self._began, 1e-9)
                self._reporter.update(Status(done, outcome.loss, None, speed, speed * self._voxels))
            elif not heard:
                raise TrainingError(
                    f"the loss of the first weights is {outcome.loss}, before any update; look at the volumes, "
                    "data.normalize and training.start_from"
                )

    def _found(self) -> RangeTest:
        rates, losses = tuple(self._rates[: len(self._losses)]), tuple(self._losses)
        suggestion = suggest_rate(rates, losses, self._diverged)
        return RangeTest(
            self._optimizer, rates, losses, self._diverged, self._stop.requested, suggestion
        )
