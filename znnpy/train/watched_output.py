"""What the first updates of a run show of one output: targets that hold nothing, a loss at that of a constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import BoundaryTarget, Config
from znnpy.learning.loss import LossKeys

Array = NDArray[Any]
RECENT = 50  # updates over which losses are averaged
TRIVIAL = 0.97  # share of the trivial loss above which nothing was learned
FALLING = 0.98  # share of what it was before, below which a loss still falls
GROWN = 4.0  # times the trivial loss, above which a loss grows
EXPLODED = 1000.0  # times the trivial loss, above which it swings, no longer grows in each period
CONSTANT = 1e-3  # of all targets, that differ from the others: fewer are as good as none
TRIVIAL_LOSSES = ("binomial_cross_entropy", "softmax", "square")


class WatchedOutput:
    """Targets and losses of one output over the first updates; `name` is said where there are several.

    `totals`: of each channel weight, target and its square, of this rank until ranks add them.
    """

    def __init__(self, config: Config, name: str, *, alone: bool) -> None:
        self.totals: Array = np.zeros((3, 1))
        self._keys, self._factor = config.training.loss_of(name), config.training.weight(name)
        self._target, self._losses = config.target(name), list[float]()
        self._place = "data.target" if alone else config.target_key(name)
        self._said = "the loss" if alone else f"the loss of output {name!r}"
        self._of = "" if alone else f" of output {name!r}"

    def fed(self, target: Array, weight: Array | None) -> None:
        """Take note of targets and weights, (batch, channel, z, y, x)."""
        weight, axes = np.ones_like(target) if weight is None else weight, (0, 2, 3, 4)
        weighted = weight * target
        sums = [np.broadcast_to(weight, target.shape).sum(axes), weighted.sum(axes)]
        self.totals = self.totals + np.array([*sums, (weighted * target).sum(axes)], np.float64)

    def heard(self, loss: float) -> None:
        """Take note of the loss of the next update, which is times the output's weight."""
        if self._factor:
            self._losses.append(loss / self._factor)

    def of_targets(self) -> Iterator[str]:
        """Yield what is wrong with the targets."""
        weight, target, square = self.totals
        mean = target / np.maximum(weight, 1)
        spread = square / np.maximum(weight, 1) - mean**2
        if (spread < CONSTANT).all():
            what = "no boundary" if isinstance(self._target, BoundaryTarget) else "nothing"
            found = ", ".join(f"{value:.4g}" for value in mean[:4])
            yield (
                f"nearly all targets{self._of} were {found}: the labels hold {what} to learn there; look at "
                f"{self._place} and the labels (znnpy view)"
            )

    def of_losses(self, rate: Callable[[int], float], updates: int) -> Iterator[str]:
        """Yield what is wrong with the losses of so many updates; `rate`: the learning rate of each."""
        trivial = _trivial(self._keys, self.totals)
        if trivial is None or not self._losses:
            return
        now, before = (float(np.mean(self._losses[-n * RECENT :][:RECENT])) for n in (1, 2))
        rising = rate(updates) > 1.5 * rate(updates - 2 * RECENT)
        if now > GROWN * trivial and (now > before or now > EXPLODED * trivial):
            grows = " and grows" if now > before else ""
            yield (
                f"{self._said} is {now:.3g}{grows}, where the shares of the classes alone give {trivial:.3g}: "
                "gradients explode; lower training.learning_rate, or set training.clip_norm"
            )
        elif now > TRIVIAL * trivial and now > FALLING * before and not rising:
            yield (
                f"{self._said} is {now:.3g} and falls no more, where the shares of the classes alone give "
                f"{trivial:.3g}: nothing was learned of the image; the learning rate may be too low or too high, or "
                "the labels may not belong to this image"
            )


def _trivial(loss: LossKeys, totals: Array) -> float | None:
    """Return the loss of the best constant, None for losses of which it is not known."""
    if loss.kind not in TRIVIAL_LOSSES or loss != type(loss)(kind=loss.kind):
        return None
    weight, target, square = totals
    share = target / np.maximum(weight, 1e-9)
    if loss.kind == "square":
        return float(np.mean(square / np.maximum(weight, 1e-9) - share**2))
    share = np.clip(share, 1e-9, 1 - 1e-9)
    if loss.kind == "softmax":
        share = target / max(target.sum(), 1e-9)
        return float(-(share * np.log(np.maximum(share, 1e-9))).sum())
    return float(np.mean(-share * np.log(share) - (1 - share) * np.log1p(-share)))
