"""Convergent sums in simulated time, against times known by hand."""

import numpy as np
import pytest

from znnpy.simulate import sum_strategies
from znnpy.simulate.sum_strategies import STRATEGIES, FanIn, simulate_sums


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch):
    monkeypatch.setattr(sum_strategies, "JITTER", 0.0)


@pytest.mark.parametrize(("strategy", "additions"), [("tree", 7), ("exchange", 8), ("lock", 8)])
def test_one_worker_makes_and_adds_everything(strategy, additions):
    fan_in = FanIn(1, 8, making=1.0, adding=0.25)
    assert simulate_sums(strategy, fan_in, 1) == pytest.approx(8 + additions * 0.25)
    assert fan_in.waited == 0


def test_eight_at_once():
    seconds, waited = {}, {}
    for strategy in STRATEGIES:
        fan_in = FanIn(1, 8, making=1.0, adding=0.25)
        seconds[strategy] = simulate_sums(strategy, fan_in, 8)
        waited[strategy] = fan_in.waited
    # A tree of three levels; one after the other; and by exchange the first two meet, and so on.
    assert seconds["tree"] == pytest.approx(1 + 3 * 0.25)
    assert seconds["lock"] == pytest.approx(1 + 8 * 0.25)
    assert seconds["tree"] < seconds["exchange"] <= seconds["lock"]
    assert waited == {"tree": 0, "exchange": 0, "lock": pytest.approx(sum(range(8)) * 0.25)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("contributions", [1, 2, 3, 5, 80])
def test_nothing_is_lost_and_no_time_is_gained(strategy, contributions):
    for workers in (1, 3, 64):
        fan_in = FanIn(4, contributions, making=1.0, adding=0.1)
        seconds = simulate_sums(strategy, fan_in, workers)
        work = 4 * (contributions + (contributions - 1) * 0.1)
        assert seconds >= work / workers - 1e-9
        assert seconds >= 1 + 0.1 * np.ceil(np.log2(contributions)) - 1e-9
