"""Losses that are weighted means over voxels: squared error, cross-entropies, focal loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from znnpy.fields import Factor, Fraction, NonNegative, wrong
from znnpy.learning.loss import Doubles, Loss, LossKernel, LossKeys, Part, class_mass, mean
from znnpy.learning.readings import CHANNELS, CLASSES, LOGITS, VALUES, Reading


class Square(LossKeys):
    """(value - target)^2."""

    kind: Literal["square"] = Field(description="Loss.")


class Binomial(LossKeys):
    """-t log p - (1 - t) log(1 - p) of each channel; values are logits, targets lie in [0, 1]."""

    kind: Literal["binomial_cross_entropy"] = Field(description="Loss.")


class Softmax(LossKeys):
    """-sum over channels of t log p; values are logits, targets are shares that sum to 1 over channels."""

    kind: Literal["softmax"] = Field(description="Loss.")
    label_smoothing: Fraction = Field(
        default=0.0, description="Share of each target that is spread evenly over the classes."
    )
    class_weights: tuple[Factor, ...] | None = Field(
        default=None,
        description="How much each class counts, in the order of the output's channels (default: alike). "
        "The mean counts voxels by the weight of their class.",
    )

    @field_validator("class_weights")
    @classmethod
    def _some(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not any(value):
            raise wrong("must not all be 0")
        return value


class Focal(LossKeys):
    """Cross-entropy times (1 - p)^gamma, p the probability of what is right (Lin et al. 2017)."""

    kind: Literal["focal"] = Field(description="Loss.")
    gamma: NonNegative = Field(default=2.0, description="0 is the cross-entropy.")
    alpha: NonNegative | None = Field(
        default=None,
        le=1,
        description="Weight of ones, with 1 - alpha that of zeros; of classes, weight of all but the first, "
        "with 1 - alpha that of the first (default: all count alike).",
    )


def _square(
    keys: Square, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    return [mean((y - t) ** 2, lambda: 2.0 * (y - t), weight)]


def binomial(y: Doubles, t: Doubles, weight: Doubles) -> Part:
    """The mean binomial cross-entropy of logits."""
    losses = np.maximum(y, 0.0) - y * t + np.log1p(np.exp(-np.abs(y)))
    return mean(losses, lambda: LOGITS.probabilities(y) - t, weight)


def log_shares(y: Doubles) -> Doubles:
    """Return the logarithms of the softmax over channels."""
    from scipy.special import logsumexp  # seldom needed, and slow to import

    return np.asarray(y - logsumexp(y, axis=CHANNELS, keepdims=True))


def cross_entropy(y: Doubles, t: Doubles, weight: Doubles) -> Part:
    """The mean cross-entropy of logits of classes; targets may sum to other than 1."""
    losses: Doubles = -(t * log_shares(y)).sum(axis=CHANNELS, keepdims=True)
    mass = t.sum(axis=CHANNELS, keepdims=True)
    return mean(losses, lambda: CLASSES.probabilities(y) * mass - t, weight)


def _softmax(
    keys: Softmax, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    classes = np.array(_class_weights(keys, reading, y.shape[CHANNELS]))
    even = keys.label_smoothing / y.shape[CHANNELS]
    smooth = ((1 - keys.label_smoothing) * t + even) * classes[:, None, None, None]
    part = cross_entropy(y, smooth, weight)
    if keys.class_weights is None:
        return [part]
    return [Part(part.total, float((class_mass(t, classes) * weight).sum()), part.gradient)]


def _class_weights(keys: Softmax, reading: Reading, channels: int) -> Sequence[float]:
    return [1.0] * channels if keys.class_weights is None else keys.class_weights


def _focal(
    keys: Focal, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    if reading == LOGITS:
        return [_focal_logits(keys, y, t, weight)]
    classes = np.array(_focal_weights(keys, reading, y.shape[CHANNELS]))
    return [_focal_classes(keys.gamma, y, t * classes[:, None, None, None], weight)]


def _focal_logits(keys: Focal, y: Doubles, t: Doubles, weight: Doubles) -> Part:
    numbers = _focal_numbers(keys)
    p, yes, no = LOGITS.probabilities(y), np.logaddexp(0.0, -y), np.logaddexp(0.0, y)
    ones = numbers["ones"] * t * np.exp(-keys.gamma * no)
    zeros = numbers["zeros"] * (1 - t) * np.exp(-keys.gamma * yes)

    def slopes() -> Doubles:
        q = LOGITS.probabilities(-y)
        found: Doubles = zeros * (keys.gamma * q * no + p) - ones * (keys.gamma * p * yes + q)
        return found

    return mean(ones * yes + zeros * no, slopes, weight)


def _focal_classes(gamma: float, y: Doubles, t: Doubles, weight: Doubles) -> Part:
    logs = log_shares(y)
    p = np.exp(logs)
    rest = np.maximum(-np.expm1(logs), 1e-300)
    faded = t * rest**gamma

    def slopes() -> Doubles:
        each = faded * (gamma * p * logs / rest - 1)
        found: Doubles = each - p * each.sum(axis=CHANNELS, keepdims=True)
        return found

    return mean(-(faded * logs).sum(axis=CHANNELS, keepdims=True), slopes, weight)


def _focal_numbers(keys: Focal) -> Mapping[str, float]:
    even = keys.alpha is None
    ones, zeros = (1.0, 1.0) if even else (keys.alpha or 0.0, 1.0 - (keys.alpha or 0.0))
    return {"gamma": keys.gamma, "ones": ones, "zeros": zeros}


def _focal_weights(keys: Focal, reading: Reading, channels: int) -> Sequence[float]:
    numbers = _focal_numbers(keys)
    return [numbers["zeros"], *[numbers["ones"]] * (channels - 1)]


def _refused(keys: Softmax, reading: Reading, channels: int) -> str:
    count = channels if keys.class_weights is None else len(keys.class_weights)
    return "" if count == channels else f"has {count} class_weights"


SQUARE = Loss(
    name="square",
    aliases=("mse", "l2"),
    keys=Square,
    readings={VALUES: LossKernel(gradient="znnpy_kernels.layers.losses:square_loss", biases=True)},
    parts=_square,
)
BINOMIAL = Loss(
    name="binomial_cross_entropy",
    aliases=("bce", "bce_with_logits", "binary_cross_entropy"),
    keys=Binomial,
    readings={
        LOGITS: LossKernel(
            gradient="znnpy_kernels.layers.losses:binomial_cross_entropy_loss", biases=True
        )
    },
    parts=lambda keys, reading, y, t, weight: [binomial(y, t, weight)],
)
SOFTMAX = Loss(
    name="softmax",
    aliases=("ce", "cross_entropy"),
    keys=Softmax,
    readings={CLASSES: LossKernel(gradient="znnpy_kernels.layers.losses:softmax_loss")},
    parts=_softmax,
    numbers=lambda keys: {"smoothing": keys.label_smoothing},
    class_weights=_class_weights,
    weighs_mean=lambda keys: keys.class_weights is not None,
    refused=_refused,
    example="{kind: softmax, label_smoothing: 0.1, class_weights: [1, 5]}  # a channel for each class",
)
FOCAL = Loss(
    name="focal",
    keys=Focal,
    readings={
        LOGITS: LossKernel(gradient="znnpy_kernels.layers.losses:focal_loss", biases=True),
        CLASSES: LossKernel(gradient="znnpy_kernels.layers.losses:focal_softmax_loss"),
    },
    parts=_focal,
    numbers=_focal_numbers,
    class_weights=_focal_weights,
    example="{kind: focal, gamma: 2, alpha: 0.25}  # the output's function is logistic or softmax",
)
