"""Reads the truth of a region: targets, weights, objects and the raw image."""

from __future__ import annotations

import numpy as np

from znnpy.data.sampling.label_checks import read_taken
from znnpy.data.sampling.targets import Target
from znnpy.data.scene import Scene
from znnpy.data.volume import Array, Triple, mirror_read
from znnpy.evaluation.scores import Labelled
from znnpy.infer.blocks import Field, triple


def read_known(scene: Scene, name: str, target: Target, field: Field) -> Labelled:
    """Read targets, weights, objects and raw image at the voxels of a field."""
    labels, mask, margin = scene.labels[name], scene.masks.get(name), target.margin
    corner, shift = scene.corner(labels), mask_shift(scene, name)
    extent = triple((n - 1) * step + 1 for n, step in zip(field.shape, field.stride, strict=True))
    lower, upper = _minus(field.first, corner), _minus(_plus(field.first, extent), corner)
    wide = (margin, margin, margin)
    before, behind = _minus(lower, wide), _plus(upper, wide)
    ids, inside = read_taken(target, labels, mask, before, behind, shift)
    value, weight = target.compute(ids, inside)
    z, y, x = (
        slice(margin, margin + n, step) for n, step in zip(extent, field.stride, strict=True)
    )
    raw = _mended(
        mirror_read(scene.reference, field.first, _plus(field.first, extent), finite=False)[0]
    )
    down, across, along = (slice(None, None, step) for step in field.stride)
    objects = np.where(inside[z, y, x], ids[0, z, y, x], ids.dtype.type(0))
    deep, tall, broad = (n * step for n, step in zip(scene.resolution, field.stride, strict=True))
    size = (deep, tall, broad)
    return Labelled(value[:, z, y, x], weight[:, z, y, x], objects, raw[down, across, along], size)


def mask_shift(scene: Scene, name: str) -> Triple:
    """Return how far the labels of an output lie behind its mask; 0 without one."""
    mask, corner = scene.masks.get(name), scene.corner(scene.labels[name])
    return (0, 0, 0) if mask is None else _minus(corner, scene.corner(mask))


def _mended(raw: Array) -> Array:
    """Return a raw image to draw and threshold, with NaN and infinity (refused unless replaced) set to its mean."""
    good = np.isfinite(raw)
    return raw if good.all() else np.where(good, raw, raw[good].mean() if good.any() else 0)


def _minus(a: Triple, b: Triple) -> Triple:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def _plus(a: Triple, b: Triple) -> Triple:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])
