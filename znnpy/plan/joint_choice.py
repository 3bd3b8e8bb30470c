"""Finds the cheapest combination of methods for the three passes of a layer, with shared spectra counted once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

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
    # layer has ten or so methods, hence a thousand sums. The first of equals, in the registry's order.
    methods, sums = list(costs), totals(costs)
    for place in np.argsort(sums, axis=None, kind="stable"):
        forward, gradient, weight = (methods[it] for it in np.unravel_index(place, sums.shape))
        if allowed((forward, gradient, weight)):
            return LayerPlan.of(forward, gradient, weight, why)
    raise ValueError("no combination of methods is allowed")


def totals(costs: Costs) -> NDArray[np.float64]:
    """Return `shared_total` of all combinations, by number of the method of each pass (forward, gradient, weight)."""
    ways, total = costs.values(), np.zeros(3 * (len(costs),))
    for axis, which in enumerate(PASSES):
        total += _along([parts[which] for parts in ways], axis)
    same = np.eye(len(costs), dtype=bool)
    for part, steps in SHARED.items():
        seconds = [parts.get(part, 0.0) for parts in ways]
        one, other = (_along(seconds, PASSES.index(which)) for which in steps)
        total += np.where(np.expand_dims(same, _without(steps)), one, one + other)
    return total


def _along(seconds: Sequence[float], axis: int) -> NDArray[np.float64]:
    """Return numbers by method as those of the pass of an axis."""
    return np.expand_dims(np.array(seconds), [it for it in range(len(PASSES)) if it != axis])


def _without(steps: Sequence[PassName]) -> int:
    """Return the axis of the pass that is not among these two."""
    return next(axis for axis, which in enumerate(PASSES) if which not in steps)


def shared_total(by_pass: Mapping[PassName, Method], costs: Costs) -> float:
    """Return the seconds of some passes by the methods given, shared parts counted once."""
    seconds = sum(costs[method][which] for which, method in by_pass.items())
    for part, steps in SHARED.items():
        # Two passes by the same method pay once, by different methods once each. Not a set: the order of the sum, and
        # so its last bit, would be another in each process.
        users = dict.fromkeys(method for which, method in by_pass.items() if which in steps)
        seconds += sum(costs[method].get(part, 0.0) for method in users)
    return seconds
