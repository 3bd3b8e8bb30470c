"""prelu with one slope for all channels: values, gradients, updates, bits; beside slopes of each channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy import Optimizer, load_network
from znnpy.engine.tasks import fusion
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.errors import ConfigError
from znnpy.network import network_to_section, parameter_shapes
from znnpy.network.types import Network

OUT = (3, 4, 5)


def network(norm: Any = None, channels: int = 20, *, tied: bool = True) -> Network:
    own = {"function": "prelu", "tied": tied, "norm": norm, "bias": True}
    layers = [
        {"conv": {"channels": channels, "size": 2, **own}},
        {"conv": {"channels": 3, "size": 1, **own}},
    ]
    return load_network({"input": 2, "layers": layers})


def batch(count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 2, 4, 5, 6)), rng.normal(size=(count, 3, *OUT))


@pytest.mark.parametrize("norm", [None, "instance", "channel"])
def test_gradients_are_those_of_float64_and_sums_of_those_of_channels(norm: Any) -> None:
    net, (x, y) = network(norm), batch()
    assert parameter_shapes(net)["layer1.slopes"] == (1,)
    keys: dict[str, Any] = {"batch": 2, "threads": 1, "loss": "square"}
    with (
        model_of(net, OUT, **keys) as own,
        model_of(net, OUT, precision="float64", **keys) as double,
        model_of(network(norm, tied=False), OUT, precision="float64", **keys) as apart,
    ):
        given = {name: array + 0.1 for name, array in own.parameters.items()}
        for one in (own, double):
            one.set_parameters(given)
        apart.set_parameters(
            {n: np.broadcast_to(given[n], a.shape) for n, a in apart.parameters.items()}
        )
        loss, gradients = own.loss_and_gradients(x, y)
        wanted_loss, wanted = double.loss_and_gradients(x, y)
        _, each = apart.loss_and_gradients(x, y)
        np.testing.assert_allclose(own.forward(x), double.forward(x), rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    for name, array in wanted.items():
        atol = 1e-4 * abs(array).max() + 1e-7
        np.testing.assert_allclose(gradients[name], array, rtol=1e-3, atol=atol, err_msg=name)
        if name.endswith(".slopes"):
            assert array == pytest.approx(each[name].sum(), rel=1e-9)


def test_updates_as_in_float64_and_the_same_bits_for_any_number_of_workers() -> None:
    net, (x, y), found = network("instance"), batch(4), {}
    for key in (1, 2, 6, "float64"):
        how: Any = {"threads": key} if isinstance(key, int) else {"threads": 1, "precision": key}
        # The norm of all gradients counts the slope once.
        optimizer = Optimizer("adam", ema=0.5)
        with model_of(
            net,
            OUT,
            batch=4,
            microbatch=2,
            clip_norm=0.1,
            optimizer=optimizer,
            loss="square",
            **how,
        ) as own:
            for _ in range(3):
                own.step(x, y, learning_rate=0.01)
            found[key] = own.parameters
            assert own.averaged_parameters["layer1.slopes"].shape == (1,)
    for name, array in found[1].items():
        assert array.tobytes() == found[2][name].tobytes() == found[6][name].tobytes()
        np.testing.assert_allclose(
            array, found["float64"][name], rtol=2e-3, atol=2e-4, err_msg=name
        )


@pytest.mark.parametrize("conv", ["direct", "winograd"])
@pytest.mark.parametrize("groups", [1, 2])
def test_predictions_apply_it_in_passing(
    conv: Any, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as a pass of its own; bands of groups have one slope."""
    own = {"function": "prelu", "tied": True, "bias": True, "size": 3}
    layers = [
        {"conv": {"channels": 32, **own}},
        {"conv": {"channels": 32, **own, "groups": groups}},
    ]
    net = load_network({"input": 2, "layers": layers})

    def values(precision: Any = "float32") -> tuple[np.ndarray, int]:
        how: Any = {"conv": conv} if precision == "float32" else {}
        with model_of(net, OUT, training=False, precision=precision, loss="square", **how) as model:
            rng = np.random.default_rng(1)
            model.set_parameters(
                {name: rng.normal(size=it.shape) / 5 for name, it in model.parameters.items()}
            )
            given = np.random.default_rng(2).normal(size=(1, 2, *model.input_shape))
            tasks = [] if how == {} else identities(model.task_graph)
            return model.forward(given), sum(it.part is Part.FUNCTION for it in tasks)

    found, passes = values()
    wanted, _ = values("float64")
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()
    monkeypatch.setattr(fusion, "_sloped", lambda layout, node: node.function)
    apart, more = values()
    assert found.tobytes() == apart.tobytes()
    assert passes == 0
    assert more > 0


def test_it_is_said_in_configs_and_refused_elsewhere() -> None:
    net = network()
    assert load_network(network_to_section(net).model_dump(by_alias=True, exclude_none=True)) == net
    with pytest.raises(ConfigError, match="only prelu has this; the function is relu"):
        load_network(
            {"layers": [{"conv": {"channels": 2, "size": 1, "function": "relu", "tied": True}}]}
        )
