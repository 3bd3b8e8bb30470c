"""Batch, instance, group and layer normalisation in float64: statistics, values, gradients, running statistics.

Arrays are (batch, channel, z, y, x). Statistics are (batch, group, 1, 1), for values seen as (batch, group, channel
of the group, voxel); their batch is 1 where they are over the whole batch. A new kind of norm goes here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from znnpy.layers.types import Array, Held, Norm


def held(norm: Norm) -> dict[str, Held]:
    """Return the arrays that a normalisation keeps, by name: learned scale and shift, running statistics."""
    affine = {"scale": Held(1.0, True), "shift": Held(0.0, True)}
    running = {
        "running_mean": Held(0.0, False),
        "running_variance": Held(1.0, False, negative=False),
    }
    return (affine if norm.affine else {}) | (running if norm.running else {})


@dataclass(frozen=True)
class Statistics:
    """Mean and biased variance of each group of channels."""

    mean: Array
    variance: Array


def statistics(x: Array, norm: Norm) -> Statistics:
    """Return the statistics of the values themselves."""
    grouped, axes = _grouped(x, norm), _axes(norm)
    return Statistics(grouped.mean(axes, keepdims=True), grouped.var(axes, keepdims=True))


def given(mean: Array, variance: Array) -> Statistics:
    """Return running statistics (channels,) in the shape of `Statistics`."""
    return Statistics(mean[None, :, None, None], variance[None, :, None, None])


def normalised(x: Array, norm: Norm, by: Statistics) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon), before scale and shift."""
    inverse = 1.0 / np.sqrt(by.variance + norm.epsilon)
    found: Array = ((_grouped(x, norm) - by.mean) * inverse).reshape(x.shape)
    return found


def normalised_gradient(x: Array, gradient: Array, norm: Norm) -> Array:
    """Return the gradient by x from that by `normalised`, for statistics of x itself."""
    by, axes = statistics(x, norm), _axes(norm)
    unit, g = _grouped(normalised(x, norm, by), norm), _grouped(gradient, norm)
    rest = g - g.mean(axes, keepdims=True) - unit * (g * unit).mean(axes, keepdims=True)
    found: Array = (rest / np.sqrt(by.variance + norm.epsilon)).reshape(x.shape)
    return found


def moved(mean: Array, variance: Array, x: Array, norm: Norm) -> tuple[Array, Array]:
    """Return running mean and variance (channels,) after an update with values x; this variance is unbiased."""
    now, count = statistics(x, norm), x.size // x.shape[1]
    unbiased = now.variance.reshape(-1) * (count / max(count - 1, 1))
    keep, take = 1.0 - norm.momentum, norm.momentum
    return keep * mean + take * now.mean.reshape(-1), keep * variance + take * unbiased


def _grouped(x: Array, norm: Norm) -> Array:
    batch, channels = x.shape[:2]
    parts = norm.parts(channels)
    return x.reshape(batch, parts, channels // parts, -1)


def _axes(norm: Norm) -> tuple[int, ...]:
    return (0, 2, 3) if norm.kind == "batch" else (2, 3)
