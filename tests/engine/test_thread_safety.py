"""Calls of a model in an unusual order: what they leave, and what they say."""

import numpy as np
import pytest
from small_models import data, small

from znnpy import Model, Training
from znnpy.errors import ZnnpyError


def test_nan_leaves_no_trace():
    with small(conv="fft", clip_norm=1.0) as model:
        x, target = data(model)
        start = model.parameters, model.optimizer_state
        wanted = model.forward(x), model.step(x, target), model.parameters
        bad = np.full_like(x, np.nan)
        model.forward(bad)
        model.step(bad, target)
        model.set_parameters(start[0])
        model.set_optimizer_state(start[1])
        model.iteration = 0
        assert np.array_equal(model.forward(x), wanted[0])
        assert model.step(x, target) == wanted[1]
        found = model.parameters
        assert all(np.array_equal(found[name], wanted[2][name]) for name in found)


def test_a_result_outlives_gradients_asked_for_in_between():
    with small() as model:
        x, target = data(model)
        ticket = model.submit(x, target)
        wanted = model.result(ticket)
        model.loss_and_gradients(9 * x, 1 - target)
        assert model.result(ticket) == wanted


def test_the_bad_input_of_an_odd_step_is_named():
    with small() as model:
        x, target = data(model)
        model.step(x, target)
        model.step(np.full_like(x, np.nan), target)
        assert model.non_finite_layer() == "x"


CALLS = {
    "parameters": lambda m: m.parameters,
    "set_parameters": lambda m: m.set_parameters({}),
    "forward": lambda m: m.forward(data(m)[0]),
    "step": lambda m: m.step(*data(m)),
    "loss_and_gradients": lambda m: m.loss_and_gradients(*data(m)),
    "drain": lambda m: m.drain(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_model_says_so(call):
    model = small()
    model.step(*data(model))
    model.close()
    model.close()
    with pytest.raises(ZnnpyError, match="closed"):
        CALLS[call](model)


@pytest.mark.parametrize("images", [16, 18, 2])
def test_values_are_the_callers_own(images):
    """Those of whole blocks of images of one voxel, too, which lie in memory as they are given."""
    section = {"layers": [{"conv": {"channels": images, "size": 3}}]}
    x = np.random.default_rng(0).standard_normal((5, 1, 3, 3, 3)).astype(np.float32)
    with Model(section, 1, threads=2, conv="direct", seed=1) as model:
        alone = [model.forward(x[sample : sample + 1]) for sample in range(5)]
    assert len({values.tobytes() for values in alone}) == 5
    with Model(
        section, 1, batch=5, training=Training(microbatch=1), threads=2, conv="direct", seed=1
    ) as model:
        np.testing.assert_array_equal(model.forward(x), np.concatenate(alone))
