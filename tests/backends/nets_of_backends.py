"""Nets of two convolutions, by runs and by SciPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from exported_runs import run_of
from scipy.ndimage import correlate
from scipy.special import expit

VALID: dict[str, Any] = {
    "layers": [
        {"conv": {"channels": 3, "size": [1, 3, 3], "function": "relu"}},
        {"conv": {"channels": 2, "size": [2, 3, 1]}},
    ]
}
"""Loses 1, 4 and 2 voxels (z, y, x)."""
PADDED: dict[str, Any] = {
    "layers": [
        {"conv": {"channels": 3, "size": [1, 3, 3], "padding": "same", "function": "relu"}},
        {"conv": {"channels": 2, "size": [1, 3, 1], "padding": "same"}},
    ]
}
SIGMOID = {"loss": "binomial_cross_entropy"}


def run_folder(path: Path, network: dict[str, Any] = PADDED, **sections: Any) -> Path:
    run_of(path, network, **sections)
    return path


def by_scipy(parameters: Any, patch: np.ndarray, padded: bool) -> np.ndarray:
    """Values (k, z, y, x) of a patch (c, z, y, x), in float64."""
    values = patch.astype(np.float64)
    filters = [name for name, array in parameters.items() if array.ndim == 5]
    biases = [name for name, array in parameters.items() if array.ndim == 1]
    for number, (name, bias) in enumerate(zip(filters, biases, strict=True)):
        taps = parameters[name].astype(np.float64)
        made = []
        for one, added in zip(taps, parameters[bias], strict=True):
            parts = [_correlated(v, t, padded) for v, t in zip(values, one, strict=True)]
            made.append(sum(parts) + added)
        values = np.stack(made)
        values = np.maximum(values, 0) if number == 0 else values
    return values


def _correlated(values: np.ndarray, taps: np.ndarray, padded: bool) -> np.ndarray:
    if padded:
        return correlate(values, taps, mode="constant")
    low = [n // 2 for n in taps.shape]
    kept = tuple(
        slice(before, before + size - n + 1)
        for before, size, n in zip(low, values.shape, taps.shape, strict=True)
    )
    return correlate(values, taps, mode="constant")[kept]


def probabilities(values: np.ndarray) -> np.ndarray:
    return expit(values)
