import numpy as np
import pytest

from znnpy.engine.layers.probabilities import probabilities
from znnpy.infer.losses import Tally, step_weights
from znnpy.reference.losses import loss_and_gradient


@pytest.mark.parametrize("name", ["square", "binomial_cross_entropy", "softmax"])
def test_tally_over_parts_equals_the_reference(name):
    rng = np.random.default_rng(1)
    values = rng.normal(0, 3, (2, 3, 4, 5, 6))
    classes = rng.integers(0, 3, (2, 1, 4, 5, 6))
    target = (np.arange(3)[:, None, None, None] == classes).astype(np.float64)
    weight = rng.random(target.shape) * (rng.random((2, 1, 4, 5, 6)) > 0.2)
    tally = Tally()
    for z in range(4):
        tally.add(name, values[:, :, z : z + 1], target[:, :, z : z + 1], weight[:, :, z : z + 1])
    shown = step_weights(name, {"o": target}, {"o": weight})["o"]
    given = shown[:, :1] if name == "softmax" else shown
    assert tally.loss == pytest.approx(loss_and_gradient(name, values, target, given)[0])
    assert 0 < tally.error < 1


def test_probabilities():
    assert probabilities("binomial_cross_entropy", np.float32([0]))[0] == 0.5
    values = np.random.default_rng(0).normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
    exact = 1 / (1 + np.exp(-values.astype(np.float64)))
    assert probabilities("binomial_cross_entropy", values) == pytest.approx(exact, rel=1e-6)
    assert np.array_equal(
        probabilities("binomial_cross_entropy", values[..., ::2]),
        probabilities("binomial_cross_entropy", values)[..., ::2],
    )
    values = np.zeros((4, 1, 1, 1))
    assert probabilities("softmax", values).ravel().tolist() == [0.25] * 4
    assert probabilities("square", values) is values


def test_nothing_counts():
    tally = Tally()
    tally.add("square", np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)))
    assert (tally.loss, tally.error) == (0, 0)
