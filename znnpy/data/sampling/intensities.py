"""Changes of an image's values, float32 (channel, z, y, x), with numbers that are given: contrast, gamma, blur ..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from znnpy.data.volume import Triple64

Float32 = NDArray[np.float32]
SPACE = (1, 2, 3)


def contrasted(image: Float32, factor: float) -> Float32:
    """Return the image with distances from each channel's mean multiplied."""
    mean = image.mean(SPACE, keepdims=True, dtype=np.float64).astype(np.float32)
    changed: Float32 = (image - mean) * np.float32(factor) + mean
    return changed


def brightened(image: Float32, shift: float) -> Float32:
    """Return the image with a number added."""
    changed: Float32 = image + np.float32(shift)
    return changed


def bent(image: Float32, power: float) -> Float32:
    """Return the image with each channel, scaled to 0 to 1 over its range, raised to a power and scaled back."""
    low = image.min(SPACE, keepdims=True)
    width = np.maximum(image.max(SPACE, keepdims=True) - low, np.float32(1e-7))
    changed: Float32 = ((image - low) / width) ** np.float32(power) * width + low
    return changed


def noisy(image: Float32, deviation: float, random: np.random.Generator) -> Float32:
    """Return the image with Gaussian noise."""
    noise = random.standard_normal(image.shape, np.float32)
    changed: Float32 = image + np.float32(deviation) * noise
    return changed


def blurred(image: Float32, sigmas: Triple64) -> Float32:
    """Return the image blurred by Gaussians, sigmas z y x in voxels; the border goes on beyond it."""
    changed = np.empty_like(image)
    for channel, found in zip(image, changed, strict=True):
        ndimage.gaussian_filter(channel, sigmas, output=found, mode="nearest")
    return changed


def coarser(image: Float32, factors: Triple64) -> Float32:
    """Return the image with voxels larger by factors z y x, at least 1: nearest ones are kept, cubics between."""
    shape = image.shape[1:]
    small = [max(1, round(n / factor)) for n, factor in zip(shape, factors, strict=True)]
    if small == list(shape):
        return image
    changed = np.empty_like(image)
    places = [_nearest(n, m) for n, m in zip(shape, small, strict=True)]
    for channel, found in zip(image, changed, strict=True):
        kept = channel
        for axis, index in enumerate(places):
            kept = kept.take(index, axis)
        found[...] = np.clip(_enlarged(kept, shape), kept.min(), kept.max())
    return changed


def _enlarged(image: Float32, shape: Sequence[int]) -> Float32:
    """Return an image interpolated to a shape by cubics, axis by axis, which splines allow."""
    for axis, n in enumerate(shape):
        before = image.shape[axis]
        if n != before:
            # Swapped with the first axis, and back. Not by BLAS, whose threads would take cores from the updates
            # that run meanwhile.
            across = image.swapaxes(0, axis)
            lines = np.ascontiguousarray(across).reshape(before, -1)
            made = np.einsum("nm,mk->nk", _interpolation(before, n), lines)
            image = made.reshape(n, *across.shape[1:]).swapaxes(0, axis)
    return image


def _zoomed(before: int, after: int, order: int) -> NDArray[np.float64]:
    """Return the matrix (after, before) by which SciPy interpolates a line of voxels to another number of them."""
    unit = np.eye(before, dtype=np.float64)
    lines = [
        ndimage.zoom(it, after / before, order=order, mode="nearest", grid_mode=True) for it in unit
    ]
    return np.stack(lines, axis=1)


@lru_cache(maxsize=256)
def _interpolation(before: int, after: int) -> Float32:
    return _zoomed(before, after, 3).astype(np.float32)


@lru_cache(maxsize=256)
def _nearest(before: int, after: int) -> NDArray[np.int64]:
    """Return the voxels that are kept of a line."""
    kept: NDArray[np.int64] = _zoomed(before, after, 0).argmax(axis=1)
    return kept
