"""Validation during training: mean loss and voxel error on the same held-out patches every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from znnpy.data.sampling.prefetch import Float32, make_batch
from znnpy.data.sampling.sampler import Sampler
from znnpy.engine.layers.probabilities import probabilities
from znnpy.evaluation.loss_totals import Tally
from znnpy.learning.loss import Objective
from znnpy.metrics.metric import Compared, Metric
from znnpy.network.objectives import Objectives, total_factor
from znnpy.train.log import Record, by_output
from znnpy.train.signals import Stop

Forward = Callable[[dict[str, Float32]], Any]
"""Returns output values for one batch of images by node, without dropout: by node, or those of the only one."""
Seen = Callable[[Objective, Float32, Float32, Float32], None]
"""Takes how values are read, and of a patch image, target and output values, each (channel, z, y, x)."""


class Gathered:
    """The voxels of one output over all patches, for a metric that wants them together."""

    def __init__(self, metric: Metric, objective: Objective) -> None:
        self._metric, self._reading = metric, objective.reading
        self._parts: list[tuple[Float32, Float32, Float32]] = []

    def add(self, values: Float32, target: Float32, weight: Float32) -> None:
        """Add output values, targets and weights (patch, channel, z, y, x)."""
        found = probabilities(self._reading, values).astype(np.float32)
        for part in zip(found, target, np.broadcast_to(weight, target.shape), strict=True):
            self._parts.append(part)

    def score(self) -> float | None:
        """Return the score, of several channels their mean; None where there is none."""
        # Patches lie one after the other along z: a metric of voxels does not mind.
        found, target, weight = (
            np.concatenate(arrays, 1) for arrays in zip(*self._parts, strict=True)
        )
        unknown = np.zeros(found.shape[1:], np.uint64)
        whole = self._reading.whole_voxels
        compared = Compared(found, found, target, weight, unknown, whole_voxels=whole)
        score = self._metric.score(compared)
        each = [it for it in (score if isinstance(score, tuple) else (score,)) if it is not None]
        mean = float(np.mean(each)) if each else np.nan
        return mean if np.isfinite(mean) else None


class Validation:
    """Mean loss and voxel error over the first `patches` samples of a sampler that does not augment.

    Of classes the accuracy, too.

    Several outputs are combined as in a training step (`StepResult`). Stops early, with None, on a signal.
    `forward`: returns the values of a batch by output, or of its only one. `errors`: whether fractions of wrong voxels
    mean anything. `apart`: whether the loss of each output is told beside their sum. `metric`: of voxels, which scores
    the first output too. `during`: entered around each validation, as what puts other weights in place. `seen`: called
    with the first patch of each validation.
    """

    def __init__(
        self,
        forward: Forward,
        sampler: Sampler,
        losses: Objectives,
        batch: int,
        patches: int,
        stop: Stop,
        *,
        errors: bool = True,
        apart: bool = False,
        metric: Metric | None = None,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
        seen: Seen | None = None,
    ) -> None:
        self._seen = seen
        self._forward, self._sampler, self._losses = forward, sampler, losses
        self._batch, self._stop = batch, stop
        self._patches, self._errors, self._metric = patches, errors, metric
        self._during, self._apart = during, apart

    def __call__(self) -> Record | None:
        """Validate the model's present weights once; None if a signal stopped it."""
        with self._during():
            return self._scores()

    def _scores(self) -> Record | None:
        tallies: dict[str, Tally] = {}
        first_output = next(iter(self._losses))
        gathered = Gathered(self._metric, self._losses[first_output]) if self._metric else None
        for number, first in enumerate(range(0, self._patches, self._batch)):
            # Not `agreed`: that counts updates, and all ranks must call it equally often.
            if self._stop.requested:
                return None
            batch, count = make_batch(self._sampler, number, self._batch), self._patches - first
            # The last, incomplete batch is filled up: a model takes a fixed number of samples.
            values = self._forward(batch.images)
            if not isinstance(values, dict):
                values = dict.fromkeys(batch.targets, values)
            if self._seen and number == 0:
                image, target = next(iter(batch.images.values())), batch.targets[first_output]
                shown = values[first_output][0]
                self._seen(self._losses[first_output], image[0], target[0], shown)
            for node, target in batch.targets.items():
                tally = tallies.setdefault(node, Tally(self._losses[node]))
                # The last batch may be filled up; only wanted samples count.
                counted = values[node][:count], target[:count], batch.weights[node][:count]
                tally.add(*counted)
                if gathered and node == first_output:
                    gathered.add(*counted)
        found = [(tally, tally.objective.factor) for tally in tallies.values()]
        # As a training step combines outputs: losses are added, errors averaged.
        losses = {name: tally.objective.factor * tally.loss for name, tally in tallies.items()}
        record = {"loss": sum(losses.values()), **(by_output(losses) if self._apart else {})}
        if self._errors:
            wrong = sum(factor * tally.error for tally, factor in found)
            record["voxel_error"] = wrong / total_factor(self._losses)
        if len(found) == 1 and found[0][0].objective.reading.whole_voxels:
            record["accuracy"] = 1 - found[0][0].error
        if gathered and self._metric and (score := gathered.score()) is not None:
            record[self._metric.name] = score
        return record
