"""What Python hands over to an update: arrays in any order, borrowed or copied, and weights of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from znnpy import Model, Optimizer, Training

Array = NDArray[Any]
NET = {
    "nodes": {
        "raw": {"kind": "input", "channels": 1},
        "wide": {"kind": "transfer", "channels": 3},
        "thin": {"kind": "transfer", "channels": 1},
    },
    "edges": {
        "a": {"kind": "conv", "from": "raw", "to": "wide", "size": 3},
        "b": {"kind": "conv", "from": "raw", "to": "thin", "size": 3},
    },
}
RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 1, 4, 5, 6)).astype(np.float32)
TARGETS = {
    name: RNG.normal(size=(2, channels, 2, 3, 4)).astype(np.float32)
    for name, channels in (("wide", 3), ("thin", 1))
}
WEIGHTS = {name: np.full((2, 1, 2, 3, 4), 0.5, np.float32) for name in TARGETS}
BACKWARDS = tuple(reversed(list(TARGETS)))


def model(**given: Any) -> Model:
    training = Training(factors={"wide": 2.0, "thin": 0.25}, microbatch=given.pop("microbatch", None))  # fmt: skip
    optimizer = Optimizer("adam", weight_decay=0.1, ema=0.9)
    return Model(NET, (2, 3, 4), batch=2, threads=1, conv="direct", loss="square", optimizer=optimizer,
                 training=training, **given)  # fmt: skip


@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_outputs_may_be_given_in_any_order(weights: Any, microbatch: int) -> None:
    turned = weights and {name: weights[name] for name in BACKWARDS}
    with model(microbatch=microbatch) as one, model(microbatch=microbatch) as other:
        for _ in range(3):
            loss = one.step(IMAGE, TARGETS, weights)
            assert other.step(IMAGE, {name: TARGETS[name] for name in BACKWARDS}, turned) == loss
        _equal(one, other)


@pytest.mark.parametrize("microbatch", [1, 2])
def test_copies_and_borrowed_arrays_give_the_same(microbatch: int) -> None:
    with model(microbatch=microbatch) as one, model(microbatch=microbatch) as other:
        for _ in range(3):
            targets, weights = (
                {name: array.copy() for name, array in given.items()}
                for given in (TARGETS, WEIGHTS)
            )
            ticket = other.submit(IMAGE, targets, weights)
            for array in (*targets.values(), *weights.values()):
                array[...] = np.nan
            assert one.step(IMAGE, TARGETS, WEIGHTS) == other.result(ticket).loss
        _equal(one, other)


def test_a_weight_that_float32_hardly_holds_is_no_error_of_python() -> None:
    """The factor of its mean is beyond float32."""
    least = {name: np.zeros_like(array) for name, array in WEIGHTS.items()}
    for array in least.values():
        array[0, 0, 0, 0, 0] = 1e-42
    with model() as found:
        assert not np.isfinite(found.step(IMAGE, TARGETS, least))


def _equal(one: Model, other: Model) -> None:
    one.drain()
    other.drain()
    for name, value in one.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[name], err_msg=name)
