"""Outputs with the function of their loss train as linear ones do, and show that function once."""

from dataclasses import replace

import numpy as np
import pytest
from model_settings import model_of
from scipy.special import expit
from scipy.special import softmax as shares

from znnpy import reference
from znnpy.engine import Hardware, Model, Optimizer
from znnpy.errors import NetworkError
from znnpy.network.types import Edge, Network, Node

PAIRS = [
    ("binomial_cross_entropy", "logistic"),
    ("binomial_cross_entropy", "forward_logistic"),
    ("softmax", "softmax"),
]
SHAPE = (3, 4, 5)


def network(function):
    """A net whose output has few channels, so that a linear one lies planar, and one with many."""
    nodes = (
        Node("in", "input", 1),
        Node("a", "transfer", 18, "tanh", amplitude=1.7159, gain=0.6666),
        Node("few", "transfer", 2, function),
        Node("many", "transfer", 19, function),
    )
    edges = (
        Edge("e1", "conv", "in", "a", size=(1, 3, 3)),
        Edge("e2", "conv", "a", "few", size=(2, 2, 2)),
        Edge("e3", "conv", "a", "many", size=(2, 2, 2)),
    )
    return Network(nodes, edges)


def batch(model, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 1, *model.input_shape)).astype(np.float32)
    targets = {}
    for node in model.network.outputs:
        classes = rng.integers(0, node.channels, (2, 1, *SHAPE))
        targets[node.name] = np.float32(np.arange(node.channels)[:, None, None, None] == classes)
    return x, targets


def trained(function, loss, **options):
    """Losses and parameters of six updates, and what the model shows then."""
    with model_of(network(function), SHAPE, batch=2, threads=2, loss=loss, conv="direct", seed=3,
               **options) as model:  # fmt: skip
        losses = [model.step(*batch(model, seed), learning_rate=0.05) for seed in range(6)]
        x, _ = batch(model, 9)
        found = losses, model.parameters, model.forward(x), model.predict(x)
        model.staged()["in"][...] = x
        for name, values in model.run().items():
            assert np.array_equal(values, found[2][name])
        return found


@pytest.mark.quick(4)
@pytest.mark.parametrize(("loss", "function"), PAIRS)
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": Optimizer(momentum=0.9)},
        {"optimizer": Optimizer(kind="adam"), "clip_norm": 0.1},
        {"precision": "float64"},
    ],
)
def test_bitwise_the_training_of_a_linear_output(loss, function, options):
    losses, parameters, shown, predicted = trained(function, loss, **options)
    linear_losses, linear, logits, expected = trained("linear", loss, **options)
    assert losses == linear_losses
    for name, array in linear.items():
        assert np.array_equal(parameters[name], array), name
    for name, values in expected.items():
        assert np.array_equal(shown[name], values)
        assert np.array_equal(predicted[name], values)
        doubles = logits[name].astype(np.float64)
        exact = shares(doubles, axis=1) if loss == "softmax" else expit(doubles)
        np.testing.assert_allclose(values, exact, rtol=2e-6)


@pytest.mark.parametrize(("loss", "function"), PAIRS)
def test_the_loss_is_that_of_the_values_as_probabilities(loss, function):
    """Against the cross-entropy of the values themselves, and its finite differences, in float64."""
    net = network(function)
    with Model(
        net, SHAPE, batch=2, loss=loss, hardware=Hardware(precision="float64"), seed=2
    ) as model:
        x, targets = batch(model, 1)
        geometry, parameters = model.geometry, model.parameters
        found, gradients = model.loss_and_gradients(x, targets)

    def entropy(changed):
        values = reference.forward(net, geometry, parameters | changed, {"in": x})
        total = 0.0
        for name, t in targets.items():
            p = values[name]
            if loss == "softmax":
                total -= (t * np.log(p)).sum(axis=1).mean()
            else:
                total -= (t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
        return total

    assert found == pytest.approx(entropy({}), rel=1e-12)
    rng = np.random.default_rng(0)
    for name, gradient in gradients.items():
        way = 1e-5 * rng.standard_normal(gradient.shape)
        slope = entropy({name: parameters[name] + way}) - entropy({name: parameters[name] - way})
        assert slope == pytest.approx(2 * np.vdot(gradient, way), rel=1e-6, abs=1e-13)


def test_sure_and_wrong_outputs_still_learn():
    """A logit of -200 is a probability of 0 whose own slope is 0: the loss is 200 all the same."""
    net = {"layers": [{"conv": {"channels": 1, "size": 1, "function": "logistic"}}]}
    with Model(net, (2, 2, 2), threads=1) as model:
        model.set_parameters({"conv1": np.zeros((1, 1, 1, 1, 1)), "output": [-200.0]})
        ones = np.ones((1, 1, 2, 2, 2), np.float32)
        loss, gradients = model.loss_and_gradients(ones, ones)
    assert loss == pytest.approx(200)
    assert gradients["output"] == pytest.approx(-1)


def test_a_function_of_another_loss_is_refused():
    with pytest.raises(NetworkError, match="fits loss softmax"):
        Model(network("softmax"), SHAPE, loss="binomial_cross_entropy")


def test_filters_that_repeat_stay_so_and_learn_by_their_mean_gradient():
    edges = network("linear").edges
    tied = replace(edges[1], size=(2, 4, 3), repeat=(1, 2, 3))
    free = replace(tied, repeat=(1, 1, 1))
    nets = [Network(network("linear").nodes[:3], (edges[0], edge)) for edge in (tied, free)]
    options = {"batch": 2, "threads": 2, "conv": "direct", "loss": "square", "seed": 5}
    with model_of(nets[0], SHAPE, **options) as model, model_of(nets[1], SHAPE, **options) as other:
        other.set_parameters(model.parameters)
        before = model.parameters["e2"]
        x, targets = batch(model, 0)
        _, gradients = other.loss_and_gradients(x, targets)
        for seed in range(3):
            model.step(*batch(model, seed), learning_rate=0.1)
            other.step(*batch(model, seed), learning_rate=0.1)
            after = model.parameters["e2"]
            blocks = after.reshape(2, 18, 2, 2, 2, 1, 3)
            assert np.array_equal(blocks, np.broadcast_to(blocks[..., :1, :, :1], blocks.shape))
            if seed == 0:
                mean = gradients["e2"].reshape(blocks.shape).mean((4, 6), keepdims=True)
                wanted = before.reshape(blocks.shape) - 0.1 * mean
                np.testing.assert_allclose(blocks, np.broadcast_to(wanted, blocks.shape), atol=1e-6)
            kept = model.parameters
            model.set_parameters(kept)
            assert np.array_equal(model.parameters["e2"], kept["e2"])
        assert not np.allclose(other.parameters["e2"], after)
