"""Colours of objects by number, easy to tell apart (OKLCH), and overlays with outlines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Colours = NDArray[np.float32]
# Neighbouring numbers lie 137.5 degrees apart on the circle of hues, as leaves on a stem.
GOLDEN = 0.38196601125
# Three lightnesses in turn; lighter colours have less chroma, as screens can show no more.
_LIGHTNESS = np.array([0.58, 0.72, 0.86])
_CHROMA = np.array([0.19, 0.16, 0.12])


def object_colours(ids: Array) -> Colours:
    """Return colours (..., 3) from 0 to 1 for object numbers of any shape; 0 is black.

    The same number always has the same colour, so objects keep theirs from slice to slice.
    """
    values, index = np.unique(ids, return_inverse=True)
    numbers = _scattered(values)
    hue = (numbers * GOLDEN) % 1.0
    step = (numbers % 3).astype(int)
    colours = oklch(_LIGHTNESS[step], _CHROMA[step], hue)
    colours[values == 0] = 0
    return colours[index.reshape(ids.shape)]


def oklch(lightness: Array, chroma: Array, hue: Array) -> Colours:
    """Return sRGB (..., 3) of OKLCH (Ottosson 2020); hue in turns. Colours that a screen cannot show are clipped."""
    angle = 2 * np.pi * np.asarray(hue)
    a, b = chroma * np.cos(angle), chroma * np.sin(angle)
    cones = np.stack(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.2914855480 * b,
        ],
        axis=-1,
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(cones**3 @ to_rgb.T, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(gamma, np.float32)


def are_shares(channels: Array) -> bool:
    """Return whether two or more channels (C, y, x) are shares of one whole, as probabilities of classes are.

    They are 0 to 1 and sum up to 1, or to 0 where nothing is known, but for the rounding of bytes.
    """
    if len(channels) < 2 or not np.isfinite(channels).all():
        return False
    whole, near = channels.sum(axis=0), 0.5 * len(channels) / 255 + 1e-4
    off = np.minimum(np.abs(whole - 1), np.abs(whole))
    return bool(channels.min(initial=0) >= -near and off.max(initial=0) <= near and whole.any())


def share_colours(shares: Array, first: int = 0) -> Colours:
    """Return (y, x, 3): the colours of classes, channels (C, y, x) from number `first` on, mixed by their shares."""
    colours = object_colours(np.arange(first, first + len(shares)))
    return np.tensordot(shares.astype(np.float32), colours, axes=(0, 0))


def outlines(ids: Array, across: tuple[bool, bool] = (True, True)) -> NDArray[np.bool_]:
    """Return the pixels of a slice (y, x) of object numbers whose upper or left neighbour is another object.

    `across` chooses neighbours: of pixels that are long one way, the far ones make thick lines.
    """
    edges = np.zeros(ids.shape, np.bool_)
    if across[0]:
        edges[1:] |= ids[1:] != ids[:-1]
    if across[1]:
        edges[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    return np.asarray(edges & (ids != 0))


def overlay(grey: Array, ids: Array, across: tuple[bool, bool] = (True, True)) -> Colours:
    """Return a grey slice (y, x), 0 to 1, half covered by the colours of objects; outlines in full colour."""
    base = np.repeat(np.asarray(grey, np.float32)[..., None], 3, axis=-1)
    weight = np.where(ids != 0, np.float32(0.5), np.float32(0))
    weight[outlines(ids, across)] = 1
    mixed: Colours = base * (1 - weight[..., None]) + object_colours(ids) * weight[..., None]
    return mixed


def _scattered(values: Array) -> Array:
    """Return whole numbers below 2**24, small ids unchanged, large ones spread over all."""
    whole = values.astype(np.int64).astype(np.uint64)
    return ((whole ^ (whole >> np.uint64(24))) & np.uint64(0xFFFFFF)).astype(np.float64)
