"""Losses as weighted means, with their gradients, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from znnpy.errors import ShapeError, ZnnpyError
from znnpy.layers.functions import IMAGES, softmax

Array = NDArray[np.float64]


def loss_and_gradient(
    name: str, values: Array, target: Array, weight: Array | None = None
) -> tuple[float, Array]:
    """One output's loss and its gradient for the output node's values.

    `square`: (value - target)^2. `binomial_cross_entropy`: values are logits, targets in [0, 1].
    `softmax`: values are logits, targets are shares that sum to 1 over images.

    The loss is sum(weight * l) / sum(weight) over all voxels and images (softmax: over voxels). No
    weight means 1 everywhere; weights that sum to 0 give loss and gradient 0. A target that weighs
    0 may be NaN or Inf; values may not. All arrays are (batch, image, z, y, x); a weight may also have 1 image, and
    softmax reads the first only. The gradient is a new array. Raises ShapeError when shapes differ,
    ZnnpyError for an unknown loss.
    """
    if name not in _LOSSES:
        raise ZnnpyError(f"unknown loss {name!r}; one of {sorted(_LOSSES)}")
    if target.shape != values.shape:
        raise ShapeError(f"target has shape {target.shape}, the output has {values.shape}")
    shares = _shares(weight, values.shape, 1 if name == "softmax" else values.shape[IMAGES])
    losses, gradient = _LOSSES[name](values, np.where(shares != 0, target, 0.0))
    return float((losses * shares).sum()), gradient * shares


def _shares(weight: Array | None, shape: tuple[int, ...], images: int) -> Array:
    """What part of the mean each loss is; there are losses for so many images."""
    one = (shape[0], 1, *shape[2:])
    if weight is None:
        weight = np.ones(one)
    if weight.shape not in (shape, one):
        raise ShapeError(
            f"weight has shape {weight.shape}; {shape} or {one} fits (batch, image, z, y, x)"
        )
    full = np.broadcast_to(weight[:, :images], (shape[0], images, *shape[2:]))
    total = full.sum()
    return np.zeros(full.shape) if total == 0 else full / total


def _square(y: Array, t: Array) -> tuple[Array, Array]:
    return (y - t) ** 2, 2.0 * (y - t)


def _binomial(y: Array, t: Array) -> tuple[Array, Array]:
    return np.maximum(y, 0.0) - y * t + np.log1p(np.exp(-np.abs(y))), expit(y) - t


def _softmax(y: Array, t: Array) -> tuple[Array, Array]:
    logs = y - np.asarray(logsumexp(y, axis=IMAGES, keepdims=True))
    losses: Array = -(t * logs).sum(axis=IMAGES, keepdims=True)
    return losses, softmax(y) * t.sum(axis=IMAGES, keepdims=True) - t


_LOSSES = {"square": _square, "binomial_cross_entropy": _binomial, "softmax": _softmax}
