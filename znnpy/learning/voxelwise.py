"""Losses that are weighted means over voxels: squared error and cross-entropies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from znnpy.learning.loss import Doubles, Loss, LossKeys, Part, mean
from znnpy.learning.readings import CLASSES, IMAGES, LOGITS, VALUES, Reading


class Square(LossKeys):
    """(value - target)^2."""

    kind: Literal["square"] = Field(description="Loss.")


class Binomial(LossKeys):
    """-t log p - (1 - t) log(1 - p) of each image; values are logits, targets lie in [0, 1]."""

    kind: Literal["binomial_cross_entropy"] = Field(description="Loss.")


class Softmax(LossKeys):
    """-sum over images of t log p; values are logits, targets are shares that sum to 1 over images."""

    kind: Literal["softmax"] = Field(description="Loss.")


def _square(
    keys: Square, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    return [mean((y - t) ** 2, lambda: 2.0 * (y - t), weight)]


def binomial(y: Doubles, t: Doubles, weight: Doubles) -> Part:
    """The mean binomial cross-entropy of logits."""
    losses = np.maximum(y, 0.0) - y * t + np.log1p(np.exp(-np.abs(y)))
    return mean(losses, lambda: LOGITS.probabilities(y) - t, weight)


def cross_entropy(y: Doubles, t: Doubles, weight: Doubles) -> Part:
    """The mean cross-entropy of logits of classes."""
    from scipy.special import logsumexp  # seldom needed, and slow to import

    logs = y - np.asarray(logsumexp(y, axis=IMAGES, keepdims=True))
    losses: Doubles = -(t * logs).sum(axis=IMAGES, keepdims=True)
    mass = t.sum(axis=IMAGES, keepdims=True)
    return mean(losses, lambda: CLASSES.probabilities(y) * mass - t, weight)


SQUARE = Loss(name="square", keys=Square, readings={VALUES: "square"}, parts=_square)
BINOMIAL = Loss(
    name="binomial_cross_entropy",
    keys=Binomial,
    readings={LOGITS: "binomial_cross_entropy"},
    parts=lambda keys, reading, y, t, weight: [binomial(y, t, weight)],
)
SOFTMAX = Loss(
    name="softmax",
    keys=Softmax,
    readings={CLASSES: "softmax"},
    parts=lambda keys, reading, y, t, weight: [cross_entropy(y, t, weight)],
)
