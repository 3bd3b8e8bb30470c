"""Normalisation in float64: the config key `norm` and what it does to nodes; weight standardisation of filters.

Values are (batch, channel, z, y, x). Statistics of nodes (batch, instance, group, layer) are (batch, group, 1, 1), for
values seen as (batch, group, channel of the group, voxel); their batch is 1 where they are over the whole batch.
Weight standardisation (Qiao et al. 2019): filters (out, in, z, y, x) are used with mean 0 and variance 1, over the
filters of each output channel.

A new kind of norm touches: `NormKind` and `Norm` in `layers/types.py` (its groups of channels in `parts`, `running`);
here its keys (`NormSection`, `_OWN`) and formulas; its names elsewhere in `aliases.py`; how many values it takes
statistics from in `geometry/shape_inference.py`; whether values depend on the patch in `network/patch_dependence.py`;
kinds over channels in `channel_statistics.py`;
its tasks in `engine/layers/normalization.py` or `voxel_normalization.py` (samples and units), and their kernels in
`znnpy_kernels/layers/normalization_statistics.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_serializer, model_validator

from znnpy.fields import Bool, Channels, Positive, Probability, Strict, shorthand, wrong
from znnpy.layers.channel_statistics import unit, unit_gradient
from znnpy.layers.types import Array, Held, Norm, NormKind

_OWN = {"groups": "group", "momentum": "batch"}  # keys that one kind alone has


class NormSection(Strict):
    """Normalisation of a sum: minus its mean, by its deviation; in short its kind (`batch`)."""

    kind: NormKind = Field(
        description="Whose statistics: batch (each channel over the batch; prediction uses running ones), "
        "instance (each channel of each sample), group (neighbouring channels), layer (all channels); channel (each "
        "voxel over its channels), length (the same, divided by the root of the sum of squares), response (global "
        "response normalisation: x + scale * x * N + shift, N a channel's norm by the mean of all)."
    )
    groups: Channels = Field(
        default=8, description="Groups of channels, of kind group; they divide."
    )
    epsilon: Positive = Field(
        default=1e-5,
        description="What is added to the variance; of response to the mean norm; of length the least.",
    )
    momentum: Probability = Field(
        default=0.1, description="What running statistics take of each update, of kind batch."
    )
    affine: Bool = Field(default=True, description="Learn a scale and a shift for each channel.")

    @model_validator(mode="after")
    def _fits(self) -> NormSection:
        for key, kind in _OWN.items():
            if kind != self.kind and key in self.model_fields_set:
                raise wrong(f"only {kind} has this; this is {self.kind}", key)
        if self.kind == "response" and not self.affine:
            raise wrong("response without its scale changes nothing", "affine")
        return self

    @model_serializer
    def _used(self) -> dict[str, Any]:
        return _data(self.kind, self)


NormField = Annotated[
    Annotated[NormSection, shorthand("kind", str)] | None,
    Field(description="Normalise the sum, bias included, before the function."),
]
BiasKey = Annotated[
    Bool | None,
    Field(description="Add one learned bias per channel (default: true without a norm)."),
]


def norm_of(section: NormSection | None) -> Norm | None:
    """Return the normalisation that a section describes; None without a section."""
    if section is None:
        return None
    groups = section.groups if section.kind == "group" else 1
    return Norm(section.kind, groups, section.epsilon, section.momentum, section.affine)


def norm_data(norm: Norm) -> dict[str, Any]:
    """Return the keys of a section that describes this normalisation."""
    return _data(norm.kind, norm)


def biased(bias: bool | None, norm: NormSection | None) -> bool:
    """Return whether a node has a bias: as written, else if no norm follows, whose shift does the same."""
    return norm is None if bias is None else bias


def _data(kind: NormKind, numbers: Norm | NormSection) -> dict[str, Any]:
    keys = ("groups", "epsilon", "momentum", "affine")
    return {"kind": kind} | {k: getattr(numbers, k) for k in keys if _OWN.get(k, kind) == kind}


def held(norm: Norm) -> dict[str, Held]:
    """Return the arrays that a normalisation keeps, by name: learned scale and shift, running statistics."""
    affine = {"scale": Held(0.0 if norm.adds else 1.0, True), "shift": Held(0.0, True)}
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


def by_channels(norm: Norm) -> bool:
    """Return whether statistics are over channels, which no `Statistics` hold (`channel_statistics.py`)."""
    return norm.of_voxels or norm.adds


def normalised(x: Array, norm: Norm, by: Statistics) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon), before scale and shift."""
    if by_channels(norm):
        return unit(x, norm)
    inverse = 1.0 / np.sqrt(by.variance + norm.epsilon)
    found: Array = ((_grouped(x, norm) - by.mean) * inverse).reshape(x.shape)
    return found


def normalised_gradient(x: Array, gradient: Array, norm: Norm) -> Array:
    """Return the gradient by x from that by `normalised`, for statistics of x itself."""
    if by_channels(norm):
        return unit_gradient(x, gradient, norm)
    by, axes = statistics(x, norm), _axes(norm)
    u, g = _grouped(normalised(x, norm, by), norm), _grouped(gradient, norm)
    rest = g - g.mean(axes, keepdims=True) - u * (g * u).mean(axes, keepdims=True)
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


FILTER_EPSILON = 1e-5
"""Added to the variance, so that equal filters divide by no 0."""

_OVER = (1, 2, 3, 4)


def standardized(filters: Array) -> Array:
    """Return the filters that a convolution uses in place of the learned ones."""
    return (filters - _mean(filters)) * _inverse(filters)


def standardized_gradient(filters: Array, gradient: Array) -> Array:
    """Return the gradient by the learned filters from that by `standardized`."""
    inverse, used = _inverse(filters), standardized(filters)
    return inverse * (gradient - _mean(gradient) - used * _mean(gradient * used))


def _mean(filters: Array) -> Array:
    found: Array = filters.mean(axis=_OVER, keepdims=True)
    return found


def _inverse(filters: Array) -> Array:
    return np.asarray(1 / np.sqrt(filters.var(axis=_OVER, keepdims=True) + FILTER_EPSILON))
