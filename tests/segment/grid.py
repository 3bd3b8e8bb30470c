"""Objects of a grid, as affinities of nets show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Triple = tuple[int, int, int]
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
FAR: tuple[Triple, ...] = (*NEAREST, (-3, 0, 0), (0, -3, 0), (0, 0, -3), (0, 3, 3))
GRID = np.kron(np.arange(1, 28).reshape(3, 3, 3), np.ones((5, 6, 7), int))


def affinities(labels: np.ndarray, offsets: Sequence[Triple]) -> np.ndarray:
    """1 where voxels v and v + offset, inside the volume, are of one object."""
    wide = np.pad(labels, 9)
    views = []
    for offset in offsets:
        steps = zip(offset, labels.shape, strict=True)
        views.append(wide[tuple(slice(9 + step, 9 + step + size) for step, size in steps)])
    return np.stack([view == labels for view in views]).astype(np.float32)


def noisy(values: np.ndarray, deviation: float = 0.15) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.clip(values + rng.normal(0, deviation, values.shape), 0, 1).astype(np.float32)


def same(found: np.ndarray, truth: np.ndarray) -> bool:
    """Whether two segmentations are equal but for the numbers."""
    pairs = np.unique(np.stack([found.ravel(), truth.ravel()]), axis=1)
    return len(pairs[0]) == len(np.unique(found)) == len(np.unique(truth))
