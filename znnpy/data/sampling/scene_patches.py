"""Reads the patches of one sample from a scene: normalised inputs, targets and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from znnpy.data.sampling.augmentation import Groups, Turn
from znnpy.data.sampling.class_weights import ClassCounts
from znnpy.data.sampling.label_checks import check_kind, read_taken
from znnpy.data.sampling.patch_positions import Placing, mask_shift
from znnpy.data.sampling.position_index import minus, plus
from znnpy.data.sampling.sample import Float32
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import Normalisation
from znnpy.data.volume import Triple, mirror_read
from znnpy.errors import VolumeError


@dataclass(frozen=True)
class Material:
    """A scene with what samples need of it: normalisation and class counts by node, and the axes to swap."""

    scene: Scene
    norms: Mapping[str, Normalisation]
    groups: Groups
    counts: Mapping[str, ClassCounts]

    def images(self, placing: Placing, position: Triple, turn: Turn) -> dict[str, Float32]:
        """Return the normalised patches of all inputs."""
        scene, images = self.scene, {}
        for node in placing.inputs:
            volume, norm = scene.images[node], self.norms[node]
            lower = placing.lower(scene, node, volume, position, turn.flips)
            upper = plus(lower, placing.boxes[node].extent)
            raw = mirror_read(volume, lower, upper, finite=not norm.replace)
            images[node] = norm.apply(turn.apply(raw))
        return images

    def target(
        self, placing: Placing, node: str, position: Triple, turn: Turn
    ) -> tuple[Float32, Float32]:
        """Return target and weights of an output.

        Labels are read with a margin and turned; the target made of them is cropped, and every stride-th voxel taken.
        """
        output, extent, scene = placing.outputs[node], placing.boxes[node].extent, self.scene
        margin, labels = output.target.margin, scene.labels[node]
        lower = placing.lower(scene, node, labels, position, turn.flips)
        upper = plus(lower, extent)
        wide = (margin, margin, margin)
        values, known = read_taken(
            output.target,
            labels,
            scene.masks.get(node),
            minus(lower, wide),
            plus(upper, wide),
            mask_shift(scene, node),
        )
        value, weight = output.target.compute(turn.apply(values), turn.apply(known))
        cut = tuple(
            slice(margin, margin + size, step)
            for size, step in zip(extent, output.stride, strict=True)
        )
        return np.ascontiguousarray(value[:, *cut]), np.ascontiguousarray(weight[:, *cut])


def check(placing: Placing, scene: Scene) -> None:
    """Raise VolumeError or ShapeError for a scene that no patches can be made of; reads nothing."""
    for what, wanted, given in (
        ("an image for input", placing.inputs, scene.images),
        ("labels for output", placing.outputs, scene.labels),
    ):
        missing = [node for node in wanted if node not in given]
        if missing:
            raise VolumeError(
                f"{scene.reference.name} comes without {what} {missing[0]!r}; given: "
                f"{', '.join(given) or 'none'}"
            )
    for node, output in placing.outputs.items():
        check_kind(output.target, scene.labels[node])
    placing.refuse_none(scene)
