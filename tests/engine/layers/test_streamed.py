"""Images that pass by the caches have the bits of those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Model
from znnpy.engine.layers import max_pooling

NETWORK: dict[str, Any] = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 20, "size": 3, "function": "relu"}},
        {"max_filter": 2},
        {"conv": {"channels": 10, "size": 3}},
        {"max_filter": [1, 2, 2]},
    ],
}


@pytest.mark.parametrize("hole", [0.0, np.nan, np.inf])
def test_streamed_maxima(monkeypatch: pytest.MonkeyPatch, hole: float) -> None:
    found = []
    for least in (1 << 40, 0):
        monkeypatch.setattr(max_pooling, "STREAMED_BYTES", least)
        with Model(NETWORK, (9, 7, 8), threads=2, conv="direct", training=False) as model:
            x = np.random.default_rng(0).normal(size=(1, 1, *model.input_shape))
            x[0, 0, 5, 5, 5] = hole
            found.append(model.forward(x))
    assert np.array_equal(*found, equal_nan=True)
