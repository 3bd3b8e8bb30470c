"""Changes of an image's values, float32 (channel, z, y, x), with numbers that are given: contrast, gamma, blur ...

A number is one for the whole image, or an array (z,) of one for each section, which is changed as an image of its own.
Images are contiguous; contrast, brightness, gamma and noise are changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special
from znnpy_kernels.data.coarsening import coarser_sections
from znnpy_kernels.data.levels import (
    BRIGHTNESS,
    CONTRAST,
    GAMMA,
    NUMBERS,
    add_noise,
    changed_levels,
)
from znnpy_kernels.data.smoothing import smoothed_lines

from znnpy.data.sampling.scratch import at
from znnpy.data.volume import Triple64

Float32 = NDArray[np.float32]
Doubles = NDArray[np.float64]
Number = float | Doubles
"""Of a whole image, or of each section."""
CUT = 4  # sigmas from which on a Gaussian is left out


def contrasted(image: Float32, factor: Number) -> Float32:
    """Multiply distances from each channel's mean; returns the image."""
    return _leveled(image, CONTRAST, factor)


def brightened(image: Float32, shift: Number) -> Float32:
    """Add a number; returns the image."""
    return _leveled(image, BRIGHTNESS, shift)


def bent(image: Float32, power: Number) -> Float32:
    """Raise each channel, scaled to 0 to 1 over its range, to a power, and scale it back; returns the image."""
    return _leveled(image, GAMMA, power)


def noisy(image: Float32, deviation: float, seeds: NDArray[np.int64]) -> Float32:
    """Add Gaussian noise, of as many numbers as 12 bits have, drawn by three seeds: within 3.7 deviations."""
    add_noise(at(image), image.size, at(_normal()), at(seeds), deviation)
    return image


@lru_cache(maxsize=1)
def _normal() -> Float32:
    """Return the middles of equal shares of a normal distribution, scaled to a deviation of 1."""
    found = special.ndtri((np.arange(NUMBERS) + 0.5) / NUMBERS)
    scaled: Float32 = (found / found.std()).astype(np.float32)
    return scaled


def _leveled(image: Float32, kind: int, number: Number) -> Float32:
    numbers = np.atleast_1d(np.asarray(number, np.float64))
    blocks = image.shape[0] * (1 if numbers.size == 1 else image.shape[1])
    changed_levels(at(image), blocks, image.size // blocks, kind, at(numbers), numbers.size)
    return image


def blurred(image: Float32, sigmas: tuple[Number, Number, Number]) -> Float32:
    """Return the image blurred by Gaussians, sigmas z y x in voxels; the border goes on beyond it."""
    source = np.ascontiguousarray(image)
    channels, depth, height, width = source.shape
    for axis, sigma in enumerate(sigmas):
        if not np.any(sigma):
            continue
        weights = _gaussians(np.atleast_1d(np.asarray(sigma, np.float64)))
        blocks, count, apart = (
            (channels, depth, height * width),
            (channels * depth, height, width),
            (channels * depth * height, width, 1),
        )[axis]
        weights = np.ascontiguousarray(np.tile(weights, (channels, 1)))
        found = np.empty_like(source)
        smoothed_lines(
            found.ctypes.data, source.ctypes.data, blocks, count, apart, weights.ctypes.data,
            weights.shape[1] // 2, blocks // len(weights),
        )  # fmt: skip
        source = found
    return source


def _gaussians(sigmas: Doubles) -> Float32:
    """Return the weights of Gaussians, float32 (number, 2 radius + 1), 0 beyond the own radius of each."""
    own = (CUT * sigmas + 0.5).astype(np.int64)[:, None]
    places = np.arange(-own.max(), own.max() + 1)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        found = np.exp(-0.5 * (places / sigmas[:, None]) ** 2)
    found[(abs(places) > own) | ~np.isfinite(found)] = 0
    found[:, own.max()] = 1
    weights: Float32 = (found / found.sum(1, keepdims=True)).astype(np.float32)
    return weights


def coarser(image: Float32, factors: tuple[Number, Number, Number]) -> Float32:
    """Return the image with voxels larger by factors z y x, at least 1: nearest ones are kept, cubics between."""
    if not any(isinstance(factor, np.ndarray) for factor in factors):
        return _coarser(image, factors)  # type: ignore[arg-type]
    source = np.ascontiguousarray(image)
    changed = np.empty_like(source)
    depth, height, width = source.shape[1:]
    rows, columns = (
        [_kept(n, max(1, round(n / by))) for by in np.broadcast_to(factor, depth).tolist()]
        for n, factor in zip((height, width), factors[1:], strict=True)
    )
    words = np.array(
        [
            (y.kept.size, x.kept.size, y.at[0], x.at[0], y.at[1], x.at[2])
            for y, x in zip(rows, columns, strict=True)
        ],
        np.int64,
    )
    room = np.empty((height, width), np.float32)
    for channel, found in zip(source, changed, strict=True):
        coarser_sections(
            found.ctypes.data, channel.ctypes.data, depth, height, width, words.ctypes.data,
            room.ctypes.data,
        )  # fmt: skip
    return changed


def _coarser(image: Float32, factors: Triple64) -> Float32:
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


@dataclass(frozen=True)
class _Kept:
    """Voxels of a line that are kept, and the matrix (n, kept) that interpolates between them, and its transpose.

    `at`: the addresses of all three.
    """

    kept: NDArray[np.int64]
    matrix: Float32
    transposed: Float32
    at: tuple[int, int, int]


@lru_cache(maxsize=256)
def _kept(before: int, after: int) -> _Kept:
    """Return which voxels of a line of `before` are kept, `after` of them."""
    kept = _nearest(before, after)
    matrix = np.eye(before, dtype=np.float32)
    if after != before:
        matrix = np.ascontiguousarray(_interpolation(after, before))
    transposed = np.ascontiguousarray(matrix.T)
    return _Kept(
        kept, matrix, transposed, (kept.ctypes.data, matrix.ctypes.data, transposed.ctypes.data)
    )


@lru_cache(maxsize=256)
def _nearest(before: int, after: int) -> NDArray[np.int64]:
    """Return the voxels that are kept of a line."""
    kept: NDArray[np.int64] = _zoomed(before, after, 0).argmax(axis=1)
    return kept
