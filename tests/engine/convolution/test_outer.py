"""Weight gradients of layers that see their whole field: samples added in registers, the bits of slabs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import check_network

from znnpy import Model, load_network
from znnpy.engine.convolution.direct import weight_gradients

SIZE = [2, 3, 4]


def network(outputs: int) -> Any:
    """A layer over all that is left, and one of single voxels."""
    layers = [
        {"conv": {"channels": 18, "size": 2, "function": "relu"}},
        {"conv": {"channels": outputs, "size": SIZE, "function": "tanh"}},
        {"conv": {"channels": 9, "size": 1}},
    ]
    return load_network({"layers": layers})


def gradients(outputs: int, batch: int, threads: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"threads": threads, "conv": "direct", "loss": "square"}
    with Model(network(outputs), (1, 1, 1), batch=batch, **options) as model:
        x = rng.standard_normal((batch, 1, *model.input_shape)).astype(np.float32)
        target = rng.standard_normal((batch, 9, 1, 1, 1)).astype(np.float32)
        return model.loss_and_gradients(x, target)[1]


@pytest.mark.share(10)
@pytest.mark.quick(4)
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7, 8, 9, 20])
@pytest.mark.parametrize("outputs", [16, 40])
def test_bits_are_those_of_slabs_of_one_sample(
    outputs: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gradients(outputs, batch, 3)
    monkeypatch.setattr(weight_gradients, "is_outer", lambda *_: False)
    wanted = gradients(outputs, batch, 1)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("batch", [3, 10])
def test_as_the_reference(batch: int) -> None:
    check_network(network(40), (1, 1, 1), batch=batch, conv="direct")
