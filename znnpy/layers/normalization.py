"""Normalisation of a node's sum in float64: statistics, values, gradients, and what is kept beside a node.

Images are (batch, channel, z, y, x). Statistics are (batch, group, 1, 1) for images seen as (batch, group,
image of the group, voxel); their batch is 1 where they are over the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from znnpy.layers.types import Array, Held, Norm


def held(norm: Norm) -> dict[str, Held]:
    """What a normalisation keeps, by name: the scale and shift that it learns, its running statistics."""
    affine = {"scale": Held(1.0, True), "shift": Held(0.0, True)}
    running = {
        "running_mean": Held(0.0, False),
        "running_variance": Held(1.0, False, negative=False),
    }
    return (affine if norm.affine else {}) | (running if norm.running else {})


@dataclass(frozen=True)
class Statistics:
    """Mean and variance of groups of images; the variance is biased."""

    mean: Array
    variance: Array


def statistics(x: Array, norm: Norm) -> Statistics:
    """Those of the images themselves."""
    grouped, axes = _grouped(x, norm), _axes(norm)
    return Statistics(grouped.mean(axes, keepdims=True), grouped.var(axes, keepdims=True))


def given(mean: Array, variance: Array) -> Statistics:
    """Running statistics (images,)."""
    return Statistics(mean[None, :, None, None], variance[None, :, None, None])


def normalised(x: Array, norm: Norm, by: Statistics) -> Array:
    """The images without scale and shift."""
    inverse = 1.0 / np.sqrt(by.variance + norm.epsilon)
    found: Array = ((_grouped(x, norm) - by.mean) * inverse).reshape(x.shape)
    return found


def normalised_gradient(x: Array, gradient: Array, norm: Norm) -> Array:
    """Gradient by the images, whose own statistics they were normalised by, from that by the normalised."""
    by, axes = statistics(x, norm), _axes(norm)
    unit, g = _grouped(normalised(x, norm, by), norm), _grouped(gradient, norm)
    rest = g - g.mean(axes, keepdims=True) - unit * (g * unit).mean(axes, keepdims=True)
    found: Array = (rest / np.sqrt(by.variance + norm.epsilon)).reshape(x.shape)
    return found


def moved(mean: Array, variance: Array, x: Array, norm: Norm) -> tuple[Array, Array]:
    """Running mean and variance (images,) after an update with these images; their variance is unbiased."""
    now, count = statistics(x, norm), x.size // x.shape[1]
    unbiased = now.variance.reshape(-1) * (count / max(count - 1, 1))
    keep, take = 1.0 - norm.momentum, norm.momentum
    return keep * mean + take * now.mean.reshape(-1), keep * variance + take * unbiased


def _grouped(x: Array, norm: Norm) -> Array:
    batch, images = x.shape[:2]
    parts = norm.parts(images)
    return x.reshape(batch, parts, images // parts, -1)


def _axes(norm: Norm) -> tuple[int, ...]:
    return (0, 2, 3) if norm.kind == "batch" else (2, 3)
