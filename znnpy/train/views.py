"""Layers for `znnpy view RUN`: raw image, labels, and prediction and objects of the run's newest weights."""

from __future__ import annotations

import numpy as np

from znnpy.config.models import AffinityTarget, BoundaryTarget
from znnpy.data.config_volumes import open_scene
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, ArrayVolume, Triple64
from znnpy.engine.layers.probabilities import probabilities
from znnpy.errors import RunError
from znnpy.evaluation.volume import observe
from znnpy.infer.blocks import Field
from znnpy.network import training_losses
from znnpy.pictures.overlays import Kind, Layer
from znnpy.segment.job import Request, segment
from znnpy.train.final_evaluation import held_out
from znnpy.train.start import SavedRun

# About 160^3: some seconds to predict, enough to look at.
SHOWN = 1 << 22  # most voxels that are predicted


def scene_of_run(saved: SavedRun) -> Scene:
    """Open the first labelled volume to evaluate on, else to train on; the caller closes it."""
    config = saved.config
    sections = held_out(config) or tuple(s for s in config.data.train if s.labels is not None)
    if not sections:
        raise RunError(f"{saved.path} names no labelled volume; give volumes to view instead")
    return open_scene(sections[0], config.data, saved.network)


def layers_of_run(saved: SavedRun, scene: Scene) -> list[Layer]:
    """Predict the middle of a scene with a run's newest weights and segment it.

    About `SHOWN` voxels of the first output. The scene stays open and the caller's; the raw image's layer
    reads it.
    """
    config = saved.config
    seen = observe(saved.weights, scene, SHOWN)
    node = next(iter(seen.values))
    known, field = seen.known[node], seen.field
    reading = training_losses(config, saved.network)[node].reading
    found = probabilities(reading, seen.values[node]).astype(np.float32)
    resolution, offset = _place(scene, field)

    def volume(array: Array, name: str) -> ArrayVolume:
        return ArrayVolume(array, name, resolution, offset)

    # The volume itself can be shown only where it is what the network saw, voxel by voxel.
    whole = field.stride == (1, 1, 1) and not config.data.replace_nonfinite
    raw = scene.reference if whole else volume(known.raw, "raw")
    prediction, title = volume(found, f"prediction of {saved.path}"), saved.checkpoint.iteration
    shown: Kind = "prediction" if reading.functions else "raw"
    labels = Layer("labels", volume(known.objects, "labels"), "labels")
    if (
        not isinstance(config.target(node), AffinityTarget | BoundaryTarget)
        and not reading.whole_voxels
    ):
        labels = Layer(shown, volume(known.target, "labels"), "labels")
    if reading.whole_voxels:
        prediction.first_class = getattr(config.target(node), "first", 0)
    layers = [Layer("raw", raw, "raw"), labels]
    layers.append(Layer(shown, prediction, f"prediction, iteration {title}"))
    return layers + _objects(config.target(node), prediction)


def _objects(target: object, prediction: ArrayVolume) -> list[Layer]:
    """Return the objects of the prediction, if its target is one that shows objects."""
    if isinstance(target, AffinityTarget):
        prediction.neighbours = target.offsets
    elif not isinstance(target, BoundaryTarget):
        return []
    found = segment(prediction, Request(min_size=50))
    labels = ArrayVolume(found.labels, "objects", prediction.resolution, prediction.offset)
    return [Layer("labels", labels, f"objects ({found.method})")]


def _place(scene: Scene, field: Field) -> tuple[Triple64, Triple64]:
    voxel, corner = scene.resolution, scene.reference.offset
    z, y, x = (a * step for a, step in zip(voxel, field.stride, strict=True))
    first = [c + a * n for c, a, n in zip(corner, voxel, field.first, strict=True)]
    return (z, y, x), (first[0], first[1], first[2])
