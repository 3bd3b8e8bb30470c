"""Models beside the float64 reference."""

from dataclasses import replace
from functools import lru_cache
from unittest.mock import patch

import numpy as np
import pytest
import random_networks as rn
from model_settings import model_of

from znnpy import reference
from znnpy.geometry import fit
from znnpy.network import logits_network, parameter_shapes
from znnpy.network.types import Network
from znnpy.reference import evaluate


def random_case(seed):
    """A random network with everything it needs; dropout keeps all, its masks are tested apart.

    `sizes`: samples of an update, and of each of its microbatches.
    """
    network, output_shape = rn.random_network(seed)
    edges = tuple(replace(e, keep=1.0) if e.kind == "dropout" else e for e in network.edges)
    network = Network(network.nodes, edges)
    geometry = fit(network, output_shape)
    sizes = rn.random_batch(network, geometry, seed)
    data = [
        make(network, geometry, seed, sizes[0])
        for make in (rn.random_inputs, rn.random_targets, rn.random_weights)
    ]
    return network, output_shape, geometry, sizes, rn.random_parameters(network, seed), *data


def assert_close(found, wanted, scale=None):
    scale = np.abs(wanted).max() if scale is None else scale
    assert np.abs(found - wanted).max() <= 2e-4 * max(scale, 1e-3)


def by_name(values, network):
    """Values of each output; a model with one output gives them bare."""
    return values if isinstance(values, dict) else {network.outputs[0].name: values}


def evaluated(network, output, parameters, data, loss):
    """By the reference: values of all nodes in prediction, and loss and gradients, which compute the same values.

    In one forward pass, if training has no other and the loss applies no function.
    """
    geometry, found = fit(network, output), []

    def noted(*given, **named):
        found.append(forward(*given, **named))
        return found[-1]

    forward = evaluate.forward
    with patch.object(evaluate, "forward", noted):
        learned = evaluate.gradients(network, geometry, parameters, *data, loss=loss)
    alike = logits_network(network, loss) == network and not any(
        node.norm is not None and node.norm.running for node in network.nodes
    )
    values = found[0] if alike else forward(network, geometry, parameters, data[0])
    return values, *learned


def check(seed, convs, loss):
    """Values, loss and gradients of a seed's network by each algorithm."""
    network, output_shape, geometry, sizes, parameters, x, target, weight = random_case(seed)
    if loss in ("softmax", "ce_dice") and min(node.channels for node in network.outputs) < 2:
        loss = "square"
    same = dict(zip(("batch", "microbatch"), sizes, strict=True), loss=loss)
    if sizes[0] == sizes[1]:
        values, *wanted = evaluated(network, output_shape, parameters, (x, target, weight), loss)
    else:
        values = reference.forward(network, geometry, parameters, x)
        wanted = exact(network, output_shape, parameters, (x, target, weight), same)
    for conv in convs:
        with model_of(network, output_shape, threads=2, conv=conv, **same) as model:
            model.set_parameters(parameters)
            for name, found in by_name(model.forward(x), network).items():
                assert_close(found, values[name])
            check_gradients(model.loss_and_gradients(x, target, weight=weight), wanted)


def check_gradients(found, wanted):
    """Loss and gradients beside those of the reference."""
    assert found[0] == pytest.approx(wanted[0], rel=3e-5)
    assert found[1].keys() == wanted[1].keys()
    largest = max(np.abs(g).max() for g in wanted[1].values())
    for name, gradient in wanted[1].items():
        assert_close(found[1][name], gradient, max(np.abs(gradient).max(), largest / 50))


def exact(network, output_shape, parameters, data, same):
    """Loss and gradients by the reference."""
    x, target, weight = data
    if same["batch"] == same["microbatch"]:
        geometry = fit(network, output_shape)
        return reference.gradients(network, geometry, parameters, *data, same["loss"])
    with model_of(network, output_shape, precision="float64", **same) as model:
        model.set_parameters(parameters)
        return model.loss_and_gradients(x, target, weight=weight)


@lru_cache(maxsize=1)  # asked for again with other algorithms and threads
def drawn_case(network, output, loss, batch, seed):
    """Parameters, inputs, targets of a network with one output; by the reference loss, outputs, gradients."""
    geometry, rng = fit(network, output), np.random.default_rng(seed)
    parameters = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in parameter_shapes(network).items()
    }
    x = rng.standard_normal((batch, network.inputs[0].channels, *geometry.input_shapes["input"]))
    last = network.outputs[0]
    target = rng.random((batch, last.channels, *output)).astype(np.float32)
    if loss == "softmax":
        target /= target.sum(axis=1, keepdims=True)
    x = x.astype(np.float32)
    data = {"input": x}, {last.name: target}
    values, value, gradients = evaluated(network, output, parameters, data, loss)
    return parameters, x, target, value, {"forward": values[last.name]} | gradients


def errors(network, output, conv, batch=1, seed=0, threads=1, **options):
    """Largest relative error of outputs and of each gradient."""
    parameters, x, target, _, wanted = drawn_case(network, output, "square", batch, seed)
    options |= {"conv": conv} if isinstance(conv, str) else {"plan": conv}
    with model_of(network, output, batch=batch, threads=threads, loss="square", **options) as model:
        model.set_parameters(parameters)
        found = {"forward": model.forward(x)}
        found |= model.loss_and_gradients(x, target)[1]
    return {
        name: np.abs(found[name] - array).max() / max(np.abs(array).max(), 1e-30)
        for name, array in wanted.items()
    }


def check_network(network, output, loss="square", batch=2, threads=2, **options):
    """Outputs, loss and gradients of a network against float64; what was found, as bytes."""
    parameters, x, target, expected, wanted = drawn_case(network, output, loss, batch, 0)
    with model_of(network, output, batch=batch, threads=threads, loss=loss, **options) as model:
        model.set_parameters(parameters)
        found = {"forward": model.forward(x)}
        value, gradients = model.loss_and_gradients(x, target)
        bits = [array.tobytes() for array in [found["forward"], *gradients.values()]]
        found |= gradients
    assert value == pytest.approx(expected, rel=2e-5)
    assert found.keys() == wanted.keys()
    largest = max(np.abs(wanted[name]).max() for name in gradients)
    for name, array in wanted.items():
        scale = max(np.abs(array).max(), largest / 50)
        assert np.abs(found[name] - array).max() <= 2e-4 * scale, name
    return bits
