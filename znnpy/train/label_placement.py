"""Where labels fit an image best, of places within some voxels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from znnpy.train.living import middle

Array = NDArray[Any]
FAR = 6  # voxels that labels are shifted by at most, to see where they fit best


def best_place(image: Array, target: Array) -> tuple[float, float, tuple[int, int, int]]:
    """Return how well a target fits an image where it lies, and where best within FAR voxels, and that shift.

    Both (z, y, x), the target in the middle of the image; fits are sizes of correlations.
    """
    inner = middle(image[None, None], target.shape)[0, 0]
    one, other = (it - it.mean() for it in (inner.astype(np.float64), target.astype(np.float64)))
    scale = np.sqrt((one**2).sum() * (other**2).sum())
    if scale == 0:
        return 0.0, 0.0, (0, 0, 0)
    shape = [fft.next_fast_len(n + FAR, real=True) for n in target.shape]
    product = np.conj(fft.rfftn(one, shape)) * fft.rfftn(other, shape)
    found = np.abs(fft.irfftn(product, shape)) / scale
    reach = [min(FAR, n // 4) for n in target.shape]
    near = found[np.ix_(*(np.arange(-r, r + 1) for r in reach))]
    place = np.unravel_index(int(near.argmax()), near.shape)
    z, y, x = (int(at) - r for at, r in zip(place, reach, strict=True))
    return float(found[0, 0, 0]), float(near.max()), (z, y, x)
