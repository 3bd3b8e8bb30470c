"""Losses of overlap: soft Dice over the voxels of each channel, alone or with a cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from znnpy.fields import Bool, Factor, Positive
from znnpy.learning.loss import Doubles, Loss, LossKernel, LossKeys, Part
from znnpy.learning.readings import CHANNELS, CLASSES, LOGITS, Reading
from znnpy.learning.voxelwise import binomial, cross_entropy

VOXELS = (-3, -2, -1)


class OverlapKeys(LossKeys):
    """1 - (2 I + smooth) / (P + T + smooth), I, P and T the sums of p t, p and t, a mean over channels."""

    smooth: Positive = Field(default=1e-5, description="Added to both sides of each fraction.")
    batch: Bool = Field(
        default=False,
        description="One fraction over all patches of a batch, of each microbatch where there are several, not one for "
        "each patch.",
    )
    include_background: Bool = Field(default=True, description="Whether the first channel counts.")

    @property
    def factors(self) -> tuple[float, float]:
        """Of the cross-entropy and of what lacks in overlap."""
        return 0.0, 1.0


class Dice(OverlapKeys):
    """Soft Dice: 1 - (2 I + smooth) / (P + T + smooth), I, P, T the sums of p t, p and t."""

    kind: Literal["dice"] = Field(description="Loss.")


class BceDice(OverlapKeys):
    """Weighted sum of binomial cross-entropy and soft Dice of the logistic."""

    kind: Literal["bce_dice"] = Field(description="Loss.")
    bce: Factor = Field(default=1.0, description="Factor of the binomial cross-entropy.")
    dice: Annotated[Positive, Field(le=1e9)] = Field(
        default=1.0, description="Factor of the Dice loss."
    )

    @property
    def factors(self) -> tuple[float, float]:
        """Of the cross-entropy and of what lacks in overlap."""
        return self.bce, self.dice


class CeDice(OverlapKeys):
    """Weighted sum of cross-entropy and soft Dice of the softmax."""

    kind: Literal["ce_dice"] = Field(description="Loss.")
    ce: Factor = Field(default=1.0, description="Factor of the cross-entropy.")
    dice: Annotated[Positive, Field(le=1e9)] = Field(
        default=1.0, description="Factor of the Dice loss."
    )

    @property
    def factors(self) -> tuple[float, float]:
        """Of the cross-entropy and of what lacks in overlap."""
        return self.ce, self.dice


def _numbers(keys: OverlapKeys) -> Mapping[str, float]:
    entropy, overlap = keys.factors
    return {"entropy": entropy, "overlap": overlap, "smooth": keys.smooth, "pooled": keys.batch}


def _class_weights(keys: OverlapKeys, reading: Reading, channels: int) -> Sequence[float]:
    return [float(keys.include_background), *[1.0] * (channels - 1)]


def _parts(
    keys: OverlapKeys, reading: Reading, y: Doubles, t: Doubles, weight: Doubles
) -> Sequence[Part]:
    numbers = _numbers(keys)
    parts = [_scaled(_overlap(keys, reading, y, t, weight), numbers["overlap"])]
    if numbers["entropy"]:
        entropy = cross_entropy if reading.whole_voxels else binomial
        parts.append(_scaled(entropy(y, t, weight), numbers["entropy"]))
    return parts


def _scaled(part: Part, factor: float) -> Part:
    return Part(factor * part.total, part.weight, lambda: factor * part.gradient())


def _overlap(keys: OverlapKeys, reading: Reading, y: Doubles, t: Doubles, weight: Doubles) -> Part:
    """The sum over samples, one if the batch is pooled, of what lacks in overlap."""
    p = reading.probabilities(y)
    axes = (*range(y.ndim + CHANNELS), *VOXELS) if keys.batch else VOXELS
    shares = np.array(_class_weights(keys, reading, y.shape[CHANNELS]))[:, None, None, None]
    shares = shares / shares.sum()
    both = 2 * (weight * p * t).sum(axis=axes, keepdims=True) + keys.smooth
    each = (weight * (p + t)).sum(axis=axes, keepdims=True) + keys.smooth
    lost = shares * (1 - both / each)
    slope = lambda: weight * shares * (both / each - 2 * t) / each  # noqa: E731
    return Part(
        float(lost.sum()), float(lost.size // lost.shape[CHANNELS]), _through(reading, p, slope)
    )


def _through(reading: Reading, p: Doubles, slope: Callable[[], Doubles]) -> Callable[[], Doubles]:
    """The gradient by logits, from that by their probabilities."""

    def gradient() -> Doubles:
        by_p = slope()
        if reading == LOGITS:
            return np.asarray(by_p * p * (1 - p))
        return np.asarray(p * (by_p - (p * by_p).sum(axis=CHANNELS, keepdims=True)))

    return gradient


def _refused(keys: OverlapKeys, reading: Reading, channels: int) -> str:
    alone = channels == 1 and not keys.include_background
    return "leaves the first channel out (include_background: false)" if alone else ""


_LOGITS = LossKernel(
    sums="znnpy_kernels.layers.dice:overlap_sums",
    gradient="znnpy_kernels.layers.dice:overlap_gradient",
)
_CLASSES = LossKernel(
    sums="znnpy_kernels.layers.dice:overlap_softmax_sums",
    gradient="znnpy_kernels.layers.dice:overlap_softmax_gradient",
)


def _entry(
    keys: type[OverlapKeys],
    name: str,
    readings: Mapping[Reading, LossKernel],
    example: str,
    aliases: tuple[str, ...] = (),
) -> Loss:
    return Loss(
        name=name,
        aliases=aliases,
        keys=keys,
        readings=readings,
        parts=_parts,
        numbers=_numbers,
        class_weights=_class_weights,
        refused=_refused,
        example=example,
    )


DICE = _entry(
    Dice,
    "dice",
    {LOGITS: _LOGITS, CLASSES: _CLASSES},
    "{kind: dice, smooth: 1e-5, batch: false, include_background: true}  # outputs as for focal",
)
BCE_DICE = _entry(
    BceDice,
    "bce_dice",
    {LOGITS: _LOGITS},
    "{kind: bce_dice, bce: 1, dice: 1}",
    aliases=("dice_bce",),
)
CE_DICE = _entry(
    CeDice,
    "ce_dice",
    {CLASSES: _CLASSES},
    "{kind: ce_dice, ce: 1, dice: 1}",
    aliases=("dice_ce",),
)
