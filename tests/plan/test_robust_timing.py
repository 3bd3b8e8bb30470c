"""Noisy timings lead to a choice that costs little more than the best; quiet ones are soon believed."""

from collections import Counter

import numpy as np
import pytest

from znnpy.plan import PASSES, ConvShape, Method
from znnpy.plan.choose import candidates, estimated
from znnpy.plan.joint_choice import cheapest, shared_total, totals
from znnpy.plan.robust_timing import ALONE, CLOSE, DOUBTFUL, MOST, SECOND_LOOKS, settle

ONE = (1, 1, 1)
SHAPES = {
    "7^3": ConvShape(10, 10, (7, 7, 7), ONE, ONE, (42, 42, 42), (36, 36, 36), 1),
    "5^3": ConvShape(10, 10, (5, 5, 5), (2, 2, 2), ONE, (28, 28, 28), (20, 20, 20), 1),
    "3^3": ConvShape(40, 40, (3, 3, 3), ONE, ONE, (30, 30, 30), (28, 28, 28), 1),
}
TASKS = 40  # of each part


def true_costs(shape, rng):
    """What quiet runs would take: the estimates, off by up to a factor of two either way."""
    return {
        method: {
            part: seconds * 2.0 ** rng.uniform(-0.5, 0.5)
            for part, seconds in estimated(shape, method).items()
        }
        for method in candidates(shape)
    }


class Machine:
    """Runs that take their true time and more: others' bursts, each over many runs, and what they left of caches."""

    def __init__(self, costs, rng, load):
        self.costs, self.rng, self.load = costs, rng, load
        self.looks = Counter()
        self.burst = 0

    def __call__(self, method):
        self.looks[method] += 1
        if self.burst == 0 and self.rng.random() < self.load / 2:
            self.burst = self.rng.integers(1, 4)
        self.burst = max(0, self.burst - 1)
        slow = self.rng.uniform(1.2, 2.0) if self.burst else 1.0
        return {part: self._tasks(seconds) * slow for part, seconds in self.costs[method].items()}

    def _tasks(self, seconds):
        waits = self.rng.random(TASKS) < self.load / 3
        return seconds / TASKS * (1 + waits * self.rng.exponential(0.5, TASKS))


@pytest.mark.quick(4)
@pytest.mark.parametrize("load", [0.2, 0.6])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(10))
def test_noise_does_not_change_the_choice_by_much(name, seed, load):
    shape, rng = SHAPES[name], np.random.default_rng(seed)
    costs = true_costs(shape, rng)
    found = settle(shape, candidates(shape), Machine(costs, rng, load))
    chosen, best = cheapest(found), cheapest(costs)
    took, least = (
        shared_total({which: it.method(which) for which in PASSES}, costs) for it in (chosen, best)
    )
    assert took <= 1.1 * least


def test_sums_of_all_combinations_count_shared_parts_once():
    costs = true_costs(SHAPES["3^3"], np.random.default_rng(0))
    found, methods = totals(costs), list(costs)
    assert found.shape == (len(methods),) * 3
    assert any(parts.get("images") for parts in costs.values())
    for place in np.ndindex(found.shape):
        by_pass = {which: methods[it] for which, it in zip(PASSES, place, strict=True)}
        assert found[place] == shared_total(by_pass, costs)


def test_quiet_timings_are_soon_believed():
    shape = SHAPES["3^3"]
    machine = Machine(true_costs(shape, np.random.default_rng(0)), np.random.default_rng(1), 0.0)
    costs = settle(shape, candidates(shape), machine)
    for method, parts in costs.items():
        assert parts == pytest.approx(machine.costs[method])
    assert max(machine.looks.values()) <= SECOND_LOOKS


def constant(direct, spectral, first=1.0):
    """Timings of two methods, a pass, the second `first` times as slow at first, and less and less so."""
    looks = Counter()

    def look(method):
        looks[method] += 1
        seconds = spectral if method.tile else direct
        slow = max(1.0, first / looks[method]) if method.tile else 1.0
        return {step: np.full(4, seconds * slow) for step in PASSES}

    return look, looks


def test_what_contradicts_the_estimate_is_looked_at_again():
    shape, methods = SHAPES["7^3"], [Method("direct"), Method("spectral", (16, 16, 16))]
    look, looks = constant(2.0, 1.0, first=4.0)  # the estimate is for the tiles
    costs = settle(shape, methods, look)
    assert cheapest(costs).forward == "spectral"
    assert looks[methods[1]] >= ALONE
    look, looks = constant(1.0, 8.0)  # nothing speaks for direct but what is measured
    assert cheapest(settle(shape, methods, look)).forward == "direct"


def test_losers_are_left_soon():
    shape, methods = SHAPES["7^3"], [Method("direct"), Method("spectral", (16, 16, 16))]
    look, looks = constant(1.0 + 2.0 * CLOSE, 1.0)
    settle(shape, methods, look)
    assert looks[methods[0]] == 2


def test_of_long_looks_losers_have_one():
    shape, methods = SHAPES["7^3"], [Method("direct"), Method("spectral", (16, 16, 16))]
    look, looks = constant(1.0 + 1.5 * DOUBTFUL, 1.0)
    settle(shape, methods, look, lambda method: method == methods[0])
    assert looks[methods[0]] == 1
    look, looks = constant(1.0 + 0.5 * DOUBTFUL, 1.0)
    settle(shape, methods, look, lambda _: True)
    assert looks[methods[0]] == 2


@pytest.mark.parametrize(("long", "most"), [(False, ALONE), (True, 2)])
def test_what_is_left_alone_is_not_looked_at_until_it_is_steady(long, most):
    looks = Counter()

    def look(method):
        looks[method] += 1
        slow = 4.0 if method.tile else 1.0
        return {step: np.full(4, slow * (1.0 + 1.0 / looks[method])) for step in PASSES}

    methods = [Method("direct"), Method("spectral", (16, 16, 16))]
    settle(SHAPES["7^3"], methods, look, lambda _: long)
    assert looks[methods[0]] == most


def test_unsteady_timings_come_to_an_end():
    rng = np.random.default_rng(0)
    methods, looks = [Method("direct"), Method("spectral", (16, 16, 16))], Counter()

    def look(method):
        looks[method] += 1
        return {step: 1.0 / looks[method] + rng.random(4) / 100 for step in PASSES}

    settle(SHAPES["7^3"], methods, look)
    assert looks == dict.fromkeys(methods, MOST)


def test_tiles_that_are_hopeless_by_another_one_are_not_run():
    shape = SHAPES["3^3"]
    tiles = [it for it in candidates(shape) if it.tile]
    seconds = {it: sum(estimated(shape, it).values()) for it in tiles}
    near, far = min(tiles, key=seconds.get), Method("spectral", (32, 32, 6))
    ratio = sum(estimated(shape, far).values()) / seconds[near]
    looks = Counter()

    def look(method):
        looks[method] += 1
        slow = 1.0 if method == Method("direct") else 4.0
        return {part: np.full(4, 0.25 * slow * it) for part, it in estimated(shape, near).items()}

    costs = settle(shape, [Method("direct"), near, far], look)
    assert far not in looks
    assert looks[near] > 0
    assert sum(costs[far].values()) == pytest.approx(ratio * sum(costs[near].values()), rel=0.5)


def test_what_is_hopeless_at_its_best_is_not_run():
    shape, methods = SHAPES["3^3"], [Method("winograd"), Method("direct")]
    look, looks = constant(1.0, 1.0)
    for least, run in ((3.0, False), (1.2, True)):
        looks.clear()
        bounds = {methods[1]: dict.fromkeys(PASSES, 4.0 * least)}
        costs = settle(shape, methods, look, bounds=bounds)
        assert (methods[1] in looks) == run
        assert run or costs[methods[1]] == bounds[methods[1]]


def test_a_disturbed_look_rules_out_no_other_tile():
    shape = SHAPES["3^3"]
    tiles = sorted(
        (it for it in candidates(shape) if it.tile),
        key=lambda it: sum(estimated(shape, it).values()),
    )[:2]
    for lasting, long in ((False, True), (True, True), (True, False)):
        looks = Counter()

        def look(method, looks=looks, lasting=lasting):
            looks[method] += 1
            slow = 1.7 if method.tile and (lasting or looks[method] == 1) else 1.0
            base = estimated(shape, method if method.tile else tiles[0])
            return {part: np.full(4, slow * it / 4) for part, it in base.items()}

        costs = settle(shape, [Method("direct"), *tiles], look, lambda _, long=long: long)
        assert (looks[tiles[1]] == 0) == (lasting and long)
        assert looks[tiles[0]] >= 2
        assert costs[tiles[1]].keys() >= set(PASSES)
