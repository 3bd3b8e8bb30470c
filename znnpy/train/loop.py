"""The training loop: one update ahead of the one whose loss it reads; saves; stops in time."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from znnpy.errors import ChangedError, TrainingError
from znnpy.train.checkpoint import Arrays, Checkpoint, save
from znnpy.train.log import RunLog
from znnpy.train.progress import Rate, Reporter, Status
from znnpy.train.records import Record
from znnpy.train.signals import StopSignals
from znnpy.train.suspects import suspects

Images = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
TIMING_INTERVAL = 1.0  # seconds between lines of timings.jsonl
FED = 3  # batches that are remembered: a loss may be lost by the update before
MEND = "Mend the volumes, or look at data.normalize and data.target"
SLOWER = "Lower training.learning_rate or set training.clip_norm"


class StepOutcome(Protocol):
    """What an update says of itself."""

    @property
    def loss(self) -> float:
        """Weighted mean over voxels and output images."""

    @property
    def error(self) -> float:
        """Share of wrong voxels."""


class Trainable(Protocol):
    """What the loop needs of a model; `znnpy.Model` in practice."""

    iteration: int

    @property
    def parameters(self) -> Arrays:
        """Copies, after all updates are done."""

    @property
    def optimizer_state(self) -> Arrays:
        """Copies, after all updates are done."""

    def submit(
        self, x: Any, target: Any, weight: Any = None, *, learning_rate: float = 0.01
    ) -> int:
        """Start one update; returns its ticket."""

    def result(self, ticket: int) -> StepOutcome:
        """Wait for an update's loss."""

    def drain(self) -> None:
        """Wait for all updates."""

    def non_finite_layer(self) -> str | None:
        """First layer in data order with NaN or Inf."""


@dataclass(frozen=True)
class Batch:
    """One update's samples: (batch, image, z, y, x) float32 or by node name; weight may be None."""

    input: Images
    target: Images
    weight: Images | None


@dataclass(frozen=True)
class Pace:
    """When things happen, in iterations; 0 means never. `voxels`: output voxels of one update."""

    iterations: int
    batch: int
    voxels: int
    seed: int
    log_every: int
    validate_every: int
    save_every: int
    keep: int


class Loop:
    """Trains `model` from its current iteration to the last one.

    `batches` yields the batch of each iteration from the current one on. `validate` returns a
    record for the log, or None when a signal cut it short; `validated` is the last iteration with
    such a record. All calls are made from the calling thread. Raises TrainingError within one step
    when a loss, or before saving a weight or a state of the optimizer, is NaN or Inf: such are never saved.
    """

    def __init__(
        self,
        model: Trainable,
        batches: Iterator[Batch],
        pace: Pace,
        learning_rate: Callable[[int], float],
        checkpoints: Path,
        logs: tuple[RunLog, RunLog],
        stop: StopSignals,
        reporter: Reporter,
        validate: Callable[[], Record | None] | None = None,
        validated: int = 0,
        saved: int = -1,
        verify: Callable[[], None] = lambda: None,
    ) -> None:
        self._model, self._batches, self._pace = model, batches, pace
        self._learning_rate, self._validate, self._validated = learning_rate, validate, validated
        self._checkpoints, self._stop, self._reporter = checkpoints, stop, reporter
        self._verify = verify
        self._log, self._timings = logs
        self._pending: deque[tuple[int, int]] = deque()  # iteration after the update, its ticket
        self._fed: deque[Batch] = deque(maxlen=FED)
        self._saved, self._submitted = saved, model.iteration
        self._rate, self._started, self._timed = Rate(), time.monotonic(), 0.0

    def run(self) -> int:
        """Train until done or asked to stop, save, and return the iteration reached."""
        with self._stop.deferred():
            self._reporter.start(self._pace.iterations, self._submitted)
            try:
                if self._saved < 0:
                    self._save()
                self._validate_if_due()
                while self._submitted < self._pace.iterations and self._stop.requested is None:
                    self._submit()
                    self._finish_all_but(1)
                    self._pause_if_due()
                self._settle()
                if self._saved < self._submitted:
                    self._save()
            except ChangedError as error:
                raise self._untrusted(error) from error
            finally:
                self._reporter.close()
        return self._submitted

    def _submit(self) -> None:
        batch = next(self._batches)
        rate = self._learning_rate(self._submitted)
        ticket = self._model.submit(batch.input, batch.target, batch.weight, learning_rate=rate)
        self._fed.append(batch)
        self._submitted += 1
        self._pending.append((self._submitted, ticket))

    def _finish_all_but(self, ahead: int) -> None:
        while len(self._pending) > ahead:
            iteration, ticket = self._pending.popleft()
            outcome = self._model.result(ticket)
            if not math.isfinite(outcome.loss):
                self._diverged(f"the loss is {outcome.loss} at iteration {iteration}")
            self._record(iteration, outcome)

    def _pause_if_due(self) -> None:
        if _due(self._submitted, self._pace.validate_every) and self._validate:
            self._settle()
            self._validate_if_due()
        if _due(self._submitted, self._pace.save_every):
            self._settle()
            self._save()

    def _settle(self) -> None:
        self._finish_all_but(0)
        self._model.drain()

    def _validate_if_due(self) -> None:
        """Also the first thing after a resume: a signal may have come before a validation."""
        if self._validate is None or self._validated >= self._submitted:
            return
        if not _due(self._submitted, self._pace.validate_every) or self._stop.requested:
            return
        record = self._validate()
        if record is None:
            return
        self._validated = self._submitted
        self._log.write({"iteration": self._submitted, "validation": record})
        scores = "  ".join(f"{key} {value:.4f}" for key, value in record.items())
        self._reporter.note(f"iteration {self._submitted}: validation  {scores}")

    def _save(self) -> None:
        parameters, state = self._model.parameters, self._model.optimizer_state
        for what, arrays in (("a weight", parameters), ("a state of the optimizer", state)):
            if not all(np.isfinite(array).all() for array in arrays.values()):
                self._diverged(f"{what} is not finite after iteration {self._submitted}")
        self._verify()
        self._log.sync()
        checkpoint = Checkpoint(
            iteration=self._submitted,
            parameters=parameters,
            optimizer_state=state,
            learning_rate=self._learning_rate(self._submitted),
            seed=self._pace.seed,
            next_sample=self._submitted * self._pace.batch,
        )
        save(self._checkpoints, checkpoint, self._pace.keep)
        self._saved = self._submitted

    def _untrusted(self, error: ChangedError) -> ChangedError:
        if self._saved < 0:
            return error
        return ChangedError(
            f"{error}, or set data.in_memory: true, which reads files only at the beginning. What was "
            f"trained since iteration {self._saved} cannot be trusted and was not saved; the same "
            "command goes on from there with the file as it is then"
        )

    def _record(self, iteration: int, outcome: StepOutcome) -> None:
        rate = self._rate.add()
        status = Status(iteration, outcome.loss, outcome.error, rate, rate * self._pace.voxels)
        if _due(iteration, self._pace.log_every):
            self._log.write(
                {
                    "iteration": iteration,
                    "loss": outcome.loss,
                    "error": outcome.error,
                    "learning_rate": self._learning_rate(iteration - 1),
                }
            )
        seconds = time.monotonic() - self._started
        if seconds - self._timed >= TIMING_INTERVAL:
            self._timed = seconds
            self._timings.write(
                {
                    "iteration": iteration,
                    "seconds": round(seconds, 3),
                    "updates_per_s": round(rate, 4),
                    "voxels_per_s": round(rate * self._pace.voxels),
                }
            )
        self._reporter.update(status)

    def _diverged(self, what: str) -> None:
        self._model.drain()
        layer = self._model.non_finite_layer()
        where = f"; {layer!r} is the first layer with a value that is not finite" if layer else ""
        self._log.sync()
        fed, guilty = suspects(
            [("inputs", batch.input) for batch in self._fed]
            + [("targets", batch.target) for batch in self._fed]
            + [("weights", batch.weight) for batch in self._fed]
        )
        raise TrainingError(
            f"{what}{where}. Of the last {len(self._fed)} batches, {fed}. The last good checkpoint is "
            f"kept (iteration {self._saved}). {MEND if guilty else SLOWER}, and start with --overwrite"
        )


def _due(iteration: int, every: int) -> bool:
    return every > 0 and iteration > 0 and iteration % every == 0
