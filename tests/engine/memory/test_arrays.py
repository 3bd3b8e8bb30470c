"""What users pass to a model: masks, weights, and targets that do not count."""

import numpy as np
import pytest
from small_models import data, small

from znnpy.errors import ZnnpyError

LOSSES = ("square", "binomial_cross_entropy", "softmax")


def learnt(model, *arrays, **named):
    """Loss, gradients, the error of an update, and what it leaves."""
    loss, gradients = model.loss_and_gradients(*arrays, **named)
    ticket = model.submit(*arrays, **named)
    return [loss, *gradients.values(), model.result(ticket).error, *model.parameters.values()]


def hidden_half(target, loss):
    """A mask of some targets; of whole voxels for softmax."""
    hidden = np.random.default_rng(5).random(target.shape) < 0.5
    return hidden | hidden[:, ::-1] if loss == "softmax" else hidden


@pytest.mark.quick(3)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("loss", LOSSES)
def test_targets_of_weight_0_and_masked_ones_do_not_count(loss, precision):
    found = []
    for way in ("zero", "nan", "masked", "masked weight"):
        with small(loss=loss, precision=precision) as model:
            x, target = data(model)
            hidden = hidden_half(target, loss)
            weight = np.where(hidden, 0, np.random.default_rng(6).random(target[:, :1].shape) + 0.5)
            spoilt = np.where(hidden, np.nan, target)
            if way == "zero":
                found.append(learnt(model, x, np.where(hidden, 0, target), weight=weight))
            elif way == "nan":
                found.append(learnt(model, x, spoilt, weight=weight))
            elif way == "masked":
                whole = np.where(hidden, 1, weight)
                found.append(learnt(model, x, np.ma.array(spoilt, mask=hidden), weight=whole))
            else:
                masked = np.ma.array(np.where(hidden, np.nan, weight), mask=hidden)
                found.append(learnt(model, x, spoilt, weight=masked))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, same)


def test_a_masked_target_needs_no_weight_and_one_image_may_weigh_all():
    with small(batch=2) as model:
        x, target = data(model)
        hidden = hidden_half(target[:, :1], "softmax")
        masked = np.ma.array(target, mask=np.broadcast_to(hidden, target.shape))
        wanted = model.loss_and_gradients(x, target, weight=(~hidden).astype(np.float32))[0]
        assert model.loss_and_gradients(x, masked)[0] == wanted
        weight = np.ma.array(np.ones(hidden.shape), mask=hidden)
        assert model.loss_and_gradients(x, target, weight=weight)[0] == wanted
        assert model.loss_and_gradients(np.ma.array(x), target)[0] > 0  # nothing is hidden


def test_masked_inputs_and_parameters_are_refused():
    with small() as model:
        x, target = data(model)
        x = np.ma.array(x)
        x[0, 0, 1, 2, 3:5] = np.ma.masked
        for call in (model.forward, model.predict, lambda x: model.step(x, target)):
            with pytest.raises(ZnnpyError, match="input of node 'x': 2 numbers are hidden"):
                call(x)
        with pytest.raises(ZnnpyError, match="'y'"):
            model.set_parameters({"y": np.ma.array([1.0, 2.0], mask=[True, False])})


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_wrong_weights_are_refused(value):
    with small() as model:
        x, target = data(model)
        weight = np.ones(target.shape)
        weight[0, 1, 2, 0, 1] = value
        for call in (model.step, model.loss_and_gradients):
            with pytest.raises(ZnnpyError, match=f"'y': {value}"):
                call(x, target, weight=weight)
        assert model.iteration == 0


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_wrong_learning_rates_are_refused(value):
    with small() as model:
        before = model.parameters
        for call in (model.step, model.submit):
            with pytest.raises(ZnnpyError, match="learning_rate"):
                call(*data(model), learning_rate=value)
        for name, array in model.parameters.items():
            np.testing.assert_array_equal(array, before[name])
        model.step(*data(model), learning_rate=0)
