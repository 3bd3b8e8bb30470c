"""Losses of overlap: sums, slopes and gradients, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, Planar, normal
from znnpy_kernels.layers import dice
from znnpy_kernels.layers.dice import overlap_total
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

SIZES = [(1, 5), (3, LANES + 4), (LANES + 1, 7), (33, 3)]
NUMBERS = {"gamma": 0.0, "ones": 0.0, "zeros": 0.0, "smoothing": 0.0, "entropy": 0.5}
NORMALISER = np.array([0.125, 0.25], np.float32)
SMOOTH, OVERLAP = 0.7, 1.5


def exact(name: str, x: Any, t: Any, w: Any, classes: Any) -> tuple[Any, Any]:
    """Loss and error, and the gradient, of one sample."""
    axes = (1, 2, 3)
    if name == "overlap":
        p, wrong = 1 / (1 + np.exp(-x)), (x > 0) != (t > 0.5)
        entropy, slope = np.logaddexp(0, x) - x * t, p - t
    else:
        p = np.exp(x - x.max(0))
        p /= p.sum(0)
        wrong = (x.argmax(0) != t.argmax(0))[None]
        entropy, slope = -(t * np.log(p)).sum(0)[None], p * t.sum(0) - t
    both = 2 * (w * p * t).sum(axes, keepdims=True) + SMOOTH
    each = (w * (p + t)).sum(axes, keepdims=True) + SMOOTH
    shares = (classes / classes.sum())[:, None, None, None]
    once = w[: len(wrong)]
    loss = 0.5 * NORMALISER[0] * (once * entropy).sum() + OVERLAP * (
        1 - (shares * both / each).sum()
    )
    by_p = OVERLAP * shares * w * (both / each - 2 * t) / each
    inner = p * (1 - p) * by_p if name == "overlap" else p * (by_p - (p * by_p).sum(0))
    results = [loss, NORMALISER[1] * (once * wrong).sum()]
    return results, inner + 0.5 * NORMALISER[0] * w * slope


@pytest.mark.parametrize(("channels", "width"), SIZES)
@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", ["overlap", "overlap_softmax"])
def test_loss_and_gradient(name: str, lanes: int, channels: int, width: int) -> None:
    random = np.random.default_rng(2)
    x = normal(1, channels, 2, 3, width, scale=3.0)
    t = random.random(x.shape).astype(np.float32)
    t = t / t.sum(0) if name != "overlap" else t
    w = random.random(x.shape).astype(np.float32) * (random.random(x.shape) > 0.2)
    w, classes = w.astype(np.float32), np.linspace(0, 1, channels + 1, dtype=np.float32)[1:]
    output = Blocked(channels, x.shape[1:], lanes=lanes)
    whole = Blocked.of(x).view if lanes > 1 else x[..., None]
    output.view[...] = whole
    gradient = Blocked(channels, x.shape[1:], gap=3, lanes=lanes)
    target, weight = Planar(np.where(w > 0, t, np.nan)), Planar(w)
    if name != "overlap":  # the first image's weights are the voxels'
        w = np.broadcast_to(w[:1], w.shape)
        target = Planar(np.where(w > 0, t, np.nan))
    entries = 2 + 3 * channels
    partials, slopes, found = (
        np.full((2, entries), 7.0),
        np.zeros(2 * channels, np.float32),
        np.zeros(2),
    )

    def words(z: int) -> dict[str, Any]:
        return {
            **output.whole("output", z), **gradient.whole("gradient", z), **target.whole("target", z),
            **weight.whole("weight", z), **NUMBERS, "normaliser": NORMALISER,
            "partial": address(partials) + 8 * entries * z, "channels": channels, "planes": 1, "rows": 3,
            "width": width, "lanes": lanes, "places": 0, "bias_gradient": 0, "bias_block": 0, "relu_slope": 1.0,
            "classes": 0, "slopes": slopes,
        }  # fmt: skip

    sums, back = getattr(dice, f"{name}_sums"), getattr(dice, f"{name}_gradient")
    for z in range(2):
        sums.run(**words(z))
    overlap_total.run(
        partials=partials, count=2, batch=1, channels=channels, pooled=0,
        classes=classes, normaliser=NORMALISER, slopes=slopes,
        target=found, smooth=SMOOTH, entropy=0.5, overlap=OVERLAP,
    )  # fmt: skip
    for z in range(2):
        back.run(**words(z))
    known = np.where(w > 0, t, 0)
    wanted, slope = exact(name, *(a.astype(np.float64) for a in (x, known, w, classes)))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(gradient.planar(), slope, rtol=1e-4, atol=1e-6)
    assert gradient.gaps_intact()
    assert not gradient.pad().any()


@pytest.mark.parametrize("pooled", [0, 1])
def test_samples_are_pooled_or_not(pooled: int) -> None:
    """Two samples of two parts each, of one image."""
    sums = np.array([[2.0, 3.0, 4.0], [1.0, 2.0, 5.0], [3.0, 6.0, 3.0], [1.0, 1.0, 1.0]])
    partials = np.concatenate([np.ones((4, 2)), sums], 1)
    slopes, found, classes = np.zeros(4, np.float32), np.zeros(2), np.ones(1, np.float32)
    overlap_total.run(
        partials=partials, count=2, batch=2, channels=1, pooled=pooled,
        classes=classes, normaliser=NORMALISER, slopes=slopes,
        target=found, smooth=1.0, entropy=0.0, overlap=1.0,
    )  # fmt: skip
    overlaps = [(6 + 1) / (14 + 1), (8 + 1) / (11 + 1)] if not pooled else [(14 + 1) / (25 + 1)]
    np.testing.assert_allclose(found, [1 - np.mean(overlaps), 4 * 0.25])
    each = [15, 12] if not pooled else [26, 26]
    share = 1 / len(overlaps)
    np.testing.assert_allclose(slopes[::2], [-2 * share / n for n in each], rtol=1e-6)
    wanted = [share * o / n for o, n in zip(overlaps * (1 + pooled), each, strict=True)]
    np.testing.assert_allclose(slopes[1::2], wanted, rtol=1e-6)
