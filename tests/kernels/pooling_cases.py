"""Max pooling in plain NumPy: what the kernels of `pooling` and `pooling_pairs` are held to."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Triple = tuple[int, int, int]
Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
BARE: Sides = ((0, 0), (0, 0), (0, 0))


def input_shape(outputs: Triple, window: Triple, stride: Triple, dilation: Triple) -> Triple:
    z, y, x = (
        (o - 1) * s + (w - 1) * d + 1
        for o, w, s, d in zip(outputs, window, stride, dilation, strict=True)
    )
    return z, y, x


def reference(x: Any, outputs: Triple, window: Triple, stride: Triple, dilation: Triple) -> Any:
    """Maxima and taps; the first maximum wins, the last NaN wins."""
    best = np.full((x.shape[0], *outputs), -np.inf)
    taps = np.zeros(best.shape, int)
    for number, tap in enumerate(itertools.product(*map(range, window))):
        value = x[(slice(None), *places(tap, outputs, stride, dilation))]
        take = (value > best) | np.isnan(value)
        best[take], taps[take] = value[take], number
    return best, taps


def places(tap: Any, outputs: Triple, stride: Triple, dilation: Triple) -> tuple[slice, ...]:
    return tuple(
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, o, s, d in zip(tap, outputs, stride, dilation, strict=True)
    )


def gathered(
    g: Any, taps: Any, shape: Triple, window: Triple, stride: Triple, dilation: Triple
) -> Any:
    total = np.zeros((g.shape[0], *shape), np.float32)
    for number, tap in enumerate(itertools.product(*map(range, window))):
        at = (slice(None), *places(tap, g.shape[1:], stride, dilation))
        total[at] += np.where(taps == number, g, np.float32(0))
    return total


def framed(x: Any, padding: Sides, value: float) -> Any:
    """Images with voxels of one value before and after them."""
    return np.pad(x, ((0, 0), *padding), constant_values=value)


def inner(x: Any, padding: Sides) -> Any:
    """Images without what is before and after them."""
    cuts = (slice(a, n - b) for (a, b), n in zip(padding, x.shape[1:], strict=True))
    return x[(slice(None), *cuts)]


def average(
    x: Any, outputs: Triple, window: Triple, stride: Triple, dilation: Triple, padding: Sides,
    *, counted: bool,
) -> Any:  # fmt: skip
    """Means of windows in float64; without `counted` of the voxels that are there."""
    return _sums(framed(x.astype(float), padding, 0), outputs, window, stride, dilation) / (
        _counts(x.shape, outputs, window, stride, dilation, padding, counted=counted)
    )


def average_back(
    g: Any, shape: Any, window: Triple, stride: Triple, dilation: Triple, padding: Sides,
    *, counted: bool,
) -> Any:  # fmt: skip
    """Gradient of `average` for images of one shape (image, z, y, x)."""
    outputs = g.shape[1:]
    shares = g / _counts(shape, outputs, window, stride, dilation, padding, counted=counted)
    total = framed(np.zeros(shape), padding, 0)
    for tap in itertools.product(*map(range, window)):
        total[(slice(None), *places(tap, outputs, stride, dilation))] += shares
    return inner(total, padding)


def _sums(x: Any, outputs: Triple, window: Triple, stride: Triple, dilation: Triple) -> Any:
    taps = itertools.product(*map(range, window))
    return sum(x[(slice(None), *places(tap, outputs, stride, dilation))] for tap in taps)


def _counts(
    shape: Any, outputs: Triple, window: Triple, stride: Triple, dilation: Triple, padding: Sides,
    *, counted: bool,
) -> Any:  # fmt: skip
    there = framed(np.ones(shape), padding, float(counted))
    return _sums(there, outputs, window, stride, dilation)
