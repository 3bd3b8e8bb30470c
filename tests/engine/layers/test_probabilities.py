"""Probabilities of output values, over the whole range of float32."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, softmax

from znnpy.engine import Model
from znnpy.engine.layers.probabilities import probabilities
from znnpy.learning.readings import CLASSES, LOGITS

NUMBERS = np.concatenate(
    [[-16, -30, -80, 16, 30, 80, 0], np.linspace(-87, 87, 9973), [-3e38, -1e4, 1e4, 3e38]]
)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 3e-7), (np.float64, 1e-15)])
def test_the_logistic_over_the_float_range(dtype, rtol):
    values = NUMBERS.astype(dtype).reshape(1, 1, 2, -1, 4)
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise"):
        warnings.simplefilter("error")
        found = probabilities(LOGITS, values)
    assert found.dtype == dtype
    exact = expit(values.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=rtol, atol=1.2e-38)
    assert found[0, 0, 0, 0, 0] > 1e-7  # a logit of -16


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_over_the_float_range(dtype):
    values = np.stack([NUMBERS, -NUMBERS, np.zeros_like(NUMBERS)])[None, :, None, None].astype(
        dtype
    )
    with np.errstate(all="raise", under="ignore"):
        found = probabilities(CLASSES, values)
    assert found.dtype == dtype
    exact = softmax(values.astype(np.float64), axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1.2e-38)


@pytest.mark.parametrize("function", ["linear", "logistic", "forward_logistic"])
def test_a_model_predicts_small_probabilities(function):
    net = {"layers": [{"conv": {"channels": 1, "size": 1, "function": function}}]}
    x = NUMBERS[: 4 * 2496].reshape(1, 1, 4, 48, 52).astype(np.float32)
    with Model(net, (4, 48, 52), threads=1, conv="direct", training=False) as model:
        model.set_parameters({"conv1": np.ones((1, 1, 1, 1, 1)), "output": [0]})
        found = model.predict(x)
        shown = model.forward(x)
    np.testing.assert_allclose(found, expit(np.float64(x)), rtol=3e-7, atol=1.2e-38)
    assert np.array_equal(shown, x if function == "linear" else found)
