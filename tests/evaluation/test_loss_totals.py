import numpy as np
import pytest
from objectives import objective_of

from znnpy.engine.layers.probabilities import probabilities
from znnpy.evaluation.loss_totals import Tally, step_weights
from znnpy.learning.readings import CLASSES, LOGITS, VALUES


@pytest.mark.parametrize("name", ["square", "binomial_cross_entropy", "softmax"])
def test_tally_over_parts_equals_the_reference(name):
    rng = np.random.default_rng(1)
    values = rng.normal(0, 3, (2, 3, 4, 5, 6))
    classes = rng.integers(0, 3, (2, 1, 4, 5, 6))
    target = (np.arange(3)[:, None, None, None] == classes).astype(np.float64)
    weight = rng.random(target.shape) * (rng.random((2, 1, 4, 5, 6)) > 0.2)
    objective = objective_of(name)
    tally = Tally(objective)
    for z in range(4):
        tally.add(values[:, :, z : z + 1], target[:, :, z : z + 1], weight[:, :, z : z + 1])
    given = step_weights({"o": objective}, {"o": target}, {"o": weight})["o"]
    assert tally.loss == pytest.approx(objective.value_and_gradient(values, target, given)[0])
    assert 0 < tally.error < 1


def test_probabilities():
    assert probabilities(LOGITS, np.float32([0]))[0] == 0.5
    values = np.random.default_rng(0).normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
    exact = 1 / (1 + np.exp(-values.astype(np.float64)))
    assert probabilities(LOGITS, values) == pytest.approx(exact, rel=1e-6)
    assert np.array_equal(
        probabilities(LOGITS, values[..., ::2]),
        probabilities(LOGITS, values)[..., ::2],
    )
    values = np.zeros((4, 1, 1, 1))
    assert probabilities(CLASSES, values).ravel().tolist() == [0.25] * 4
    assert probabilities(VALUES, values) is values


def test_nothing_counts():
    tally = Tally(objective_of("square"))
    tally.add(np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1)))
    assert (tally.loss, tally.error) == (0, 0)
