"""The training loop: submits updates one ahead, reads losses, logs, validates, saves checkpoints, and stops on NaN.

When a loss is no longer finite, `suspects` looks through the last batches of all ranks for the cause.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from znnpy.distributed.world import World
from znnpy.errors import ChangedError, TrainingError
from znnpy.train.log import Record
from znnpy.train.run_writer import Keeper, Pace, Stateful, StepOutcome, due
from znnpy.train.signals import Stop
from znnpy.train.watch import Watch

# Only decides which sentence a message has: data to be mended, or a rate to be lowered.
LARGE = 1e4  # normalised inputs and targets of any use are far below
Exchange = Callable[[Any], list[Any]]
"""Sends a JSON-able value to all ranks, and returns those of all, by rank."""

Images = npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
FED = 3  # batches that are remembered: a loss may be lost by the update before
MEND = "Mend the volumes, or look at data.normalize and data.target"
SLOWER = "Lower training.learning_rate or set training.clip_norm"


class Seen(NamedTuple):
    """Summary of one array that was fed: its range, and number (`bad`) and first place of non-finite values."""

    what: str
    samples: int
    values: int
    bad: int
    place: list[int]
    first: float
    low: float
    high: float

    @classmethod
    def of(cls, what: str, array: npt.NDArray[Any]) -> Seen:
        """Return the summary of an array; reads all values."""
        # Only called when training has failed already: it may read everything.
        wrong = np.argwhere(~np.isfinite(array))
        place = [int(n) for n in wrong[0]] if len(wrong) else []
        first = float(array[tuple(place)]) if place else 0.0
        low, high = float(array.min()), float(array.max())
        return cls(what, len(array), array.size, len(wrong), place, first, low, high)

    def and_(self, after: Seen) -> Seen:
        """Return the summary of this array and of the samples after it, which another rank was fed, as one array."""
        bad, place, first = self.bad + after.bad, self.place, self.first
        if after.bad and not self.bad:
            place, first = [self.samples + after.place[0], *after.place[1:]], after.first
        samples, values = self.samples + after.samples, self.values + after.values
        low, high = min(self.low, after.low), max(self.high, after.high)
        return Seen(self.what, samples, values, bad, place, first, low, high)


def suspects(fed: Iterable[tuple[str, Images | None]], exchange: Exchange) -> tuple[str, bool]:
    """Return a sentence on the arrays that were fed before a loss turned non-finite, and whether they are to blame.

    `fed`: pairs of what an array is, and the array or arrays by node: this rank's share. All ranks call it together
    and get the same answer. Names the first array that holds NaN or Inf with its place (batch, channel, z, y, x),
    else the largest beyond `LARGE`, else the ranges.
    """
    own = [Seen.of(what, array) for what, given in fed for array in _arrays(given)]
    # Ranks were fed different samples, and all must raise the same words.
    arrays = [_whole(shares) for shares in zip(*exchange(own), strict=True)]
    for array in arrays:
        if array.bad:
            return (
                f"{array.bad} of {array.values} {array.what} are not finite, the first {array.first} at "
                f"{tuple(array.place)} (batch, channel, z, y, x)"
            ), True
    sizes = [(max(-array.low, array.high), array.what) for array in arrays]
    if sizes and max(sizes)[0] > LARGE:
        return f"{max(sizes)[1]} reach {max(sizes)[0]:g} in size", True
    return ", ".join(
        _range(what, arrays) for what in dict.fromkeys(it.what for it in arrays)
    ), False


def _whole(shares: Sequence[Sequence[Any]]) -> Seen:
    """Return one summary from those that all ranks made of their shares."""
    whole, *rest = [Seen(*share) for share in shares]
    for share in rest:
        whole = whole.and_(share)
    return whole


def _range(what: str, arrays: Iterable[Seen]) -> str:
    low = min(array.low for array in arrays if array.what == what)
    high = max(array.high for array in arrays if array.what == what)
    return f"{what} from {low:.4g} to {high:.4g}"


def _arrays(given: Images | None) -> list[npt.NDArray[Any]]:
    if given is None:
        return []
    return [np.asarray(a) for a in (given.values() if isinstance(given, Mapping) else [given])]


class Trainable(Stateful, Protocol):
    """The methods that the loop needs of a model; `znnpy.Model` has them."""

    iteration: int

    def submit(
        self, x: Any, target: Any, weight: Any = None, *, learning_rate: float = 0.01
    ) -> int:
        """Start one update; returns its ticket."""

    def result(self, ticket: int) -> StepOutcome:
        """Wait for an update's loss."""

    def drain(self) -> None:
        """Wait for all updates."""

    def non_finite_layer(self) -> str | None:
        """Return the first layer in data order with NaN or Inf on any rank; all ranks call it together."""


@dataclass(frozen=True)
class Batch:
    """The samples of one update: (batch, channel, z, y, x) float32, or such by node name; weight may be None."""

    input: Images
    target: Images
    weight: Images | None


class Loop:
    """Trains `model` from its current iteration to the last one.

    `batches` yields the batch of each iteration from the current one on. `validate` returns a record for the
    keeper, or None when a signal cut it short; `validated` is the last iteration with such a record. `watch` looks at
    the first updates. All calls
    are made from the calling thread. Raises TrainingError within one step of a loss that is NaN or Inf, and before
    saving weights or optimiser state that hold one: such are never saved. All ranks of `world` raise it, with
    the same words.
    """

    def __init__(
        self,
        model: Trainable,
        batches: Iterator[Batch],
        pace: Pace,
        learning_rate: Callable[[int], float],
        keeper: Keeper,
        stop: Stop,
        validate: Callable[[], Record | None] | None = None,
        validated: int = 0,
        world: World | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch
        self._model, self._batches, self._pace = model, batches, pace
        self._learning_rate, self._validate, self._validated = learning_rate, validate, validated
        self._keeper, self._stop, self._world = keeper, stop, world or World()
        self._pending: deque[tuple[int, int]] = deque()  # iteration after the update, its ticket
        # References, not copies: batches live that much longer.
        self._fed: deque[Batch] = deque(maxlen=FED)
        self._submitted, self._enough = model.iteration, False

    def run(self) -> int:
        """Train until done, long enough, or asked to stop; validate when done, save, return the iteration reached."""
        with self._stop.deferred():
            self._keeper.start(self._submitted)
            try:
                # A checkpoint of the first weights: a run can be resumed from its very beginning.
                if self._keeper.saved < 0:
                    self._save()
                self._validate_if_due()
                self._agree()
                if self._watch:
                    self._watch.begin(self._model)
                while self._left() and self._stop.agreed() is None:
                    self._submit()
                    # One update stays in flight: while it computes, the next batch is taken and
                    # submitted.
                    self._finish_all_but(1)
                    self._pause_if_due()
                # Everything that was submitted is finished and looked at before the last
                # checkpoint.
                self._settle()
                if self._keeper.saved < self._submitted:
                    self._save()
            except ChangedError as error:
                raise self._untrusted(error) from error
            finally:
                self._keeper.close()
        return self._submitted

    def _left(self) -> bool:
        return self._submitted < self._pace.iterations and not self._enough

    def _submit(self) -> None:
        batch = next(self._batches)
        if self._watch:
            self._watch.fed(batch)
        rate = self._learning_rate(self._submitted)
        ticket = self._model.submit(batch.input, batch.target, batch.weight, learning_rate=rate)
        self._fed.append(batch)
        self._submitted += 1
        self._pending.append((self._submitted, ticket))

    def _finish_all_but(self, ahead: int) -> None:
        while len(self._pending) > ahead:
            iteration, ticket = self._pending.popleft()
            outcome = self._model.result(ticket)
            # Before it is logged: the log holds finite numbers only.
            if not math.isfinite(outcome.loss):
                self._diverged(f"the loss is {outcome.loss} at iteration {iteration}")
            self._keeper.record(iteration, outcome)
            if self._watch:
                self._watch.heard(outcome.losses)

    def _pause_if_due(self) -> None:
        if self._watch and self._watch.due():
            self._settle()
            self._watch.look(self._model)
        validating = due(self._submitted, self._pace.validate_every)
        # The final weights as well, before they are saved.
        if validating or (self._pace.validate_every and self._submitted >= self._pace.iterations):
            self._prepare_validation()
            self._validate_if_due()
        if validating:
            self._agree()
        if due(self._submitted, self._pace.save_every):
            self._settle()
            self._save()

    def _prepare_validation(self) -> None:
        if self._validate or self._pace.averaged:
            self._settle()
        if self._pace.averaged:
            # Others may still read rank 0's weights, whose place averages take.
            self._world.exchange(None)

    def _settle(self) -> None:
        self._finish_all_but(0)
        self._model.drain()

    def _validate_if_due(self) -> None:
        """Validate if due or done; also first thing after a resume: a signal may have come before a validation."""
        if self._validate is None or self._validated >= self._submitted or self._stop.requested:
            return
        last = self._submitted >= self._pace.iterations
        if not last and not due(self._submitted, self._pace.validate_every):
            return
        record = self._validate()
        if record is None:
            return
        self._validated = self._submitted
        self._keeper.validated(self._model, self._submitted, record)

    def _agree(self) -> None:
        """Learn from rank 0, which alone has the scores, whether training ends early; all ranks call it together."""
        if self._pace.patient:
            self._enough = bool(self._world.broadcast(self._keeper.enough))

    def _save(self) -> None:
        wrong = self._keeper.save(self._model, self._submitted)
        if wrong:
            self._diverged(f"{wrong} is not finite after iteration {self._submitted}")

    def _untrusted(self, error: ChangedError) -> ChangedError:
        if self._keeper.saved < 0:
            return error
        return ChangedError(
            f"{error}, or set data.in_memory: true, which reads files only at the beginning. What was "
            f"trained since iteration {self._keeper.saved} cannot be trusted and was not saved; the same "
            "command goes on from there with the file as it is then"
        )

    def _diverged(self, what: str) -> None:
        # Ranks get here together, after the same update, so the calls below, which all must make,
        # cannot wait for ever.
        self._model.drain()
        layer = self._model.non_finite_layer()
        where = f"; {layer!r} is the first layer with a value that is not finite" if layer else ""
        # The losses on the way are what users look at next.
        self._keeper.sync()
        fed, guilty = suspects(
            [("inputs", batch.input) for batch in self._fed]
            + [("targets", batch.target) for batch in self._fed]
            + [("weights", batch.weight) for batch in self._fed],
            self._world.exchange,
        )
        raise TrainingError(
            f"{what}{where}. Of the last {len(self._fed)} batches, {fed}. The last good checkpoint is "
            f"kept (iteration {self._keeper.saved}). {MEND if guilty else SLOWER}, and start with --overwrite"
        )
