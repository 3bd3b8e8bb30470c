"""A model that takes milliseconds, and random data for it."""

import numpy as np
from model_settings import model_of
from odd_networks import network, size


def small(output=(3, 3, 3), **options):
    net = network(
        [("x", "input", 1), ("a", "transfer", 4, {"function": "tanh"}), ("y", "transfer", 2)],
        [("conv", "x", "a", size(3, 3, 3)), ("conv", "a", "y", size(3, 3, 3))],
    )
    return model_of(net, output, **{"threads": 1, "conv": "direct", **options})


def data(model, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((model.batch, 1, *model.input_shape)).astype(np.float32)
    target = rng.random((model.batch, 2, *model.output_shape)).astype(np.float32)
    return x, target / target.sum(axis=1, keepdims=True)  # what every loss takes
