"""Reads a learning-rate range test: when the loss diverges, and which rate its curve suggests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

WORSE = 4.0  # times the least loss: divergence
PAST = 0.9  # weight of the past in the mean that tells divergence, which one bad batch does not
WIDTH = 1 / 20  # deviation of the Gaussian that smooths the curve, of the whole test
ROUNDING = 1e-6  # of losses: a fall within it is none
BELOW = 10.0  # times that a rate lies below divergence, at least


class Divergence:
    """Tells whether losses, heard one after the other, have diverged.

    They have where one is not finite, or their mean, which forgets a tenth with each, is above what they began with
    and above four times the least mean that there was.
    """

    def __init__(self) -> None:
        self._sum, self._weight = 0.0, 0.0
        self._first, self._least = math.nan, math.inf

    def heard(self, loss: float) -> bool:
        """Take the next loss; return whether they have diverged."""
        if not math.isfinite(loss):
            return True
        self._sum = PAST * self._sum + (1 - PAST) * loss
        self._weight = PAST * self._weight + (1 - PAST)
        mean = self._sum / self._weight
        if math.isnan(self._first):
            self._first = mean
        self._least = min(self._least, mean)
        return mean > max(self._first, self._least + (WORSE - 1) * abs(self._least))


@dataclass(frozen=True)
class Suggestion:
    """The rate at which the loss falls fastest, and the one to train with; None: it falls at none.

    `smoothed`: the losses, smoothed, in the order of the rates.
    """

    smoothed: Doubles
    steepest: float | None
    rate: float | None


def suggest_rate(
    rates: Sequence[float], losses: Sequence[float], diverged: float | None
) -> Suggestion:
    """Return the learning rate of the steepest descent, but at most a tenth of the one of divergence.

    `rates`: rising geometrically; `losses`: those before each update, finite. Losses are smoothed by a
    Gaussian over rates, and their slope taken over the logarithm of the rate, before their minimum. A fall that is
    no larger than twice the deviation of losses from the smoothed ones is none.
    """
    heard = np.asarray(losses, np.float64)
    if len(heard) < 3:
        return Suggestion(smooth(heard), None, None)
    # The rise of a divergence, by powers of ten, would reach what lies before it.
    smoothed = smooth(np.minimum(heard, heard[: int(np.argmin(heard)) + 1].max()))
    low = int(np.argmin(smoothed))
    noise = float(np.std(heard[: low + 1] - smoothed[: low + 1]))
    top = float(smoothed[: low + 1].max())
    if low < 2 or top - smoothed[low] <= 2 * noise + ROUNDING * abs(top):
        return Suggestion(smoothed, None, None)
    slope = np.gradient(smoothed, np.log(rates))
    steepest = float(rates[int(np.argmin(slope[: low + 1]))])
    limit = math.inf if diverged is None else diverged / BELOW
    return Suggestion(smoothed, steepest, min(steepest, limit))


def smooth(values: Doubles) -> Doubles:
    """Return values smoothed by a Gaussian that stands on each and is cut at the ends; the number stays."""
    if len(values) < 2:
        return values.copy()
    places = np.arange(len(values), dtype=np.float64)
    width = max(1.0, WIDTH * len(values))
    shares = np.exp(-0.5 * ((places[:, None] - places) / width) ** 2)
    mean: Doubles = shares @ values / shares.sum(axis=1)
    return mean
