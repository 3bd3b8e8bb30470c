"""A boundary map of cells with noise and gaps, as a net would predict it, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from znnpy.data.volume import Triple


def cells(shape: Triple = (30, 44, 52), count: int = 40, seed: int = 0) -> np.ndarray:
    """Walls between the nearest of `count` points, float32 (z, y, x)."""
    rng = np.random.default_rng(seed)
    middles = rng.random((count, 3)) * shape
    voxels = np.stack(np.indices(shape), axis=-1).reshape(-1, 3)
    far, _ = cKDTree(middles).query(voxels, k=2)
    wall = np.exp(-((far[:, 1] - far[:, 0]) ** 2) / 4).reshape(shape)
    noise = ndimage.gaussian_filter(rng.normal(size=shape), 1)
    return np.clip(0.9 * wall + 0.5 * noise, 0, 1).astype(np.float32)


def stored(path: Path, array: Any, **attributes: Any) -> Path:
    """An HDF5 file with the array as its dataset p."""
    with h5py.File(path, "w") as file:
        file["p"] = array
        file["p"].attrs.update(attributes)
    return path
