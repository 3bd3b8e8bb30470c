"""What ranks saw of their shares of a batch is told as of the whole batch."""

import json

import numpy as np
import pytest

from znnpy.train.loop import suspects

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(6, 2, 3, 4, 5)).astype(np.float32)
TARGETS = RNG.random((6, 1, 1, 2, 3)).astype(np.float32)


def alone(told):
    return [told]


def of_ranks(inputs, targets, *places):
    """What each of some ranks says, whose shares of the batch end at these places."""
    shares = zip(np.split(inputs, places), np.split(targets, places), strict=True)
    fed = [[("inputs", {"in": x}), ("targets", y), ("weights", None)] for x, y in shares]
    told = []
    for share in fed:
        with pytest.raises(StopIteration):
            suspects(share, lambda own: told.append(own) or next(iter(())))
    told = json.loads(json.dumps(told))
    return {suspects(share, lambda own: told) for share in fed}


@pytest.mark.parametrize("places", [(2,), (4,), (1, 2, 4)])
@pytest.mark.parametrize(
    ("what", "at", "value", "words"),
    [
        ("inputs", (3, 1, 2, 0, 4), np.nan, "1 of 720 inputs are not finite, the first nan at (3, 1, 2, 0, 4)"),
        ("inputs", (slice(1, 5), 0, 0, 0, 1), -np.inf, "4 of 720 inputs are not finite, the first -inf at (1, 0, 0"),
        ("targets", (5, 0, 0, 1, 2), np.inf, "1 of 36 targets are not finite, the first inf at (5, 0, 0, 1, 2)"),
        ("targets", (5, 0, 0, 1, 2), -2e7, "targets reach 2e+07 in size"),
        ("inputs", (0, 0, 0, 0, 0), 0.5, "inputs from -"),
    ],
)  # fmt: skip
def test_all_ranks_give_the_answer_of_one(places, what, at, value, words):
    arrays = {"inputs": INPUTS.copy(), "targets": TARGETS.copy()}
    arrays[what][at] = value
    whole = suspects(list(arrays.items()), alone)
    assert words in whole[0]
    assert whole[1] == (value != 0.5)
    assert of_ranks(*arrays.values(), *places) == {whole}
