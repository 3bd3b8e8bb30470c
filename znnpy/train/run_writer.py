"""Writes what a run keeps: checkpoints, log records and progress, in rank 0 or a process alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from znnpy.train.best import Best
from znnpy.train.checkpoint import BEST, Arrays, Checkpoint, prune_best, save, save_best
from znnpy.train.drift import Drift
from znnpy.train.log import Record, RunLog, by_output
from znnpy.train.progress import Rate, Reporter, Status

# By the clock, not by updates: an update may take a millisecond or a minute.
TIMING_INTERVAL = 1.0  # seconds between lines of timings.jsonl


class StepOutcome(Protocol):
    """Loss and voxel error of one update."""

    @property
    def loss(self) -> float:
        """The weighted mean loss over voxels and output channels."""

    @property
    def error(self) -> float:
        """The fraction of wrong voxels."""

    @property
    def losses(self) -> Mapping[str, float]:
        """The terms of the loss, by output."""


class Stateful(Protocol):
    """The state of a model that goes into a checkpoint."""

    @property
    def parameters(self) -> Arrays:
        """Return copies of the parameters by name, after all updates are done."""

    @property
    def optimizer_state(self) -> Arrays:
        """Return copies of the optimiser's state by name, after all updates are done."""


@dataclass(frozen=True)
class Pace:
    """How often things happen, in iterations; 0 means never. `voxels`: output voxels of one update."""

    iterations: int
    batch: int
    voxels: int
    seed: int
    log_every: int
    validate_every: int
    save_every: int
    keep: int
    patient: bool = False
    """Whether training may end early, when the keeper has `enough`."""
    averaged: bool = False
    """Whether validations are made by averages of the weights, which take their place meanwhile."""


class Shown(Protocol):
    """Shows people what a keeper keeps."""

    def take(self, record: Record) -> None:
        """Show a record that was logged."""

    def timed(self, record: Record) -> None:
        """Show a record of how long updates took."""

    def validated(self, iteration: int, record: Record) -> None:
        """Show a validation."""

    def look(self, iteration: int, parameters: Arrays, states: Arrays) -> None:
        """Show the weights of a checkpoint."""

    def close(self, state: str) -> None:
        """Show, at last, how training ended."""


class Keeper(Protocol):
    """Receives the results of a loop; all calls are made from the loop's thread."""

    saved: int
    """The last iteration with a checkpoint, -1 before the first."""

    def start(self, done: int) -> None:
        """Note that training starts or resumes after `done` updates."""

    def close(self) -> None:
        """Note that training is over."""

    def record(self, iteration: int, outcome: StepOutcome) -> None:
        """Record one finished update; its loss is finite."""

    @property
    def enough(self) -> bool:
        """Whether training ends early, as validations are no longer better."""

    def validated(self, model: Stateful, iteration: int, record: Record) -> None:
        """Record one finished validation of a model after `iteration` updates, all done."""

    def sync(self) -> None:
        """Make the records so far durable."""

    def save(self, model: Stateful, iteration: int) -> str | None:
        """Save the state after `iteration` updates, all done; return None, or the name of what is not finite."""


class RunKeeper:
    """Writes a run's logs and checkpoints to its directory, and shows progress; in a process alone and in rank 0.

    `verify` raises ChangedError before a state is saved that was trained on files which changed; it takes and
    returns the name of what is not finite, if anything. `timings` are added to the lines of timings.jsonl. `written`
    is called after each checkpoint. `best`: of the validations so far. `network`: the digest that checkpoints carry
    (`Contents`). `errors`: whether fractions of wrong voxels mean anything. `apart`: whether the loss of each output
    is told beside their sum. `display`: shows all of it. `drift`: looks at the records of the log.
    """

    def __init__(
        self,
        checkpoints: Path,
        logs: tuple[RunLog, RunLog],
        pace: Pace,
        learning_rate: Callable[[int], float],
        reporter: Reporter,
        saved: int = -1,
        verify: Callable[[str | None], str | None] = lambda wrong: wrong,
        timings: Callable[[], Record] = dict,
        written: Callable[[], object] = lambda: None,
        *,
        best: Best | None = None,
        network: str = "",
        errors: bool = True,
        apart: bool = False,
        display: Shown | None = None,
        drift: Drift | None = None,
    ) -> None:
        self._drift = drift or Drift()
        self.saved, self._written, self._errors = saved, written, errors
        self._display, self._apart = display, apart
        self._network, self._best = network, best or Best()
        self._checkpoints, self._pace, self._learning_rate = checkpoints, pace, learning_rate
        self._log, self._timings = logs
        self._reporter, self._verify, self._more = reporter, verify, timings
        self._rate, self._started, self._timed = Rate(), time.monotonic(), 0.0

    def start(self, done: int) -> None:
        """Show where training stands."""
        self._reporter.start(self._pace.iterations, done)

    def close(self) -> None:
        """Show that training is over."""
        self._reporter.close()
        if self._display:
            self._display.close(self._ended())

    def _ended(self) -> str:
        if self.enough:
            return "ended early"
        return (
            "trained"
            if self.saved >= self._pace.iterations
            else f"stopped at {max(self.saved, 0):,}"
        )

    def record(self, iteration: int, outcome: StepOutcome) -> None:
        """Log the update if one is due, and show it."""
        rate = self._rate.add()
        error = outcome.error if self._errors else None
        losses = outcome.losses if self._apart else {}
        status = Status(iteration, outcome.loss, error, rate, rate * self._pace.voxels, losses)
        # The first one always: a run of a few updates has a log, too.
        if due(iteration, self._pace.log_every) or iteration == 1:
            self._note(
                {
                    "iteration": iteration,
                    "loss": outcome.loss,
                    **by_output(losses),
                    **({} if error is None else {"voxel_error": error}),
                    # The rate by which this update was made.
                    "learning_rate": self._learning_rate(iteration - 1),
                }
            )
        seconds = time.monotonic() - self._started
        # The last one always: a run that takes less has a line, too.
        if seconds - self._timed >= TIMING_INTERVAL or iteration == self._pace.iterations:
            self._timed = seconds
            record = {
                "iteration": iteration,
                "seconds": round(seconds, 3),
                "updates_per_s": round(rate, 4),
                "voxels_per_s": round(rate * self._pace.voxels),
            }
            self._timings.write(record | self._more())
            if self._display:
                self._display.timed(record)
        self._reporter.update(status)

    def _note(self, record: Record) -> None:
        self._log.write(record)
        self._drift.take(record)
        if self._display:
            self._display.take(record)

    @property
    def enough(self) -> bool:
        """Whether so many validations were no better that training ends."""
        return self._best.enough

    def validated(self, model: Stateful, iteration: int, record: Record) -> None:
        """Log the finite scores and show them; save weights that are the best so far."""
        # Weights may have overflowed in the last update: saving them says so.
        record = {key: value for key, value in record.items() if math.isfinite(value)}
        logged = {"iteration": iteration, "validation": record}
        self._log.write(logged)
        if self._display:
            self._display.validated(iteration, logged)
        scores = "  ".join(f"{key} {value:.4f}" for key, value in record.items())
        better = self._best.add(iteration, record)
        self._reporter.note(
            f"iteration {iteration}: validation  {scores}{'  (best)' if better else ''}"
        )
        if better:
            self._save_best(model, iteration)
        if text := self._drift.take(logged):
            self._reporter.note(f"warning: {text}")
        if self.enough:
            self._reporter.note(
                f"training ends early: {self._best.since} validations in a row had no better "
                f"{self._best.score} than that of iteration {self._best.iteration}"
            )

    def sync(self) -> None:
        """Make the log durable."""
        self._log.sync()

    def save(self, model: Stateful, iteration: int) -> str | None:
        """Write a checkpoint, after the log that it relies on; raises RunError when the disk fails."""
        parameters, state = model.parameters, model.optimizer_state
        named = {"a weight": parameters, "a state of the optimizer": state}
        # On every rank before any returns: those without weights to look at learn rank 0's finding
        # here.
        wrong = self._verify(next((what for what in named if not _finite(named[what])), None))
        if wrong:
            return wrong
        self._log.sync()
        save(self._checkpoints, self._checkpoint(iteration, parameters, state), self._pace.keep)
        prune_best(self._checkpoints.parent / BEST, self._checkpoints)
        # Other ranks wait for this: none may go on as if a checkpoint existed that does not.
        self._written()
        self.saved = iteration
        if self._display:
            self._display.look(iteration, parameters, state)
        return None

    def _save_best(self, model: Stateful, iteration: int) -> None:
        parameters, state = model.parameters, model.optimizer_state
        # What is not finite is never saved; the next checkpoint says so.
        if _finite(parameters) and _finite(state):
            save_best(
                self._checkpoints.parent / BEST, self._checkpoint(iteration, parameters, state)
            )

    def _checkpoint(self, iteration: int, parameters: Arrays, state: Arrays) -> Checkpoint:
        return Checkpoint(
            iteration=iteration,
            parameters=parameters,
            optimizer_state=state,
            learning_rate=self._learning_rate(iteration),
            seed=self._pace.seed,
            # Redundant, so that a checkpoint of a run with another batch size is noticed.
            next_sample=iteration * self._pace.batch,
            network=self._network,
        )


def _finite(arrays: Arrays) -> bool:
    return all(np.isfinite(array).all() for array in arrays.values())


def due(iteration: int, every: int) -> bool:
    """Return whether something that happens every so many updates happens after this one."""
    return every > 0 and iteration > 0 and iteration % every == 0
