"""Preparation of images as packages of bioimage.io say it, beside its formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy.config.data_section import DataSection
from znnpy.errors import ExportError
from znnpy.interop.export.bioimageio_preparation import prepared, preprocessing


def section(data: dict[str, Any]) -> DataSection:
    return DataSection.model_validate(data)


CLIP = {"kind": "clip", "low": -1.0, "high": 1.5, "mean": 0.25, "deviation": 0.5}


def between(values: Any, low: Any, high: Any) -> Any:
    return (values - low) / (high - low)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({}, lambda x: (x - x.mean((2, 3, 4), keepdims=True)) / x.std((2, 3, 4), keepdims=True)),
        ({"normalize": "none"}, lambda x: x),
        ({"normalize": "unit"}, lambda x: x),
        (
            {"normalize": {"kind": "fixed", "mean": [1, 2], "deviation": [4]}},
            lambda x: (x - np.reshape([1, 2], (2, 1, 1, 1))) / 4,
        ),
        (
            {"normalize": {"kind": "fixed", "mean": [1], "deviation": [4]}},
            lambda x: (x - 1) / 4,
        ),
        (
            {"normalize": "none", "prepare": {"normalize": [CLIP, CLIP]}},
            lambda x: (x.clip(-1, 1.5) - 0.25) / 0.5,
        ),
        ({"normalize": "none", "prepare": {"normalize": ["bytes", "bytes"]}}, lambda x: x / 255),
        (
            {"normalize": "none", "prepare": {"normalize": ["range", "range"]}},
            lambda x: (x - x.min((2, 3, 4), keepdims=True)) / np.ptp(x, (2, 3, 4), keepdims=True),
        ),
        ({"normalize": "none", "prepare": {"normalize": ["none", "none"]}}, lambda x: x),
        (
            {"normalize": {"kind": "mean_std", "per": "slice"}},
            lambda x: (x - x.mean((3, 4), keepdims=True)) / x.std((3, 4), keepdims=True),
        ),
        (
            {"normalize": {"kind": "percentiles", "low": 5, "high": 90}},
            lambda x: between(x, *np.percentile(x, [5, 90], (2, 3, 4), keepdims=True)),
        ),
        (
            {"normalize": {"kind": "range", "per": "slice"}},
            lambda x: between(x, *np.percentile(x, [0, 100], (3, 4), keepdims=True)),
        ),
        (
            {"normalize": {"kind": "clip", "low": -1, "high": 1, "mean": [0.5, 1], "deviation": 2}},
            lambda x: (x.clip(-1, 1) - np.reshape([0.5, 1], (2, 1, 1, 1))) / 2,
        ),
    ],
)
def test_images_are_prepared_as_the_run_prepares_them(data: dict[str, Any], wanted: Any) -> None:
    steps = preprocessing(section(data), 2)
    image = np.random.default_rng(0).standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(prepared(image, steps), wanted(image), atol=1e-5)


@pytest.mark.parametrize(
    ("schemes", "words"),
    [
        (["deviation", "none"], "all channels in one way"),
        ([CLIP, "none"], "all channels in one way"),
        ([CLIP, {**CLIP, "low": -2.0}], "all channels in one way"),
        ([{"kind": "deviation", "inside": True}] * 2, "voxels inside alone"),
    ],
)
def test_preparation_that_the_format_has_not(schemes: list[Any], words: str) -> None:
    data = section({"normalize": "none", "prepare": {"normalize": schemes}})
    with pytest.raises(ExportError, match=words):
        preprocessing(data, 2)


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        ({"kind": "range", "nonzero": True}, "cannot leave voxels of 0 out"),
        ({"kind": "percentiles", "clip": True}, "do not cut"),
        ({"kind": "clip", "low": [0, 1], "high": 2}, "all channels to one window"),
    ],
)
def test_normalisation_that_the_format_has_not(normalize: dict[str, Any], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        preprocessing(section({"normalize": normalize}), 2)
