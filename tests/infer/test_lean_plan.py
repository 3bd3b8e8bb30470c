"""Plans that take little memory for a little more time."""

from __future__ import annotations

import pytest

from znnpy import Execution, Model
from znnpy.geometry import Geometry, fit
from znnpy.infer import forward_costs
from znnpy.infer.forward_costs import HARDLY, forward_plan, forward_seconds, lean_plan
from znnpy.network import Network, load_network

PATCH = (32, 64, 64)


@pytest.fixture(scope="module")
def network() -> Network:
    keys = {"widths": [32, 64, 128, 256], "pool": "strided", "norm": "instance", "size": 3}
    return load_network({"unet": keys})


@pytest.fixture(scope="module")
def geometry(network: Network) -> Geometry:
    return fit(network, PATCH)


def test_less_memory_for_a_little_more_time(network: Network, geometry: Geometry) -> None:
    quickest, lean = forward_plan(network, geometry, "auto"), lean_plan(network, geometry, "auto")
    assert not any(layer.uses("spectral") or layer.uses("fft") for layer in lean.layers.values())
    times = [forward_seconds(network, geometry, plan) for plan in (quickest, lean)]
    assert times[0] < times[1] <= HARDLY * times[0]
    sizes = []
    for plan in (quickest, lean):
        execution = Execution(lean=plan is lean)
        record = plan.to_record()
        with Model(network, PATCH, plan=record, training=False, execution=execution) as model:
            sizes.append(model.memory)
    assert sizes[1] < 0.5 * sizes[0]
    assert {layer.forward for layer in lean.layers.values()} == {"direct", "winograd"}
    # Where filters are many and images small they are transformed on the way, which takes no memory.
    assert lean.layers["down3.conv2"].forward == lean.layers["up0.conv2"].forward == "winograd"


def test_speed_is_not_given_up(
    network: Network, geometry: Geometry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_costs, "HARDLY", 1.0)
    assert lean_plan(network, geometry, "auto") == forward_plan(network, geometry, "auto")


def test_transformed_filters_take_the_room_of_an_image_at_most(
    network: Network, geometry: Geometry, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = lean_plan(network, geometry, "auto")
    monkeypatch.setattr(forward_costs, "ROOM", 0.01)
    least = lean_plan(network, geometry, "auto")
    monkeypatch.setattr(forward_costs, "ROOM", 1000.0)
    monkeypatch.setattr(forward_costs, "FILTER_RATE", float("inf"))
    assert lean_plan(network, geometry, "auto") == forward_plan(
        network, geometry, "auto", without=forward_costs.SPECTRA
    )
    times = [forward_seconds(network, geometry, plan) for plan in (usual, least)]
    assert times[0] < times[1]


def test_what_the_config_names_is_taken(network: Network, geometry: Geometry) -> None:
    for conv in ("direct", "spectral"):
        plan = lean_plan(network, geometry, conv)
        assert plan == forward_plan(network, geometry, conv)
