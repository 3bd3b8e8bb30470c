"""Which algorithms are chosen: by what is measured, remembered, or has no room to be measured."""

import warnings

import pytest

from znnpy import load_network
from znnpy.engine import autotune, timing
from znnpy.engine.progress import MEASURING
from znnpy.engine.single_layer import Lone
from znnpy.geometry import fit
from znnpy.plan import PASSES, ConvShape, LayerPlan, Method
from znnpy.plan.algorithms import winograd
from znnpy.plan.joint_choice import cheapest, needed
from znnpy.plan.types import MARCHES
from znnpy.plan.wisdom import recall, remember

ONE = (1, 1, 1)
SMALL = ConvShape(2, 3, (3, 3, 3), ONE, ONE, (12, 12, 12), (10, 10, 10), 1)
WIDE = ConvShape(16, 16, (3, 3, 3), ONE, ONE, (30, 30, 30), (28, 28, 28), 4)


def test_preparations_are_told_and_what_is_known_is_not_measured_again(monkeypatch, tmp_path):
    monkeypatch.setattr("znnpy.plan.wisdom.path", lambda: tmp_path / "wisdom.json")
    told: list[tuple[str, int, int]] = []
    autotune.measure_all([SMALL], lambda *args: told.append(args))
    assert (MEASURING, 0, 1) in told
    assert told[-1] == (MEASURING, 1, 1)
    told.clear()
    autotune.measure_all([SMALL], lambda *args: told.append(args))
    assert told == []


def test_layers_wait_for_missing_kernels_and_others_do_not(monkeypatch, tmp_path):
    monkeypatch.setattr("znnpy.plan.wisdom.path", lambda: tmp_path / "wisdom.json")
    done, lacking = [], Lone.of(SMALL, Method("direct")).kernels
    monkeypatch.setattr(
        autotune, "_absent", lambda asked: asked & lacking if not lacking - asked else set()
    )
    monkeypatch.setattr(autotune, "compile_all", lambda kernels, *_: done.append(set(kernels)))
    monkeypatch.setattr(autotune, "measured", lambda shape, *_: done.append(shape))
    autotune.measure_all([SMALL, WIDE])
    assert done == [WIDE, lacking, SMALL]


@pytest.mark.parametrize("faster", MARCHES)
def test_marches_are_measured_and_the_faster_one_is_kept(monkeypatch, tmp_path, faster):
    """Whole trials, of which one march is told nine times the time that it took."""
    monkeypatch.setattr("znnpy.plan.wisdom.path", lambda: tmp_path / "wisdom.json")
    shape = ConvShape(8, 8, (3, 3, 3), ONE, ONE, (34, 34, 34), (32, 32, 32), 1)
    methods = winograd.candidates(shape, march_known=False)
    costs = timing.timed(shape, methods)
    joined = {it.march: "gradients" in parts for it, parts in costs.items()}
    assert joined == {"apart": False, "joined": True}
    told = {
        it: {part: seconds * (1 if it.march == faster else 9) for part, seconds in parts.items()}
        for it, parts in costs.items()
    }
    assert remember("layer", told, methods) == told == recall("layer", methods)
    by = Method("winograd", march=faster)
    assert cheapest(needed(told, shape)) == LayerPlan.of(by, by, by, "measured")


NET = {
    "layers": [
        {"conv": {"channels": 16, "size": 3, "function": "relu"}},
        {"conv": {"channels": 17, "size": 3, "function": "relu"}},
        {"conv": {"channels": 18, "size": 3, "function": "relu"}},
    ]
}


@pytest.fixture(name="plans")
def _plans(monkeypatch, tmp_path):
    """Plans of NET within a limit, with what is said, by costs that prefer all to direct, least of all direct."""
    monkeypatch.setattr("znnpy.plan.wisdom.path", lambda: tmp_path / "wisdom.json")
    monkeypatch.setattr(autotune, "_absent", lambda _: set())
    order = ("winograd", "spectral", "fft", "direct")

    def timed(shape, methods, max_memory=None, bench=None):
        return {it: dict.fromkeys(PASSES, 1.0 + order.index(it.algorithm)) for it in methods}

    monkeypatch.setattr(timing, "timed", timed)
    net = load_network(NET)

    def plan(limit):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = autotune.planned(net, fit(net, (8, 8, 8)), 1, "auto", None, max_memory=limit)
        return found.layers["conv3"], [str(it.message) for it in said]

    return plan


def needs(monkeypatch, **bytes_):
    monkeypatch.setattr(timing, "lone_bytes", lambda _, method: bytes_.get(method.algorithm, 1))


def test_what_has_no_room_is_left_out_on_each_start_and_said_once_for_all_layers(
    plans, monkeypatch
):
    needs(monkeypatch, winograd=1 << 30, spectral=1 << 30, fft=1 << 30)
    for _ in range(2):
        layer, (said,) = plans(30 << 20)
        assert (layer.forward, layer.reason) == ("direct", "measured")
        assert said.startswith("max_memory of 30.0 MiB has no room to measure layers of ")
        assert "; 17 to 18 channels by winograd" in said
        assert said.count("(others are chosen among)") >= 2
        assert "estimate" not in said


def test_what_was_measured_without_a_limit_competes_where_it_has_room(plans, monkeypatch):
    needs(monkeypatch, winograd=1 << 30, spectral=1 << 30, fft=1 << 30)
    layer, said = plans(None)
    passes = layer.forward, layer.gradient, layer.weight
    assert (passes, layer.reason, said) == (("winograd",) * 3, "measured", [])
    layer, (said,) = plans(30 << 20)
    assert (layer.forward, layer.gradient, layer.weight) == ("direct",) * 3
    assert "; 17 to 18 channels by winograd" in said
    needs(monkeypatch, **dict.fromkeys(("winograd", "spectral", "fft", "direct"), 1 << 30))
    layer, _ = plans(30 << 20)
    assert layer.reason == "estimated"


def test_where_nothing_has_room_estimates_choose_and_are_not_kept(plans, monkeypatch):
    needs(monkeypatch, **dict.fromkeys(("winograd", "spectral", "fft", "direct"), 1 << 30))
    for _ in range(2):
        layer, (said,) = plans(30 << 20)
        assert layer.reason == "estimated"
        assert "; 17 to 18 channels by any algorithm (estimates choose)" in said
    needs(monkeypatch)
    layer, said = plans(30 << 20)
    assert (layer.forward, layer.reason, said) == ("winograd", "measured", [])


def test_plans_that_are_not_measured_say_so():
    net = load_network(NET)
    geometry = fit(net, (8, 9, 8))
    plan = autotune.planned(net, geometry, 1, "auto", None, measuring=False, max_memory=1 << 30)
    assert plan.layers["conv3"].reason == "unmeasured"


def test_what_was_measured_in_little_memory_serves_no_one_with_more(monkeypatch, tmp_path):
    monkeypatch.setattr("znnpy.plan.wisdom.path", lambda: tmp_path / "wisdom.json")
    made = []

    def timed(shape, methods, max_memory=None, bench=None):
        made.append(max_memory)
        return {method: {"forward": float(len(made))} for method in methods}

    monkeypatch.setattr(timing, "timed", timed)
    small, large = 1 << 26, 1 << 40
    for limit in (small, small, large, small, None):
        autotune.measured(WIDE, limit)
    assert made == [small, None]  # without a limit that matters, for all
