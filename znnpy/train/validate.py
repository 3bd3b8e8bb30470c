"""Validation while training: the same held-out patches every time."""

from __future__ import annotations

from typing import Any, Protocol

from znnpy.data.sampling.prefetch import make_batch
from znnpy.data.sampling.sampler import Sampler
from znnpy.infer.losses import Tally
from znnpy.network.outputs import Objectives
from znnpy.train.records import Record
from znnpy.train.signals import StopSignals


class Forward(Protocol):
    """What validation needs of a model."""

    def forward(self, x: Any) -> Any:
        """Output values for one batch, without dropout."""


class Validation:
    """Mean loss and error over the first `patches` samples of a sampler that does not augment.

    Sums over several outputs with their factors, as a training step does. Stops early, with None, on a signal.
    """

    def __init__(
        self,
        model: Forward,
        sampler: Sampler,
        losses: Objectives,
        batch: int,
        patches: int,
        stop: StopSignals,
    ) -> None:
        self._model, self._sampler, self._losses = model, sampler, losses
        self._batch, self._stop = batch, stop
        self._batches = -(-patches // batch)

    def __call__(self) -> Record | None:
        """One validation with the model's present weights."""
        tallies: dict[str, Tally] = {}
        for number in range(self._batches):
            if self._stop.requested:
                return None
            batch = make_batch(self._sampler, number, self._batch)
            values = self._model.forward(batch.images)
            values = values if isinstance(values, dict) else dict.fromkeys(batch.targets, values)
            for node, target in batch.targets.items():
                tally = tallies.setdefault(node, Tally(self._losses[node]))
                tally.add(values[node], target, batch.weights[node])
        found = [(tally, tally.objective.factor) for tally in tallies.values()]
        return {
            "loss": sum(factor * tally.loss for tally, factor in found),
            "error": sum(factor * tally.error for tally, factor in found),
        }
