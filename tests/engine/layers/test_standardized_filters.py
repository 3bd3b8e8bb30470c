"""Networks with standardised filters: float32 beside the oracle, what users see, prediction."""

import numpy as np
import pytest
from against_reference import check_network

from znnpy import Hardware, Model, load_network, reference
from znnpy.errors import NetworkError
from znnpy.geometry import fit

OUT = (3, 4, 5)


def net(**keys):
    """Two standardised convolutions between images whose counts are no whole blocks."""
    conv = {"size": [1, 3, 3], "weight_standardization": True, "padding": "same"}
    return load_network(
        {
            "layers": [
                {"conv": {"channels": 6, "size": 1}},
                {"conv": {"channels": 36, "norm": "batch", "function": "elu", **conv, **keys}},
                {
                    "conv": {
                        "channels": 18,
                        "norm": {"kind": "group", "groups": 6},
                        "function": "relu",
                        **conv,
                        **keys,
                    }
                },
                {"conv": {"channels": 2, "size": 1}},
            ]
        }
    )


GROUPED = {"norm": {"kind": "group", "groups": 2}}


@pytest.mark.quick(3)
@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
@pytest.mark.parametrize("keys", [{}, {"groups": 3}, {"groups": 6}, {"repeat": [1, 3, 1]}])
def test_values_and_gradients_are_the_oracles(conv, keys):
    check_network(net(**GROUPED, **keys), OUT, conv=conv)


def test_depthwise():
    check_network(net(**GROUPED, groups=6, channels=6), OUT)


def test_same_bits_for_any_number_of_threads():
    found = [check_network(net(**GROUPED), OUT, threads=threads) for threads in (1, 3, 8)]
    assert all(bits == found[0] for bits in found)


def test_updates_move_what_users_see_and_set():
    network = net()
    with Model(network, OUT, threads=2, loss="square", seed=3) as model:
        before = model.parameters
        model.set_parameters(before)
        assert all(np.array_equal(model.parameters[name], before[name]) for name in before)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((1, 1, *model.input_shape)).astype(np.float32)
        y = rng.standard_normal((1, 2, *OUT)).astype(np.float32)
        _, gradients = model.loss_and_gradients(x, y)
        model.step(x, y, learning_rate=0.25)
        after = model.parameters
        for name in ("conv2", "conv3"):
            assert np.abs(gradients[name].sum((1, 2, 3, 4))).max() < 1e-4
            wanted = before[name] - np.float32(0.25) * gradients[name]
            np.testing.assert_allclose(after[name], wanted, atol=1e-7)
        values = model.forward(x)
    geometry = fit(network, OUT)
    exact = reference.forward(network, geometry, after, {"input": x})[network.outputs[0].name]
    assert np.abs(values - exact).max() < 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_prediction_by_what_was_standardised_once(precision):
    network = net()
    with Model(network, OUT, threads=1, seed=3, hardware=Hardware(precision=precision)) as model:
        given = model.parameters
        x = np.random.default_rng(0).standard_normal((1, 1, *model.input_shape)).astype(np.float32)
        trained = model.forward(x)
    with Model(
        network, OUT, threads=1, training=False, hardware=Hardware(precision=precision)
    ) as model:
        model.set_parameters(given)
        assert set(model.parameters) == set(given)
        np.testing.assert_allclose(model.forward(x), trained, atol=1e-4 * np.abs(trained).max())


def test_filters_of_one_weight_are_refused():
    with pytest.raises(NetworkError, match="weight_standardization makes a filter of a single"):
        load_network(
            {"layers": [{"conv": {"channels": 2, "size": 1, "weight_standardization": True}}]}
        )
