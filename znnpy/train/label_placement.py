"""Where labels fit an image best, of places within some voxels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.train.living import middle

Array = NDArray[Any]
FAR = 6  # voxels that labels are shifted by at most, to see where they fit best


def fits(image: Array, target: Array) -> Array:
    """Return how well a target fits an image when shifted by 0, 1, ... voxels along each axis, in either direction.

    Both (z, y, x), the target in the middle of the image. Fits are sizes of correlations, the best of all directions,
    (z, y, x), by at most FAR voxels.
    """
    inner = middle(image[None, None], target.shape)[0, 0]
    one, other = (it - it.mean() for it in (inner.astype(np.float64), target.astype(np.float64)))
    scale = np.sqrt((one**2).sum() * (other**2).sum())
    reach = [min(FAR, n // 4) for n in target.shape]
    if scale == 0:
        return np.zeros([r + 1 for r in reach])
    from scipy import fft  # slow to import, and asked for once in a run

    shape = [fft.next_fast_len(n + FAR, real=True) for n in target.shape]
    product = np.conj(fft.rfftn(one, shape)) * fft.rfftn(other, shape)
    found = np.abs(fft.irfftn(product, shape)) / scale
    for axis, far in enumerate(reach):
        along = np.moveaxis(found, axis, 0)
        back = -np.arange(far + 1)
        found = np.moveaxis(np.maximum(along[: far + 1], along[back]), 0, axis)
    return np.asarray(found)
