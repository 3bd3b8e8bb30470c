"""Normalisation by statistics over channels, in float64: of a voxel (`channel`, `length`), of whole maps (`response`).

Values are (batch, channel, z, y, x). `channel`: (x - mean) / sqrt(variance + epsilon) of the channels of each voxel (Ba
et al. 2016, as ConvNeXt has it). `length`: x by the root of the sum of its squares there, at least epsilon. `response`:
x times N, what a channel's norm over all voxels is of the mean of all channels' norms, epsilon added to that
(global response normalisation, Woo et al. 2023).
"""

from __future__ import annotations

import numpy as np

from znnpy.layers.types import Array, Norm

_SPACE = (2, 3, 4)


def unit(x: Array, norm: Norm) -> Array:
    """Return what scale and shift are applied to."""
    if norm.kind == "response":
        return x * _responses(x, norm)[1]
    away, inverse = _away(x, norm), _inverse(x, norm)
    return np.asarray(away * inverse)


def unit_gradient(x: Array, gradient: Array, norm: Norm) -> Array:
    """Return the gradient by x from that by `unit`."""
    if norm.kind == "response":
        return _response_gradient(x, gradient, norm)
    away, inverse = _away(x, norm), _inverse(x, norm)
    u = away * inverse
    if norm.kind == "channel":
        rest = (
            gradient - gradient.mean(1, keepdims=True) - u * (gradient * u).mean(1, keepdims=True)
        )
        return np.asarray(rest * inverse)
    # The shortest are divided by a constant.
    longer = _length(x) > norm.epsilon
    rest = gradient - np.where(longer, u * (gradient * u).sum(1, keepdims=True), 0.0)
    return np.asarray(rest * inverse)


def _away(x: Array, norm: Norm) -> Array:
    return x - x.mean(1, keepdims=True) if norm.kind == "channel" else x


def _inverse(x: Array, norm: Norm) -> Array:
    if norm.kind == "channel":
        return np.asarray(1 / np.sqrt(x.var(1, keepdims=True) + norm.epsilon))
    return np.asarray(1 / np.maximum(_length(x), norm.epsilon))


def _length(x: Array) -> Array:
    return np.asarray(np.sqrt((x**2).sum(1, keepdims=True)))


def _responses(x: Array, norm: Norm) -> tuple[Array, Array, Array]:
    """Return each channel's norm, by the mean of all, and what that divides by, (batch, channel or 1, 1, 1, 1)."""
    own = np.sqrt((x**2).sum(_SPACE, keepdims=True))
    below = own.mean(1, keepdims=True) + norm.epsilon
    return own, own / below, below


def _response_gradient(x: Array, gradient: Array, norm: Norm) -> Array:
    own, by, below = _responses(x, norm)
    product = (gradient * x).sum(_SPACE, keepdims=True)
    by_norm = product / below - (product * own).mean(1, keepdims=True) / below**2
    # Where all is 0 the norm has no gradient; as PyTorch, 0.
    share = np.divide(by_norm, own, out=np.zeros_like(own), where=own > 0)
    return np.asarray(gradient * by + share * x)
