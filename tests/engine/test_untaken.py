"""What float32 has no tasks for is refused by name, before anything is planned, and float64 runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Model
from znnpy.engine.emit import EMITTERS, UNTAKEN
from znnpy.errors import NetworkError

CASES: dict[str, dict[str, Any]] = {
    "conv padding": {"conv": {"images": 2, "size": 3, "padding": 1}},
    "conv groups": {"conv": {"images": 2, "size": 3, "groups": 2}},
    "max_pool padding": {"max_pool": {"size": 2, "padding": 1}},
    "conv_transpose": {"conv_transpose": {"images": 2, "size": 3, "padding": 1}},
    "avg_pool": {"avg_pool": {"size": 2}},
    "upsample": {"upsample": {"factor": 1}},
}
LEFT = [key for key in CASES
        if key.split()[0] not in EMITTERS or key.split()[-1] in UNTAKEN.get(key.split()[0], ())]  # type: ignore[call-overload]  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_it_is_refused_by_name(what: str) -> None:
    net = {"input": 2, "layers": [CASES[what]]}
    with pytest.raises(
        NetworkError, match=f"{what.replace(' ', ' with ')} has no tasks in float32"
    ):
        Model(net, 4)
    with Model(net, 4, precision="float64") as model:
        found = model.predict(np.ones((1, 2, *model.input_shape), np.float32))
    assert found.shape == (1, 2, 4, 4, 4)
