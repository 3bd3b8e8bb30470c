"""Accumulates losses and errors of finished output values, in NumPy, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from znnpy.learning.loss import Objective
from znnpy.learning.readings import Array
from znnpy.network.objectives import Objectives

Doubles = NDArray[np.float64]


@dataclass
class Tally:
    """Running totals of a loss over the voxels seen so far; `loss` and `error` are means, 0 if nothing counts."""

    objective: Objective
    parts: Doubles = field(default_factory=lambda: np.zeros((0, 2)))  # total and weight of each
    wrong: Doubles = field(default_factory=lambda: np.zeros(2))  # weight, and that of all

    def add(self, values: Array, target: Array, weight: Array) -> None:
        """Add output values (..., channel, z, y, x) with targets and weights of that shape.

        Loss and error weigh voxels alike, as a training step does.
        """
        weight = self.objective.reading.voxel_weight(target, weight).astype(np.float64)
        parts = [(p.total, p.weight) for p in self.objective.parts(values, target, weight)]
        self.parts = np.array(parts) + (self.parts if len(self.parts) else 0.0)
        self.wrong += self.objective.error(values, target, weight)

    @property
    def loss(self) -> float:
        """The weighted mean loss."""
        return float(sum(total / weight for total, weight in self.parts if weight))

    @property
    def error(self) -> float:
        """The weighted fraction of wrong voxels."""
        wrong, total = self.wrong
        return float(wrong / total) if total else 0.0


def step_weights(
    losses: Objectives, target: Mapping[str, Array], weight: Mapping[str, Array]
) -> dict[str, Array]:
    """Return weights as losses take them, by output node, in the targets' shapes that a training step takes."""
    return {
        node: np.broadcast_to(
            losses[node].reading.voxel_weight(target[node], weight[node]), target[node].shape
        )
        for node in target
    }
