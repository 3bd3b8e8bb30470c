"""Losses of finished output values, in NumPy, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from znnpy.config.training_section import LossName
from znnpy.engine.layers.probabilities import IMAGES, Array


@dataclass
class Tally:
    """Weighted sums over voxels seen so far; `loss` and `error` are means, 0 if nothing counts."""

    lost: float = 0.0
    wrong: float = 0.0
    weight: float = 0.0

    def add(self, name: LossName, values: Array, target: Array, weight: Array) -> None:
        """Count output values (..., image, z, y, x) against targets and weights of that shape.

        Loss and error weigh voxels alike, as a training step does.
        """
        weight = voxel_weight(name, target, weight).astype(np.float64)
        counts = weight != 0
        losses = _voxel_losses(name, values.astype(np.float64), target)
        self.lost += float(np.sum(losses * weight, where=counts))
        self.wrong += float(np.sum(_wrong(name, values, target) * weight))
        self.weight += float(weight.sum())

    @property
    def loss(self) -> float:
        """Weighted mean loss."""
        return self.lost / self.weight if self.weight else 0.0

    @property
    def error(self) -> float:
        """Weighted share of wrong voxels."""
        return self.wrong / self.weight if self.weight else 0.0


def voxel_weight(name: LossName, target: Array, weight: Array) -> Array:
    """Weights as the loss takes them: softmax has one a voxel, that of the voxel's class."""
    if name != "softmax":
        return weight
    return np.asarray(np.sum(target * weight, axis=IMAGES, keepdims=True, dtype=weight.dtype))


def step_weights(
    name: LossName, target: Mapping[str, Array], weight: Mapping[str, Array]
) -> dict[str, Array]:
    """`voxel_weight` by output node, in the targets' shapes that a model's step takes."""
    return {
        node: np.broadcast_to(voxel_weight(name, target[node], weight[node]), target[node].shape)
        for node in target
    }


def _voxel_losses(name: LossName, values: Array, target: Array) -> Array:
    match name:
        case "square":
            return np.asarray(np.square(values - target))
        case "binomial_cross_entropy":
            return np.asarray(np.logaddexp(0.0, values) - target * values)
        case "softmax":
            from scipy.special import log_softmax

            logs = log_softmax(values, axis=IMAGES)
            return np.asarray(-np.sum(target * logs, axis=IMAGES, keepdims=True))
        case _:
            assert_never(name)


def _wrong(name: LossName, values: Array, target: Array) -> Array:
    match name:
        case "square":
            return np.asarray((values > 0.5) != (target > 0.5))
        case "binomial_cross_entropy":
            return np.asarray((values > 0.0) != (target > 0.5))
        case "softmax":
            hit = values.argmax(axis=IMAGES) == target.argmax(axis=IMAGES)
            return np.expand_dims(~hit, IMAGES)
        case _:
            assert_never(name)
