"""Evaluates a network on a labelled volume: predicts it, computes scores, and compares with baselines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from znnpy.config.models import BoundaryTarget, Config
from znnpy.data.config_volumes import make_targets
from znnpy.data.samples.image_labels import OneEach
from znnpy.data.sampling.label_checks import check_labels
from znnpy.data.sampling.targets import Target
from znnpy.data.scene import Scene
from znnpy.data.volume import Array
from znnpy.engine.layers.probabilities import probabilities
from znnpy.errors import VolumeError
from znnpy.evaluation.loss_totals import Tally
from znnpy.evaluation.scores import (
    Labelled,
    Objects,
    Predicted,
    Scores,
    baselines,
    by_components,
    deviations,
    safe_threshold,
    score,
    segmenter,
    separated,
)
from znnpy.evaluation.truth import mask_shift, read_known
from znnpy.evaluation.tuning import tuned_threshold
from znnpy.infer.blocks import Field
from znnpy.infer.config_model import Weights, prediction_of
from znnpy.infer.predict import Floats
from znnpy.learning.loss import Objective
from znnpy.network import training_losses
from znnpy.network.types import Network

DEFAULT = Objects()
CALIBRATED = 1 << 21  # most voxels of the train volume that baselines are fitted on
USUAL = 0.5  # the threshold of objects, as in `znnpy segment`


@dataclass(frozen=True)
class Evaluation:
    """The result for one output node on one volume: loss, scores by predictor (first the network), and arrays.

    `known` and `found` (probabilities, (K, z, y, x)) cover the predicted region, as do the network's `objects`
    (z, y, x), None where it shows none.
    """

    volume: str
    output: str
    loss: float
    scores: Mapping[str, Scores]
    known: Labelled
    found: Floats
    objects: Array | None = None

    @property
    def span(self) -> tuple[float, float]:
        """Return the range of values that a picture shows: 0 to 1, or that of known values."""
        if not self.scores["network"].of_values:
            return 0.0, 1.0
        counted = self.known.target[self.known.weight > 0]
        return float(counted.min()), float(counted.max())

    def record(self) -> dict[str, Any]:
        """Return the numbers, JSON-able."""
        rows = {name: scores.record() for name, scores in self.scores.items()}
        return {"volume": self.volume, "output": self.output, "loss": self.loss, "scores": rows}


@dataclass(frozen=True)
class Observed:
    """A region with predicted output values, if any, and the truth, by output node."""

    values: Mapping[str, Floats]
    known: Mapping[str, Labelled]
    field: Field


def evaluate(
    weights: Weights,
    scene: Scene,
    train: Scene | None = None,
    objects: Objects = DEFAULT,
    tuned: Mapping[str, float] | None = None,
) -> list[Evaluation]:
    """Evaluate every output on a labelled scene, which stays open and the caller's.

    `tuned`: the threshold of objects by output (`tuned_thresholds`), where `objects` says none. Baselines
    come from the middle of `train`; without it, or where nothing counts there, there are none. The whole prediction is
    kept in memory. Raises VolumeError when labels are missing, or no voxel counts.
    """
    test = observe(weights, scene)
    for name, known in test.known.items():
        if not known.weight.any():
            raise VolumeError(
                f"{scene.labels[name].name}: no voxel that is predicted counts, by the mask or the labels; there is "
                "nothing to score against"
            )
    earlier = {} if train is None else _fitted_on(weights, train)
    losses = training_losses(weights.config, weights.network)
    targets = make_targets(weights.config, weights.network)
    return [
        _evaluation(
            weights.config,
            losses[name],
            targets[name],
            name,
            scene,
            test,
            earlier.get(name),
            objects,
            (tuned or {}).get(name, USUAL),
        )
        for name in test.values
    ]


def shows_objects(config: Config, network: Network) -> bool:
    """Return whether any output shows boundaries or affinities, of which objects are made."""
    return any(
        segmenter(config.target(node.name), DEFAULT, (1.0, 1.0, 1.0)) for node in network.outputs
    )


def tuned_thresholds(
    weights: Weights, scene: Scene, objects: Objects = DEFAULT
) -> Mapping[str, float]:
    """Return by output the threshold at which objects are best in the middle of a scene, as one for validation."""
    seen = observe(weights, scene, CALIBRATED)
    losses, found = training_losses(weights.config, weights.network), dict[str, float]()
    for name, values in seen.values.items():
        segment = segmenter(weights.config.target(name), objects, scene.resolution)
        level = tuned_threshold(_predicted(losses[name], values), seen.known[name], segment)
        if level is not None:
            found[name] = level
    return found


def observe(
    weights: Weights, scene: Scene, most: int | None = None, *, predicted: bool = True
) -> Observed:
    """Predict a scene, or about `most` voxels in its middle, and read its labels there.

    Without `predicted` it only finds which voxels these are, and reads labels.
    """
    targets = refuse_labels(weights.config, weights.network, scene)
    with prediction_of(weights, scene, most=most) as prediction:
        field, values = prediction.field, prediction.whole() if predicted else {}
    known = {name: read_known(scene, name, target, field) for name, target in targets.items()}
    scene.verify()
    return Observed(values, known, field)


def _fitted_on(weights: Weights, train: Scene) -> Mapping[str, Labelled]:
    """Return the truth in the middle of `train`, to fit baselines on, if something counts there in all channels."""
    found = observe(weights, train, CALIBRATED, predicted=False)
    if all(known.weight.any(axis=(1, 2, 3)).all() for known in found.known.values()):
        return found.known
    warnings.warn(
        f"{train.reference.name}: in the middle {found.field.shape} voxels (z, y, x) nothing counts, or not in all "
        "channels; so there are no baselines",
        stacklevel=3,
    )
    return {}


def refuse_labels(config: Config, network: Network, scene: Scene) -> dict[str, Target]:
    """Return the targets by output node; raise VolumeError for labels that are missing or have no target."""
    targets = make_targets(config, network)
    missing = [name for name in targets if name not in scene.labels]
    if missing:
        raise VolumeError(
            f"{scene.reference.name}: no labels for output {missing[0]}, nothing to score against"
        )
    for name, target in targets.items():
        labels = scene.labels[name]
        check_labels(target, labels, scene.masks.get(name), mask_shift(scene, name))
    return targets


def _evaluation(
    config: Config,
    objective: Objective,
    target: Target,
    name: str,
    scene: Scene,
    test: Observed,
    earlier: Labelled | None,
    objects: Objects,
    usual: float,
) -> Evaluation:
    values, known = test.values[name], test.known[name]
    tally = Tally(objective)
    tally.add(values, known.target, known.weight)
    found = _predicted(objective, values)
    if target.values:
        scores = _deviations(found, known, earlier)
        return Evaluation(scene.reference.name, name, tally.loss, scores, known, found)
    network, level = (
        Predicted(found, found),
        usual if objects.threshold is None else objects.threshold,
    )
    cut = separated(
        network, known, segmenter(config.target(name), objects, scene.resolution), level
    )
    classes = objective.reading.whole_voxels
    scores = {"network": score(network, known, cut, level, classes=classes)}
    if earlier:
        by_raw = not isinstance(scene.labels[name], OneEach)
        fitted = baselines(earlier, known, by_raw=by_raw)
        scores |= _trivial(config.target(name), fitted, earlier, known, objects, classes=classes)
    first = getattr(target, "first", 0)
    scores = {predictor: replace(it, first=first) for predictor, it in scores.items()}
    return Evaluation(scene.reference.name, name, tally.loss, scores, known, found, cut)


def _predicted(objective: Objective, values: Floats) -> Floats:
    return probabilities(objective.reading, values).astype(np.float32)


def _trivial(
    target: object,
    fitted: Mapping[str, tuple[Predicted, Predicted]],
    earlier: Labelled,
    known: Labelled,
    objects: Objects,
    *,
    classes: bool,
) -> dict[str, Scores]:
    """Return the scores of baselines, whose thresholds of objects are found on the `earlier` volume too."""
    segment, first = by_components(target, objects), isinstance(target, BoundaryTarget)
    scores = {}
    for predictor, (before, now) in fitted.items():
        level = safe_threshold(before.ranking, earlier, segment, cautious_first=first)
        cut = separated(now, known, segment, level)
        scores[predictor] = score(now, known, cut, level, classes=classes)
    return scores


def _deviations(found: Floats, known: Labelled, train: Labelled | None) -> dict[str, Scores]:
    """Return the scores of predicted values, and of the mean of those in `train` if that is known."""
    pairs = baselines(train, known, by_raw=False) if train else {}
    values = {"network": found} | {name: now.ranking for name, (_, now) in pairs.items()}
    return {name: deviations(each, known) for name, each in values.items()}
