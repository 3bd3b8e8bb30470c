"""Normalisation by own values beside MONAI's transforms."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("monai")
from monai.transforms import (
    NormalizeIntensity,
    ScaleIntensity,
    ScaleIntensityRangePercentiles,
)

from znnpy.data.values.normalization import Mode, normalisation
from znnpy.data.values.own_statistics import Own
from znnpy.data.volume import ArrayVolume


@pytest.mark.parametrize(
    ("mode", "transform"),
    [
        ("mean_std", NormalizeIntensity(channel_wise=True)),
        (Own("mean_std", nonzero=True), NormalizeIntensity(nonzero=True, channel_wise=True)),
        (Own("range"), ScaleIntensity(channel_wise=True)),
        (
            Own("percentiles", 1, 99),
            ScaleIntensityRangePercentiles(1, 99, 0, 1, channel_wise=True),
        ),
        (
            Own("percentiles", 5, 80, clip=True),
            ScaleIntensityRangePercentiles(5, 80, 0, 1, clip=True, channel_wise=True),
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_as_monai_has_it(mode: Mode, transform: object, dtype: str) -> None:
    values = np.random.default_rng(1).integers(1, 3000, (2, 7, 20, 21)).astype(dtype)
    values[:, :, :6] = 0
    found = normalisation(ArrayVolume(values), mode).apply(values)
    wanted = np.asarray(transform(values.astype(np.float32)))  # type: ignore[operator]
    np.testing.assert_allclose(found, wanted, atol=2e-5)
