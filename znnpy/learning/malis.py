"""The loss MALIS: affinities weighted by the pairs of voxels they decide on (Briggman 2009, Funke et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from znnpy.fields import Offsets, Probability
from znnpy.learning.loss import Doubles, Loss, LossKernel, LossKeys, Part, samples
from znnpy.learning.readings import CHANNELS, LOGITS, Reading


class Malis(LossKeys):
    """The mean over pairs of voxels of (p - t)^2, p the affinity of the edge that decides on the pair.

    Pairs of one object are decided on by edges within it, other pairs by all edges (constrained MALIS).
    """

    kind: Literal["malis"] = Field(description="Loss.")
    offsets: Offsets = Field(
        default=((-1, 0, 0), (0, -1, 0), (0, 0, -1)),
        description="Neighbours that the channels join voxels with, each z y x, as data.target has them.",
    )
    positive: Probability = Field(
        default=0.5,
        description="Share of pairs of one object in the loss; the rest is of other pairs.",
    )


def shares(keys: Malis, values: Doubles, target: Doubles, weight: Doubles) -> Doubles:
    """Return the share of a sample's pairs that each edge decides on, in the shape of the values."""
    shape = values.shape[CHANNELS:]
    each = zip(*(a.reshape(-1, *shape) for a in (values, target, weight)), strict=True)
    return np.array([_shares(keys, *sample) for sample in each]).reshape(values.shape)


def _shares(keys: Malis, values: Doubles, target: Doubles, weight: Doubles) -> Doubles:
    """Of one sample (channel, z, y, x); the kernel takes edges in the order of their values."""
    from znnpy_kernels.layers.malis import malis_shares  # with numba, which configs need not load

    channels, *voxels = values.shape
    known = (weight != 0) & np.stack([_inside(offset, voxels) for offset in keys.offsets])
    order = np.argsort(-values.ravel(), kind="stable")
    order = order[known.ravel()[order]].astype(np.int32)
    truth = np.ascontiguousarray(target, np.float32)
    found, given = np.empty(values.shape, np.float32), np.zeros(2, np.int64)
    numbers = np.array([len(order), truth.ctypes.data, 0], np.int64)
    offsets = np.array(keys.offsets, np.int64)
    scratch = np.empty(3 * values[0].size + 2, np.int32)
    malis_shares.call(
        order=order.ctypes.data, count=numbers.ctypes.data, target=0, places=numbers[1:].ctypes.data,
        channels=channels, planes=voxels[0], rows=voxels[1], width=voxels[2],
        offsets=offsets.ctypes.data, shares=found.ctypes.data, scratch=scratch.ctypes.data,
        positive=keys.positive, given=given.ctypes.data, base=0,
    )  # fmt: skip
    return found.astype(np.float64)


def _inside(offset: Sequence[int], shape: Sequence[int]) -> Any:
    """Which voxels have a neighbour at an offset."""
    inside = np.zeros(shape, np.bool_)
    inside[
        tuple(
            slice(max(0, -step), max(0, size - max(0, step)))
            for step, size in zip(offset, shape, strict=True)
        )
    ] = True
    return inside


def _parts(
    keys: Malis, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    p = LOGITS.probabilities(y)
    short = p - (t > 0.5)
    total = float((weight * short**2).sum())
    return [Part(total, samples(y), lambda: 2 * weight * short * p * (1 - p))]


def _refused(keys: Malis, reading: Reading, channels: int) -> str:
    count = len(keys.offsets)
    return "" if channels == count else f"has {count} offsets"


MALIS = Loss(
    name="malis",
    keys=Malis,
    readings={
        LOGITS: LossKernel(
            gradient="znnpy_kernels.layers.losses:malis_loss", biases=True, pairs=True
        )
    },
    parts=_parts,
    reweighed=shares,
    by_sample=True,
    neighbours=lambda keys: keys.offsets,
    numbers=lambda keys: {"positive": keys.positive},
    table=lambda keys: [step for offset in keys.offsets for step in offset],
    refused=_refused,
    example="{kind: malis, offsets: [[-1, 0, 0], [0, -1, 0], [0, 0, -1]], positive: 0.5}  # of affinities",
)
