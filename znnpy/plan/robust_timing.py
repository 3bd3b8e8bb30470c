"""Times the methods of a layer until the cheapest is certain, although other processes disturb timings.

Disturbance only adds time, and seldom to the same task twice: of every task the least time counts. Methods are timed
in turns, so that a disturbance slows all of them. Methods that may be chosen are timed until more looks change
little; clearly slower ones are dropped soon, unless the estimate says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from znnpy.plan.choose import estimated_seconds
from znnpy.plan.cost import ConvShape
from znnpy.plan.joint_choice import needed, total
from znnpy.plan.types import CostPart, Costs, Method

Look = Mapping[CostPart, NDArray[np.float64]]
"""Seconds of each task of a method, by part of its cost; tasks always in the same order."""

# More looks find smaller minima on a busy machine and take longer at a first start;
# docs/design/convolution.md, "auto".
FEWEST, SECOND_LOOKS, MOST = 2, 4, 12  # looks: at losers; where the estimate differs; at anything
# Larger: losers are timed on. Smaller: one disturbed look drops the fastest method.
CLOSE = 1.2  # times the least cost: may be chosen
# Times the least cost: not looked at twice, as no disturbance that is likely makes so much of it.
LOST = 2.0
# The same after two looks, of which the least times count.
DOUBTFUL = 1.5
STEADY = 0.01  # of the least cost: less changes nothing


def settle(shape: ConvShape, methods: Sequence[Method], look: Callable[[Method], Look]) -> Costs:
    """Return the seconds by part of all methods; `look` times one run of a layer by one of them."""
    least: dict[Method, Look] = {}
    steady = dict.fromkeys(methods, False)
    promising = _promising(shape, methods)
    waiting, looks = list(methods), 0
    while waiting:
        looks += 1
        # Costs before this round, against which `_saved` tells what another look brought.
        before = _costs(least)
        # Turns: a disturbance that lasts for a round slows all methods that are compared.
        for method in waiting:
            least[method] = _least(least.get(method), look(method))
        # Only passes that the layer needs may decide which method is close.
        costs = needed(_costs(least), shape)
        close, best = _close(methods, costs, CLOSE)
        left = _close(methods, costs, LOST if looks < FEWEST else DOUBTFUL)[0]
        if looks >= FEWEST:
            for method in waiting:
                steady[method] = _saved(method, before, costs) <= STEADY * best
        waiting = [
            method
            for method in waiting
            if (looks < FEWEST and method in left)
            or (looks < SECOND_LOOKS and method in promising & left)
            or (looks < MOST and method in close and not steady[method])
        ]
    return _costs(least)


def _promising(shape: ConvShape, methods: Sequence[Method]) -> set[Method]:
    """Return the methods that may be chosen by the estimates."""
    expected = {method: estimated_seconds(shape, method) for method in methods}
    return {method for method in methods if expected[method] <= CLOSE * min(expected.values())}


def _close(methods: Sequence[Method], costs: Costs, most: float) -> tuple[set[Method], float]:
    """Return the methods in any combination that costs at most `most` times the cheapest, and the cheapest cost."""
    # Combinations rather than methods: a method that is slow in sum may be the best for one pass.
    totals = {chosen: total(chosen, costs) for chosen in product(methods, methods, methods)}
    best = min(totals.values())
    near = (chosen for chosen, seconds in totals.items() if seconds <= most * best)
    return {method for chosen in near for method in chosen}, best


def _least(known: Look | None, new: Look) -> Look:
    if known is None:
        return new
    # Task by task: one that was disturbed in this look was seldom disturbed in the others.
    return {part: np.minimum(known[part], seconds) for part, seconds in new.items()}


def _costs(least: Mapping[Method, Look]) -> Costs:
    return {
        method: {part: float(tasks.sum()) for part, tasks in look.items()}
        for method, look in least.items()
    }


def _saved(method: Method, before: Costs, after: Costs) -> float:
    """Return by how many seconds the last look lowered the cost of a method."""
    return sum(seconds - after[method][part] for part, seconds in before[method].items())
