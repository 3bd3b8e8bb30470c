"""In prediction few channels lie planar behind transposed convolutions, with tied slopes and shortcuts, too."""

from __future__ import annotations

import numpy as np
import pytest
import random_networks as rn
from model_settings import model_of
from odd_networks import network

from znnpy import reference
from znnpy.engine.memory.layout import Layout
from znnpy.geometry import fit
from znnpy.network.types import Network
from znnpy.plan import LayerPlan, Method, Plan
from znnpy.plan.cost import MOST_PLANAR

DIRECT, WINOGRAD = Method("direct"), Method("winograd")
few = pytest.mark.skipif(MOST_PLANAR < 2, reason="vectors of four floats")
SLOPES = {"function": "prelu", "tied": True}


class Drawn:
    """The end of a U-Net with residual units: it grows to few channels, which a shortcut leads around a layer."""

    def __init__(self, seed: int, function: dict[str, object] = SLOPES) -> None:
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, MOST_PLANAR + 1))
        size, stride = (int(n) for n in rng.integers(1, 5, 2)), (
            *(int(n) for n in rng.integers(1, 4, 2)), int(rng.integers(2, 4)),
        )  # fmt: skip
        size = (*size, int(rng.integers(1, 6)))
        padding = tuple((int(rng.integers((n + 1) // 2)),) * 2 for n in size)
        more = tuple(int(rng.integers(n)) for n in stride)
        self.batch = int(rng.integers(1, 3))
        low = [*rng.integers(3, 6, 2).tolist(), int(rng.integers(3, 30))]
        self.output = tuple(
            (n - 1) * s + k - 2 * p + m
            for n, s, k, (p, _), m in zip(low, stride, size, padding, more, strict=True)
        )
        many = int(rng.choice([9, 17, 33]))
        self.net = network(
            [("x", "input", 1), ("m", "transfer", many), ("a", "transfer", count, function),
             ("b", "transfer", count), ("y", "sum", count)],
            [("conv", "x", "m", {"size": (1, 1, 1), "stride": stride}),
             ("conv_transpose", "m", "a",
              {"size": size, "stride": stride, "padding": padding, "output_padding": more}),
             ("conv", "a", "b", {"size": (3, 3, 3), "padding": ((1, 1),) * 3}),
             ("identity", "b", "y"), ("identity", "a", "y")],
        )  # fmt: skip


def planned(by: Method) -> Plan:
    """Direct convolution, but for the layer between few channels."""
    direct = LayerPlan.of(DIRECT, DIRECT, DIRECT)
    return Plan({"e0": direct, "e1": direct, "e2": LayerPlan.of(by, by, by)})


def planar(
    net: Network, drawn: Drawn, *, training: bool = False, by: Method = WINOGRAD
) -> set[str]:
    """Return the nodes of few channels that lie planar, but for inputs."""
    fitted = fit(net, drawn.output)
    return {*Layout(net, fitted, planned(by), drawn.batch, training=training).planar} - {"x"}


@few
@pytest.mark.lanes
@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(16))
def test_values(seed: int) -> None:
    drawn = Drawn(seed)
    assert planar(drawn.net, drawn) == {"a", "b", "y"}
    fitted, parameters = fit(drawn.net, drawn.output), rn.random_parameters(drawn.net, seed)
    inputs = rn.random_inputs(drawn.net, fitted, seed, drawn.batch)
    wanted = reference.forward(drawn.net, fitted, parameters, inputs)["y"]
    for lean in (False, True):
        with model_of(
            drawn.net, drawn.output, batch=drawn.batch, plan=planned(WINOGRAD), training=False,
            threads=1 + lean, lean=lean,
        ) as model:  # fmt: skip
            model.set_parameters(parameters)
            found = model.forward(inputs)
        assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()


@few
@pytest.mark.lanes
@pytest.mark.parametrize("count", range(1, MOST_PLANAR + 1))
@pytest.mark.parametrize("low", [1, 2])
def test_taps_further_apart_than_rows_are_long(low: int, count: int) -> None:
    """Voxels that meet no tap, some that meet one, and again some that meet none."""
    net = network(
        [("x", "input", 1), ("m", "transfer", 9), ("a", "transfer", count)],
        [("conv", "x", "m", {"size": (1, 1, 1), "stride": (1, 1, 2)}),
         ("conv_transpose", "m", "a", {"size": (1, 1, 3), "stride": (1, 1, 2), "sparsity": (1, 1, 5)})],
    )  # fmt: skip
    output = (1, 1, 2 * low + 9)
    fitted, parameters = fit(net, output), rn.random_parameters(net, 0)
    inputs = rn.random_inputs(net, fitted, 0, 1)
    plan = Plan({name: LayerPlan.of(DIRECT, DIRECT, DIRECT) for name in ("e0", "e1")})
    assert "a" in Layout(net, fitted, plan, 1, training=False).planar
    with model_of(net, output, plan=plan, training=False) as model:
        model.set_parameters(parameters)
        found = model.forward(inputs)
    wanted = reference.forward(net, fitted, parameters, inputs)["a"]
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()


@few
def test_what_else_needs_lanes() -> None:
    drawn = Drawn(0)
    # There is no kernel for the ways back, no tile for direct convolution between few, no slope for each channel.
    assert not planar(drawn.net, drawn, training=True)
    assert not planar(drawn.net, drawn, by=DIRECT)
    untied = Drawn(0, {"function": "prelu"})
    assert not planar(untied.net, untied)
