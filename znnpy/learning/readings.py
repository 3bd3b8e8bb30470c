"""How a loss reads an output: as plain values, as logits of probabilities, or as logits of classes.

Losses of probabilities are computed from logits, the values before the logistic or the softmax: there they are stable
for any value. Arrays are (..., channel, z, y, x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CHANNELS = -4  # axis of the channels in (..., channel, z, y, x)


SLACK = 1e-4  # beyond the range, for scales like 0.00392157
SLACK_OF_SHARES = 0.02  # that they may miss 1 by, as rounded to bytes
_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Taken:
    """Values that a loss takes, in words and numbers; `shares`: channels of a voxel sum to 1."""

    words: str
    low: float = -np.inf
    high: float = np.inf
    shares: bool = False

    def takes(self, values: Array, counts: Array | None = None) -> bool:
        """Whether all values (..., channel, z, y, x) are good, in few passes.

        Shares need be where `counts` (..., z, y, x) is not 0. False may also mean that what is wrong does not count.
        """
        low, high = float(values.min()), float(values.max())
        if not (self.low - SLACK <= low and high <= self.high + SLACK and high - low < np.inf):
            return False
        if not self.shares:
            return True
        missed = np.abs(values.sum(axis=CHANNELS) - 1) > SLACK_OF_SHARES
        return not bool((missed if counts is None else missed & (counts != 0)).any())

    @cached_property
    def bounds(self) -> tuple[float, float, float]:
        """The least and the greatest value of float32, and what the sum of a voxel's channels may miss 1 by."""
        slack = SLACK_OF_SHARES if self.shares else np.inf
        return max(self.low - SLACK, -_MOST), min(self.high + SLACK, _MOST), slack

    def wrong(self, values: Array) -> NDArray[np.bool_]:
        """Where values (..., channel, z, y, x) are not good; of shares that miss 1, the whole voxel."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = ~self.inside(values)
            if self.shares:
                found |= ~(np.abs(values.sum(axis=CHANNELS, keepdims=True) - 1) <= SLACK_OF_SHARES)
        return found

    def inside(self, values: Array) -> NDArray[np.bool_]:
        """Which values are finite and in the range."""
        low, high = self.low - SLACK, self.high + SLACK
        return np.asarray((values >= low) & (values <= high) & np.isfinite(values))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An interpretation of the values of an output: plain values, logits of probabilities, logits of classes.

    `functions`: those of outputs that show what the values mean; the first is the one to choose.
    `probabilities(values)`: what they mean, in their dtype. `wrong(values, target)`: where the two
    differ once decided, (..., channel or 1, z, y, x). `target`: values that targets may have.
    `whole_voxels`: the channels of a voxel belong together, so that it has one loss and one weight.
    """

    name: str
    functions: tuple[str, ...] = ()
    probabilities: Callable[[Array], Array]
    wrong: Callable[[Array, Array], Array]
    target: Taken
    whole_voxels: bool = False

    def taken(self, loss: str) -> Taken:
        """The values that targets of a loss may have, in words that name it."""
        return replace(self.target, words=f"{loss} takes {self.target.words}")

    def voxel_weight(self, target: Array, weight: Array) -> Array:
        """Weights as a loss takes them, of weights by channel: where voxels have one, that of their class."""
        if not self.whole_voxels:
            return weight
        return np.asarray(np.sum(target * weight, axis=CHANNELS, keepdims=True, dtype=weight.dtype))


def _same(values: Array) -> Array:
    return values


def _above_half(values: Array, target: Array) -> Array:
    return np.asarray((values > 0.5) != (target > 0.5))


def _logistic(values: Array) -> Array:
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values > 0, 1, small) / (1 + small), values.dtype)


def _above_zero(values: Array, target: Array) -> Array:
    return np.asarray((values > 0.0) != (target > 0.5))


def _shares(values: Array) -> Array:
    with np.errstate(over="ignore"):  # a difference of -Inf is a share of 0
        raised = np.exp(values - values.max(axis=CHANNELS, keepdims=True))
    return np.asarray(raised / raised.sum(axis=CHANNELS, keepdims=True))


def _other_class(values: Array, target: Array) -> Array:
    hit = values.argmax(axis=CHANNELS) == target.argmax(axis=CHANNELS)
    return np.expand_dims(~hit, CHANNELS)


VALUES = Reading(
    name="values", probabilities=_same, wrong=_above_half, target=Taken("finite numbers")
)
LOGITS = Reading(
    name="logits",
    functions=("logistic", "forward_logistic"),
    probabilities=_logistic,
    wrong=_above_zero,
    target=Taken("values from 0 to 1", 0, 1),
)
CLASSES = Reading(
    name="classes",
    functions=("softmax",),
    probabilities=_shares,
    wrong=_other_class,
    target=Taken("shares from 0 to 1, over a voxel's channels 1 in all", 0, 1, True),
    whole_voxels=True,
)
