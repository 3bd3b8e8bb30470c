"""Changes of an image's values, float32 (channel, z, y, x), with numbers that are given: contrast, gamma, blur ...

A number is one for the whole image, or an array (z,) of one for each section, which is changed as an image of its own.
Images are contiguous, and changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.coarsening import coarser_image, coarser_room
from znnpy_kernels.data.levels import (
    BRIGHTNESS,
    CONTRAST,
    GAMMA,
    NUMBERS,
    add_noise,
    changed_levels,
)
from znnpy_kernels.data.smoothing import blur_room, blurred_image, radius_of

from znnpy.data.sampling.scratch import at, scratch

Float32 = NDArray[np.float32]
Doubles = NDArray[np.float64]
Number = float | Doubles
"""Of a whole image, or of each section."""
TINY = 0.02  # sigma of a Gaussian whose neighbours weigh nothing


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
    from scipy import special  # a third of a second to import, which most runs do without

    found = special.ndtri((np.arange(NUMBERS) + 0.5) / NUMBERS)
    scaled: Float32 = (found / found.std()).astype(np.float32)
    return scaled


def _leveled(image: Float32, kind: int, number: Number) -> Float32:
    numbers = np.atleast_1d(np.asarray(number, np.float64))
    blocks = image.shape[0] * (1 if numbers.size == 1 else image.shape[1])
    changed_levels(at(image), blocks, image.size // blocks, kind, at(numbers), numbers.size)
    return image


def blurred(image: Float32, sigmas: tuple[Number, Number, Number]) -> Float32:
    """Blur by Gaussians, sigmas z y x in voxels, where the border goes on beyond it; returns the image."""
    given = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(it)) for it in sigmas)))
    wide = np.ascontiguousarray(given, np.float64)
    first = np.exp(-0.5 / np.maximum(wide, TINY) ** 2)
    radius = radius_of(float(wide.max()))
    room = scratch(blur_room(image.shape[1], image.shape[2], image.shape[3], radius))
    for channel in image:
        blurred_image(at(channel), *channel.shape, at(wide), at(first), wide.shape[1], radius, room)
    return image


def coarser(image: Float32, factors: tuple[Number, Number, Number]) -> Float32:
    """Make voxels larger by factors z y x, at least 1: nearest ones are kept, cubics between; returns the image."""
    _, depth, height, width = image.shape
    alike = not any(isinstance(factor, np.ndarray) for factor in factors)
    # Sections with numbers of their own all stay.
    deep = _kept(depth, max(1, round(depth / float(factors[0]))) if alike else depth)
    rows, columns = (
        [
            _kept(n, max(1, round(n / by)))
            for by in np.broadcast_to(factor, 1 if alike else depth).tolist()
        ]
        for n, factor in ((height, factors[1]), (width, factors[2]))
    )
    facts = np.array(
        [
            (y.kept.size, x.kept.size, y.at[0], x.at[0], y.at[1], x.at[2])
            for y, x in zip(rows, columns, strict=True)
        ],
        np.int64,
    )
    sections = deep.kept.size if alike else 0
    room = scratch(coarser_room(sections, height, width))
    for channel in image:
        coarser_image(
            at(channel), depth, height, width, at(facts), alike, sections, deep.at[0], deep.at[1], room
        )  # fmt: skip
    return image


def _zoomed(before: int, after: int, order: int) -> NDArray[np.float64]:
    """Return the matrix (after, before) by which SciPy interpolates a line of voxels to another number of them."""
    from scipy import ndimage  # as `special`

    unit = np.eye(before, dtype=np.float64)
    lines = [
        ndimage.zoom(it, after / before, order=order, mode="nearest", grid_mode=True) for it in unit
    ]
    return np.stack(lines, axis=1)


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
        matrix = np.ascontiguousarray(_zoomed(after, before, 3), np.float32)
    transposed = np.ascontiguousarray(matrix.T)
    return _Kept(
        kept, matrix, transposed, (kept.ctypes.data, matrix.ctypes.data, transposed.ctypes.data)
    )


def _nearest(before: int, after: int) -> NDArray[np.int64]:
    """Return the voxels that are kept of a line."""
    kept: NDArray[np.int64] = _zoomed(before, after, 0).argmax(axis=1)
    return kept
