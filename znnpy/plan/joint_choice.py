"""Finds the cheapest combination of methods for the three passes of a layer, with shared spectra counted once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from znnpy.plan.cost import ConvShape
from znnpy.plan.types import PASSES, SHARED, Costs, LayerPlan, Method, PassName, wanted


def needed(costs: Costs, shape: ConvShape) -> Costs:
    """Return the costs of a layer's methods with 0 for passes that are not needed."""
    return {
        method: dict.fromkeys(PASSES, 0.0)
        | {part: cost for part, cost in parts.items() if wanted(part, shape.passes)}
        for method, parts in costs.items()
    }


Combination = tuple[Method, Method, Method]
"""Of forward pass, data gradient and weight gradient."""


def cheapest(
    costs: Costs, why: str = "measured", allowed: Callable[[Combination], bool] = lambda _: True
) -> LayerPlan:
    """Return the combination of methods with the least sum, spectra that passes share counted once."""
    # All combinations: sharing makes the best method of a pass depend on those of the others. A
    # layer has ten or so methods, hence a thousand sums. `min` keeps the first of equals, in the
    # registry's order.
    combinations = filter(allowed, product(costs, costs, costs))
    chosen = min(combinations, key=lambda it: total(it, costs))
    return LayerPlan.of(*chosen, why)


def total(chosen: Combination, costs: Costs) -> float:
    """Return the seconds of all passes by these methods; each shared part counts once for each method that uses it."""
    return shared_total(dict(zip(PASSES, chosen, strict=True)), costs)


def shared_total(by_pass: Mapping[PassName, Method], costs: Costs) -> float:
    """Return the seconds of some passes by the methods given, shared parts counted once."""
    seconds = sum(costs[method][which] for which, method in by_pass.items())
    for part, steps in SHARED.items():
        # A set: two passes by the same method pay once, by different methods once each.
        users = {method for which, method in by_pass.items() if which in steps}
        seconds += sum(costs[method].get(part, 0.0) for method in users)
    return seconds
