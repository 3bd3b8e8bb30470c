"""Which algorithm is chosen, and what a saved plan may say."""

from itertools import product

import numpy as np
import pytest

from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PASSES, LayerPlan, Plan, choose
from znnpy.plan.choose import cheapest


def network(size=3, stride=1, images=8):
    nodes = (Node("input", "input", images), Node("out", "transfer", images))
    edge = Edge("c", "conv", "input", "out", size=(size,) * 3, stride=(stride,) * 3)
    return Network(nodes, (edge,))


def chosen(net, conv, costs=None, shape=(16, 16, 16)):
    def measure(shape):
        assert costs is not None, "measured although the estimates are clear"
        return costs

    return choose(net, fit(net, shape), 1, conv, measure).layers["c"]


def costs(direct, fft, shared):
    parts = {f"direct {step}": cost for step, cost in zip(PASSES, direct, strict=True)}
    parts |= {f"fft {step}": cost for step, cost in zip(PASSES, fft, strict=True)}
    return parts | dict(zip(("images", "filters", "gradients"), shared, strict=True))


def test_what_is_told_is_done():
    assert chosen(network(), "fft").forward == "fft"
    assert chosen(network(), "direct").weight == "direct"
    assert chosen(network(stride=2), "fft").forward == "direct"


def test_small_filters_are_not_even_measured():
    assert chosen(network(size=1), "auto").uses("fft") is False


def test_huge_spectra_are_not_tried():
    layer = chosen(network(size=9, images=200), "auto", shape=(40, 40, 40))
    assert layer.forward == "direct"
    assert "GiB" in layer.reason


def test_shared_spectra_count_once():
    layer = cheapest(costs((5, 5, 5), (1, 1, 1), (3, 3, 3)))
    assert (layer.forward, layer.gradient, layer.weight) == ("fft", "fft", "fft")
    layer = cheapest(costs((5, 5, 5), (0.5, 1, 6), (2, 2, 9)))
    assert (layer.forward, layer.gradient, layer.weight) == ("fft", "direct", "direct")


@pytest.mark.parametrize("seed", range(5))
def test_the_cheapest_is_the_least_of_all(seed):
    rng = np.random.default_rng(seed)
    given = costs(rng.random(3), rng.random(3) / 2, rng.random(3) / 2)
    layer = cheapest(given)

    def total(forward, gradient, weight):
        steps = zip((forward, gradient, weight), PASSES, strict=True)
        sum_ = sum(given[f"{how} {step}"] for how, step in steps)
        sum_ += given["images"] * ("fft" in (forward, weight))
        sum_ += given["filters"] * ("fft" in (forward, gradient))
        return sum_ + given["gradients"] * ("fft" in (gradient, weight))

    least = min(total(*how) for how in product(("direct", "fft"), repeat=3))
    assert total(layer.forward, layer.gradient, layer.weight) == pytest.approx(least)


def test_records_are_read_back_and_checked():
    plan = Plan({"c": LayerPlan("fft", "direct", "fft", "because")})
    assert Plan.from_record(plan.to_record(), network()) == plan
    with pytest.raises(PlanError, match=r"layers \['d'\], the network has \['c'\]"):
        Plan.from_record({"d": plan.to_record()["c"]}, network())
    with pytest.raises(PlanError, match="fft in 'c', which has a true stride"):
        Plan.from_record(plan.to_record(), network(stride=2))
    record = plan.to_record()
    record["c"]["weight"] = "winograd"
    with pytest.raises(PlanError, match="'winograd' in the weight pass of 'c'"):
        Plan.from_record(record, network())
