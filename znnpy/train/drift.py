"""Sees training and validation drift apart: the one's loss falls while the other's rises; says it once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from znnpy.train.log import Record

LATER = 3  # validations in a row that must be worse
WORSE = 1.2  # times the least loss of validation, above which one is worse
LEARNED = 0.8  # share of its loss at the best validation, below which that of training must lie


class _Point(NamedTuple):
    """A validation: after how many updates, its loss, and the mean of training's since the one before."""

    iteration: int
    validation: float
    training: float


class Drift:
    """Looks at the records of a log, one after the other; `before`: those of a run that goes on."""

    def __init__(self, before: Iterable[Record] = ()) -> None:
        self._points: list[_Point] = []
        self._losses: list[float] = []
        self._mean: float | None = None
        self._said = False
        for record in before:
            self.take(record)

    def take(self, record: Record) -> str | None:
        """Take the next record into account; return what is to be said, the first time that there is something."""
        loss, found = record.get("loss"), record.get("validation")
        if isinstance(loss, float):
            self._losses.append(loss)
        score: Any = found.get("loss") if isinstance(found, dict) else None
        if self._losses and found is not None:
            # Kept: there may be no line of the log until the next validation.
            self._mean, self._losses = float(np.mean(self._losses)), []
        if not isinstance(score, float) or self._mean is None:
            return None
        self._points.append(_Point(record["iteration"], score, self._mean))
        text = None if self._said else self._apart()
        self._said |= text is not None
        return text

    def _apart(self) -> str | None:
        number = min(range(len(self._points)), key=lambda n: self._points[n].validation)
        best, last = self._points[number], self._points[-LATER:]
        if len(self._points) - number <= LATER or best.validation <= 0:
            return None
        near = self._points[max(0, number - 1) : number + 2]
        then, now = (float(np.mean([it.training for it in points])) for points in (near, last))
        if min(it.validation for it in last) < WORSE * best.validation or now > LEARNED * then:
            return None
        return (
            f"iteration {last[-1].iteration}: training and validation drift apart: since iteration {best.iteration} "
            f"the loss fell from {then:.3g} to {now:.3g} in training, and rose from {best.validation:.3g} to "
            f"{last[-1].validation:.3g} in validation. The volumes of data.train are learned by heart: more of them, "
            "augment, weight_decay or a smaller net help; training.validation.patience ends such runs, "
            "--checkpoint best uses the best weights"
        )
