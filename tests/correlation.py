"""Correlation by definition, for tests: SciPy's takes longer to import than most of them to run."""

import numpy as np


def correlated(image: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Sums of taps times the voxels under them, at each place of a filter [z, y, x] within an image; float64."""
    seen = np.lib.stride_tricks.sliding_window_view(image.astype(float), filters.shape)
    found: np.ndarray = np.einsum("zyxabc,abc->zyx", seen, filters.astype(float))
    return found
