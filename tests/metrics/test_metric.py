"""What is compared, by the kinds of metrics."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.metrics.metric import METRICS, Compared


@pytest.mark.parametrize(("whole", "wanted"), [(True, 1 / 4), (False, 4 / 12)])
def test_voxel_error_counts_voxels_of_classes_and_else_decisions(
    whole: bool, wanted: float
) -> None:
    """Of four voxels one is of another class; two are right though no share is above a half."""
    found = np.array([[0.6, 0.3, 0.2, 0.4], [0.3, 0.4, 0.1, 0.3], [0.1, 0.3, 0.7, 0.3]])
    target = np.eye(3)[:, [0, 1, 1, 0]]
    shape = (3, 1, 1, 4)
    compared = Compared(
        *(found.reshape(shape),) * 2,
        target.reshape(shape),
        np.ones(shape),
        np.zeros(shape[1:]),
        whole_voxels=whole,
    )
    assert METRICS["voxel_error"].score(compared) == pytest.approx(wanted)
