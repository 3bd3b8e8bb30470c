"""Predicts a labelled volume and scores the result, beside the trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from znnpy.config.models import Config
from znnpy.data.labelled import read_labelled
from znnpy.data.scene import Scene
from znnpy.data.targets import Target
from znnpy.data.volume import mirror_read
from znnpy.errors import VolumeError
from znnpy.infer.blocks import Field, triple, whole_field
from znnpy.infer.build import prediction_of
from znnpy.infer.losses import Tally, probabilities
from znnpy.infer.material import make_targets
from znnpy.infer.predict import Floats, Progress
from znnpy.infer.scores import Labelled, Scores, baselines, score, segmenter
from znnpy.network.types import Network


@dataclass(frozen=True)
class Evaluation:
    """One output node on one volume: loss, scores by predictor (first the network), and arrays.

    `known` and `found` (probabilities, (K, z, y, x)) cover the predicted region.
    """

    volume: str
    output: str
    loss: float
    scores: dict[str, Scores]
    known: Labelled
    found: Floats

    def record(self) -> dict[str, Any]:
        """The numbers, JSON-able."""
        rows = {name: asdict(scores) for name, scores in self.scores.items()}
        return {"volume": self.volume, "output": self.output, "loss": self.loss, "scores": rows}


def evaluate(
    config: Config,
    network: Network,
    plan: Mapping[str, Any] | None,
    parameters: Mapping[str, Any],
    scene: Scene,
    train: Scene | None = None,
    threshold: float = 0.5,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """Evaluate every output on a labelled scene, which stays open and the caller's.

    Baselines take their mean and threshold from `train` and are left out without it. `threshold`
    separates objects. Raises VolumeError when labels are missing.
    """
    targets = make_targets(config, network)
    missing = [name for name in targets if name not in scene.labels]
    if missing:
        raise VolumeError(
            f"{scene.reference.name}: no labels for output {missing[0]}, nothing to evaluate against"
        )
    with prediction_of(config, network, plan, parameters, scene) as prediction:
        field, values = prediction.field, prediction.whole(progress)
    return [
        _evaluation(config, name, values[name], target, (scene, field), train, threshold, network)
        for name, target in targets.items()
    ]


def _evaluation(
    config: Config,
    name: str,
    values: Floats,
    target: Target,
    where: tuple[Scene, Field],
    train: Scene | None,
    threshold: float,
    network: Network,
) -> Evaluation:
    scene, field = where
    known = read_known(scene, name, target, field)
    loss, segment = config.training.loss, segmenter(config.data.target, threshold)
    tally = Tally()
    tally.add(loss, values, known.target, known.weight)
    found = probabilities(loss, values).astype(np.float32)
    scores = {"network": score(found, values, known, segment)}
    if train is not None:
        corners = {key: train.corner(volume) for key, volume in train.images.items()}
        whole = whole_field(network, train.images, corners, mirror=True)
        scores |= baselines(read_known(train, name, target, whole), known, segment)
    return Evaluation(scene.reference.name, name, tally.loss, scores, known, found)


def read_known(scene: Scene, name: str, target: Target, field: Field) -> Labelled:
    """Targets, weights, objects and raw image at the voxels of a field."""
    labels, mask, margin = scene.labels[name], scene.masks.get(name), target.margin
    extent = triple((n - 1) * step + 1 for n, step in zip(field.shape, field.stride, strict=True))
    corner = scene.corner(labels)
    shift = (0, 0, 0) if mask is None else _minus(corner, scene.corner(mask))
    lower = _minus(field.first, corner)
    upper = triple(a + n for a, n in zip(lower, extent, strict=True))
    wide = (margin, margin, margin)
    ids, inside = read_labelled(
        labels, mask, _minus(lower, wide), triple(a + margin for a in upper), shift
    )
    value, weight = target.compute(ids, inside)
    z, y, x = (
        slice(margin, margin + n, step) for n, step in zip(extent, field.stride, strict=True)
    )
    end = triple(a + n for a, n in zip(field.first, extent, strict=True))
    raw = mirror_read(scene.reference, field.first, end)
    steps = tuple(slice(None, None, step) for step in field.stride)
    objects = ids[0, z, y, x] * inside[z, y, x]
    return Labelled(value[:, z, y, x], weight[:, z, y, x], objects, raw[0][steps])


def _minus(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])
