"""Progress of training on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, Protocol, TextIO

from znnpy.errors import is_terminal, screenful

# Shorter fills the logs of batch systems, longer looks like a process that hangs.
PLAIN_INTERVAL = 5.0  # seconds between plain lines
# Longer is steadier and follows changes later.
WINDOW = 10.0  # seconds over which the rate is taken
SMOOTHING = 0.98  # weight of the past in the shown loss and error: a mean over about 50 updates

Words = ParamSpec("Words")


@dataclass(frozen=True)
class Status:
    """One finished update: loss, error and speed of the last ones (voxels: of outputs).

    `error`: None where outputs are values, none of them right or wrong. `losses`: the terms of the loss, by output,
    where they are told.
    """

    iteration: int
    loss: float
    error: float | None
    updates_per_s: float
    voxels_per_s: float
    losses: Mapping[str, float] = field(default_factory=dict)


class Reporter(Protocol):
    """Shows the progress of training; called from the training thread only, unless said otherwise."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` kernels or layers are ready; called from other threads, one at a time."""

    def start(self, total: int, done: int) -> None:
        """Show that training starts or resumes at `done` of `total` iterations."""

    def update(self, status: Status) -> None:
        """Show one finished update."""

    def note(self, text: str) -> None:
        """Show a line of text."""

    def close(self) -> None:
        """End the display: training is over."""


class Quiet:
    """Shows nothing (Python API, tests)."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Do nothing."""

    def start(self, total: int, done: int) -> None:
        """Do nothing."""

    def update(self, status: Status) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def heard_or_not(show: Callable[Words, None]) -> Callable[Words, None]:
    """Decorate a display so that its OSErrors are ignored: the terminal may be closed, or a log's disk full."""

    @wraps(show)
    def shown(*args: Words.args, **kwargs: Words.kwargs) -> None:
        with suppress(OSError):
            show(*args, **kwargs)

    return shown


class Plain:
    """Prints a line every few seconds, for logs of batch systems."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total = 0
        self._last = float("-inf")
        self._smooth = Smooth()

    def preparing(self, what: str, done: int, total: int) -> None:
        """Print a line when the last one is a few seconds old."""
        if self._is_time() or done == total:
            self.note(f"{what}: {done} of {total}")

    def start(self, total: int, done: int) -> None:
        """Remember the total."""
        self._total = total

    def update(self, status: Status) -> None:
        """Print a line when the last one is a few seconds old."""
        loss, error = self._smooth.add(status)
        if self._is_time() or status.iteration == self._total:
            # 1e-9: no division by 0 before a rate is known; `clock` bounds what comes of it.
            left = (self._total - status.iteration) / max(status.updates_per_s, 1e-9)
            self.note(
                f"iteration {status.iteration}/{self._total}  {shown(loss, error, self._smooth.losses)}  "
                f"{status.updates_per_s:.2f} updates/s  {status.voxels_per_s:,.0f} voxels/s  "
                f"ETA {clock(left)}"
            )

    @heard_or_not
    def note(self, text: str) -> None:
        """Print a line."""
        print(screenful(text), file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""

    def _is_time(self) -> bool:
        now = time.monotonic()
        due = now - self._last >= PLAIN_INTERVAL
        self._last = now if due else self._last
        return due


class Notes(Quiet):
    """Prints notes, and no progress."""

    @heard_or_not
    def note(self, text: str) -> None:
        """Print a line."""
        print(screenful(text), file=sys.stderr, flush=True)


class Smooth:
    """Running means of loss and error for display; the log holds the true values."""

    def __init__(self) -> None:
        self._weight = self._loss = self._error = 0.0
        self._losses: dict[str, float] = {}

    def add(self, status: Status) -> tuple[float, float | None]:
        """Return the means after one more update, corrected for the start as in Adam."""
        # A plain mean over the first updates, while there are fewer than the window of the
        # smoothing.
        keep = min(SMOOTHING, 1 - 1 / (1 + status.iteration))
        self._weight = keep * self._weight + 1 - keep
        self._loss = keep * self._loss + (1 - keep) * status.loss
        for name, loss in status.losses.items():
            self._losses[name] = keep * self._losses.get(name, 0.0) + (1 - keep) * loss
        if status.error is None:
            return self._loss / self._weight, None
        self._error = keep * self._error + (1 - keep) * status.error
        return self._loss / self._weight, self._error / self._weight

    @property
    def losses(self) -> dict[str, float]:
        """The mean of each output's loss, of those that are told."""
        return {name: loss / self._weight for name, loss in self._losses.items()}


class Rate:
    """Updates per second over the last seconds."""

    def __init__(self) -> None:
        # Bounds the memory where updates take microseconds; the rate is then of the last thousand.
        self._times = deque([time.monotonic()], maxlen=1000)

    def add(self) -> float:
        """Count one update and return the rate."""
        now = time.monotonic()
        while len(self._times) > 1 and now - self._times[0] > WINDOW:
            self._times.popleft()
        self._times.append(now)
        first = self._times[0]
        return (len(self._times) - 1) / (now - first) if now > first else 0.0


def shown(loss: float, error: float | None, losses: Mapping[str, float]) -> str:
    """Return loss and error as text, without an error that is None; with the losses by output, if any."""
    each = ", ".join(f"{name} {value:.4f}" for name, value in losses.items())
    found = f"loss {loss:.4f} ({each})" if each else f"loss {loss:.4f}"
    return found + ("" if error is None else f"  voxel error {error:.4f}")


def choose_reporter(*, quiet: bool = False) -> Reporter:
    """Return a bar when stderr is a terminal, plain lines otherwise; notes alone if `quiet`."""
    if quiet:
        return Notes()
    if not is_terminal(sys.stderr):
        return Plain()
    # With rich, which takes long to import: logs do without.
    from rich.console import Console

    from znnpy.train.progress_bar import Bar

    return Bar(Console(stderr=True))


def clock(seconds: float) -> str:
    """Return seconds as h:mm:ss or m:ss."""
    # At most 99:59:59, so that the column keeps its width.
    minutes, second = divmod(round(min(seconds, 359_999)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
