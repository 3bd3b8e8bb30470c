"""Rows of methods and runners-up add up and are in order."""

from itertools import product

import numpy as np
import pytest

from znnpy.cli.config_summary import compared
from znnpy.plan.cost import ConvShape
from znnpy.plan.joint_choice import cheapest, needed, shared_total
from znnpy.plan.types import COST_PARTS, PASSES, Costs, Method, PartSeconds

METHODS = [Method("direct"), Method("spectral", (8, 8, 8)), Method("spectral", (16, 16, 16))]


@pytest.mark.parametrize("seed", range(20))
def test_passes_add_up_and_the_runner_up_is_the_best_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = {
        method: {part: float(rng.random()) for part in (COST_PARTS if method.tile else PASSES)}
        for method in METHODS
    }
    shape = ConvShape(16, 16, (3,) * 3, (1,) * 3, (1,) * 3, (14,) * 3, (12,) * 3, 1)
    layer = cheapest(costs)
    rows = compared(shape, layer, costs)
    by_pass = {step: layer.method(step) for step in PASSES}
    assert sum(row.seconds for row in rows) == pytest.approx(shared_total(by_pass, costs))
    for row, step in zip(rows, PASSES, strict=True):
        best = min(
            shared_total(by_pass | {step: method}, costs)
            for method in METHODS
            if method != row.method
        )
        assert row.other_seconds is not None
        assert row.other_seconds - row.seconds == pytest.approx(best - shared_total(by_pass, costs))
        assert row.other_seconds >= row.seconds
    every = [dict(zip(PASSES, chosen, strict=True)) for chosen in product(METHODS, repeat=3)]
    assert min(shared_total(it, costs) for it in every) == shared_total(by_pass, costs)


def test_a_pass_that_nobody_needs_has_no_row_and_one_method_no_runner_up() -> None:
    costs: Costs = {METHODS[0]: dict.fromkeys(PASSES, 1.0)}
    shape = ConvShape(
        1, 16, (3,) * 3, (1,) * 3, (1,) * 3, (14,) * 3, (12,) * 3, 1, ("forward", "weight")
    )
    rows = compared(shape, cheapest(costs), costs)
    assert [(row.step, row.seconds, row.other) for row in rows] == [
        ("forward", 1.0, None),
        ("weight", 1.0, None),
    ]


def test_tasks_that_make_both_gradients_are_half_of_each() -> None:
    lines: PartSeconds = {"forward": 3.0, "gradient": 0.5, "weight": 1.0, "gradients": 4.0}
    costs: Costs = {Method("winograd"): lines, Method("direct"): dict.fromkeys(PASSES, 9.0)}
    shape = ConvShape(16, 16, (3, 1, 1), (1,) * 3, (1,) * 3, (14,) * 3, (12, 14, 14), 1)
    rows = compared(shape, cheapest(costs), costs)
    assert [(row.step, row.seconds) for row in rows] == [
        ("forward", 3.0), ("gradient", 2.5), ("weight", 3.0)
    ]  # fmt: skip


def test_a_pass_without_tasks_of_its_own_takes_its_half() -> None:
    """Where all that makes the filters' gradient makes the data's, too."""
    lines: PartSeconds = {"forward": 3.0, "gradient": 0.5, "gradients": 4.0}
    shape = ConvShape(16, 16, (3, 1, 1), (1,) * 3, (1,) * 3, (14,) * 3, (12, 14, 14), 1)
    for least in (1.0, 9.0):
        costs: Costs = {Method("winograd"): lines, Method("direct"): dict.fromkeys(PASSES, least)}
        rows = compared(shape, cheapest(needed(costs, shape)), costs)
        found = [(row.step, row.seconds, row.other_seconds) for row in rows]
        ours = [("forward", 3.0, 9.0), ("gradient", 2.5, 11.0), ("weight", 2.0, 11.0)]
        theirs = [("forward", 1.0, 3.0), ("gradient", 1.0, 4.5), ("weight", 1.0, 4.0)]
        assert found == (ours if least == 9 else theirs)
