"""The history of a run as curves: read from its logs, or added to while it trains; of any length in little memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from znnpy.errors import RunError, reason
from znnpy.train.log import CHANGED, LINE, OUTPUT, Record, up_to
from znnpy.train.run_directory import LOG, LOOKS, TIMINGS

MOST = 1000  # points of a curve beyond which neighbours are joined: more than a screen shows
Point = tuple[float, float]


class Curve:
    """Values over iterations. Where there are many, each point is the mean of as many neighbours as all others."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._each = 1
        self._open: list[Point] = []

    def add(self, iteration: float, value: object) -> None:
        """Add a value; what is no finite number is left out."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return
        self._open.append((iteration, float(value)))
        if len(self._open) < self._each:
            return
        self._points.append(_mean(self._open))
        self._open = []
        if len(self._points) >= 2 * MOST:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [_mean(list(pair)) for pair in pairs]
            self._each *= 2

    @property
    def points(self) -> list[Point]:
        """All points so far, the last one of however many values there are."""
        return [*self._points, *([_mean(self._open)] if self._open else [])]

    def __deepcopy__(self, memo: object) -> Curve:
        found = Curve()
        found._points, found._open, found._each = [*self._points], [*self._open], self._each
        return found

    @property
    def last(self) -> float | None:
        """The newest value, or the mean of the newest ones; None where there is none."""
        found = self._open[-1:] or self._points[-1:]
        return found[0][1] if found else None


def _mean(points: list[Point]) -> Point:
    return points[-1][0], sum(value for _, value in points) / len(points)


@dataclass
class History:
    """What is known of a run's training over iterations; `taken` tells the seconds that training has taken so far.

    `losses`: the terms of the loss by output, where they are told. `weights` and `gradients` are norms by layer, the
    whole under "". `changes`: iterations and what the config changed.
    """

    iteration: int = 0
    taken: float = 0.0
    loss: Curve = field(default_factory=Curve)
    losses: dict[str, Curve] = field(default_factory=dict)
    voxel_error: Curve = field(default_factory=Curve)
    learning_rate: Curve = field(default_factory=Curve)
    validation: dict[str, Curve] = field(default_factory=dict)
    updates_per_s: Curve = field(default_factory=Curve)
    voxels_per_s: Curve = field(default_factory=Curve)
    living: Curve = field(default_factory=Curve)
    weights: dict[str, Curve] = field(default_factory=dict)
    gradients: dict[str, Curve] = field(default_factory=dict)
    changes: list[tuple[int, str]] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Add a record of log.jsonl or looks.jsonl."""
        iteration = record["iteration"]
        self.iteration = max(self.iteration, iteration)
        if isinstance(record.get(CHANGED), str):
            self.changes.append((iteration, record[CHANGED]))
            return
        for name in ("loss", "voxel_error", "learning_rate", "living"):
            getattr(self, name).add(iteration, record.get(name))
        for key, value in record.items():
            if key.startswith(OUTPUT):
                self.losses.setdefault(key.removeprefix(OUTPUT), Curve()).add(iteration, value)
        for name in ("validation", "weights", "gradients"):
            curves, values = getattr(self, name), record.get(name)
            for key, value in values.items() if isinstance(values, Mapping) else ():
                curves.setdefault(key, Curve()).add(iteration, value)

    def timed(self, record: Record) -> None:
        """Add a record of timings.jsonl."""
        iteration = record["iteration"]
        self.updates_per_s.add(iteration, record.get("updates_per_s"))
        self.voxels_per_s.add(iteration, record.get("voxels_per_s"))


def read_history(run: Path, iteration: int = 1 << 62) -> History:
    """Read the history of a run up to an iteration; what is damaged or missing is left out.

    Raises RunError where a file cannot be read.
    """
    found = History()
    for name in (LOG, LOOKS):
        for record in up_to(run / name, iteration):
            found.take(record)
    for record in _timings(run / TIMINGS, iteration):
        found.timed(record)
    found.taken = sum(_spans(run / TIMINGS))
    return found


def _timings(path: Path, iteration: int) -> Iterator[Record]:
    """Yield the records of timings.jsonl whose iterations rise: after a stop some updates are made again."""
    last = 0
    for record in _records(path):
        if last <= record["iteration"] <= iteration:
            last = record["iteration"]
            yield record


def _spans(path: Path) -> Iterator[float]:
    """Yield the seconds of each start of a run, which begin at 0."""
    before = 0.0
    for record in _records(path):
        seconds = record.get("seconds")
        if not isinstance(seconds, int | float):
            continue
        if seconds < before:
            yield before
        before = float(seconds)
    yield before


def _records(path: Path) -> Iterator[Record]:
    try:
        with path.open("rb") as file:
            while line := file.readline(LINE):
                record = _parsed(line)
                if record is not None:
                    yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {reason(error)}") from error


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("iteration")) is not int:
        return None
    return record
