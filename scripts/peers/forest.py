"""A random forest on ilastik's features (scikit-learn): the yardstick of nets for membranes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.ensemble import RandomForestClassifier

Floats = NDArray[np.float32]
SCALES = (0.7, 1.0, 1.6, 3.5, 5.0)
"""Deviations of the Gaussians, in voxels, as ilastik offers them."""
DRAWN = 30_000  # voxels that are learned from, as many as many brush strokes


def features(image: NDArray[Any]) -> Floats:
    """Smoothed values, edges and eigenvalues at each scale, (z, y, x, features), of an image (z, y, x)."""
    values = image.astype(np.float32) / 255
    found = [values]
    for scale in SCALES:
        smooth = ndimage.gaussian_filter(values, scale)
        found += [
            smooth,
            smooth - ndimage.gaussian_filter(values, 0.66 * scale),
            ndimage.gaussian_laplace(values, scale),
            ndimage.gaussian_gradient_magnitude(values, scale),
        ]
        slopes = [_derivative(values, scale, (axis,)) for axis in range(3)]
        found += _eigenvalues(
            lambda i, j, scale=scale, slopes=slopes: ndimage.gaussian_filter(
                slopes[i] * slopes[j], 0.5 * scale
            )
        )
        found += _eigenvalues(lambda i, j, scale=scale: _derivative(values, scale, (i, j)))
    return np.stack(found, axis=-1)


def _derivative(values: Floats, scale: float, axes: tuple[int, ...]) -> Floats:
    order = [axes.count(axis) for axis in range(3)]
    return np.asarray(ndimage.gaussian_filter(values, scale, order=order))


def _eigenvalues(entry: Callable[[int, int], Floats]) -> list[Floats]:
    """Of the symmetric matrices (3 x 3) with these entries, smallest first."""
    rows = {(i, j): entry(i, j) for i in range(3) for j in range(i, 3)}
    matrix = np.stack(
        [np.stack([rows[min(i, j), max(i, j)] for j in range(3)], -1) for i in range(3)], -2
    )
    return list(np.moveaxis(np.linalg.eigvalsh(matrix).astype(np.float32), -1, 0))


class Forest:
    """100 trees that tell boundary voxels from others."""

    def __init__(
        self, image: NDArray[Any], target: Floats, weight: Floats, seed: int, threads: int
    ) -> None:
        """Learn from voxels of an image (z, y, x) with a target and weights of that shape."""
        rng = np.random.default_rng(seed)
        drawn = rng.permutation(np.flatnonzero(weight))[:DRAWN]
        seen = features(image)
        self._trees = RandomForestClassifier(100, random_state=seed, n_jobs=threads)
        self._trees.fit(seen.reshape(-1, seen.shape[-1])[drawn], target.ravel()[drawn] > 0.5)

    def predict(self, image: NDArray[Any]) -> Floats:
        """Return the probability of a boundary, (z, y, x)."""
        seen = features(image)
        found = self._trees.predict_proba(seen.reshape(-1, seen.shape[-1]))[:, 1]
        return np.asarray(found.reshape(image.shape), np.float32)
