"""Times the methods of a layer until the cheapest is certain, although other processes disturb timings.

Disturbance only adds time, and seldom to the same task twice: of every task the least time counts, and of that only
what this thread ran for. Methods are timed in turns, so that a disturbance slows all of them. Methods that may be
chosen are timed until more looks change little; clearly slower ones are dropped soon, unless the estimate says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from znnpy.plan.choose import estimated, estimated_seconds
from znnpy.plan.cost import ConvShape
from znnpy.plan.joint_choice import needed, totals
from znnpy.plan.types import PASSES, SHARED, CostPart, Costs, Method, PartSeconds

Look = Mapping[CostPart, NDArray[np.float64]]
"""Seconds of each task of a method, by part of its cost; tasks always in the same order."""

# More looks find smaller minima on a busy machine and take longer at a first start;
# docs/design/convolution.md, "auto".
SECOND_LOOKS, MOST = 4, 12  # looks: where the estimate differs from what is measured; at anything
ALONE = 3  # looks at what is left alone: more tell what it takes, not which is chosen
# All of what a pass takes in the cheapest combination: by how much more a method may make it cost.
# Larger: losers are timed on. Smaller: one disturbed look drops the fastest method.
CLOSE = 0.2  # may be chosen
# Not looked at twice: no disturbance that is likely makes so much of it, as what others take of the core is not
# counted.
LOST = 1.5
# Not looked at once, by what another tile of the algorithm took in one look.
HOPELESS = 1.0
# The same by what it took in two looks that take long. Not looked at again after two looks, of which the least times
# count, of those that estimates are for after some more; after one that takes long.
DOUBTFUL = 0.5
STEADY = 0.01  # of the least cost: less changes nothing


def settle(
    shape: ConvShape,
    methods: Sequence[Method],
    look: Callable[[Method], Look],
    is_long: Callable[[Method], bool] = lambda _: False,
    bounds: Mapping[Method, PartSeconds] | None = None,
) -> Costs:
    """Return the seconds by part of all methods; `look` times one run of a layer by one of them.

    Those of a tile that is hopeless by what other tiles of its algorithm took are what these lead to expect. `is_long`:
    whether the last run of a method took so long that what disturbs it is a small part. `bounds`: what some methods
    take at least; these are not run where they are hopeless even so.
    """
    expected, bounds = {method: estimated(shape, method) for method in methods}, bounds or {}
    least: dict[Method, Look] = {}
    hopeless: Costs = {}
    twice = set[Method]()

    def guessed(method: Method) -> list[PartSeconds]:
        known = [bounds[method]] if method in bounds else []
        return _guesses(method, _costs(least), expected) + known

    def is_hopeless(method: Method, most: float) -> bool:
        known, guesses = _costs(least), guessed(method)
        close = (method in _close(shape, known | {method: it}, most) for it in guesses)
        return bool(guesses) and not any(close)

    # Those without tiles, which run in any case, then the most promising: others are seen to be hopeless by them.
    order = sorted(methods, key=lambda it: (it.tile is not None, estimated_seconds(shape, it)))
    for method in order:
        tiles = [other for other in least if other.algorithm == method.algorithm]
        # Short runs that were disturbed would rule out other tiles, and so would a single long one. What has a bound
        # but no tiles is ruled out as by long ones: a bound is the least of many looks.
        most = DOUBTFUL if all(map(is_long, tiles)) else HOPELESS
        if is_hopeless(method, most) and not is_hopeless(method, HOPELESS):
            for other in tiles:
                if other not in twice:
                    least[other] = _least(least[other], look(other))
                    twice.add(other)
        if is_hopeless(method, most):
            hopeless[method] = min(guessed(method), key=lambda it: sum(it.values()))
        else:
            least[method] = look(method)
    _look_again(shape, least, look, lambda method: method in twice or is_long(method))
    found = hopeless | _costs(least)
    return {method: found[method] for method in methods}


def _look_again(
    shape: ConvShape,
    least: dict[Method, Look],
    look: Callable[[Method], Look],
    is_long: Callable[[Method], bool],
) -> None:
    """Run methods that were looked at once until it is certain which are the cheapest."""
    steady = dict.fromkeys(least, False)
    promising = _promising(shape, list(least))
    costs, looks = _costs(least), 1
    doubtful = _close(shape, costs, DOUBTFUL)
    waiting = [it for it in _close(shape, costs, LOST) if it in doubtful or not is_long(it)]
    while waiting:
        looks += 1
        # Costs before this round, against which `_saved` tells what another look brought.
        before = costs
        # Turns: a disturbance that lasts for a round slows all methods that are compared.
        for method in waiting:
            least[method] = _least(least[method], look(method))
        costs = _costs(least)
        best = float(totals(needed(costs, shape)).min())
        for method in waiting:
            steady[method] = _saved(method, before, costs) <= STEADY * best
        close, left = _close(shape, costs, CLOSE), _close(shape, costs, DOUBTFUL)
        waiting = [
            method
            for method in waiting
            if not steady[method]
            and (
                (looks < SECOND_LOOKS and method in promising and method in left)
                or (looks < MOST and method in close)
            )
        ]
        if waiting == close and len(close) == 1 and (looks >= ALONE or is_long(close[0])):
            break


def _guesses(method: Method, costs: Costs, expected: Costs) -> list[PartSeconds]:
    """Return what a tile should take by each one of its algorithm that was timed: as many times more as estimated."""
    return [
        {part: it * _ratio(expected[method], expected[other], part) for part, it in parts.items()}
        for other, parts in costs.items()
        if other.algorithm == method.algorithm
    ]


def _ratio(one: PartSeconds, other: PartSeconds, part: CostPart) -> float:
    """Return one estimate of a part by the other; of what estimates do not tell apart, those of all parts."""
    if other.get(part):
        return one.get(part, 0.0) / other[part]
    return sum(one.values()) / sum(other.values())


def _promising(shape: ConvShape, methods: Sequence[Method]) -> set[Method]:
    """Return the methods that may be chosen by the estimates."""
    expected = {method: estimated_seconds(shape, method) for method in methods}
    return {
        method for method in methods if expected[method] <= (1 + CLOSE) * min(expected.values())
    }


def _close(shape: ConvShape, costs: Costs, most: float) -> list[Method]:
    """Return the methods that make the cheapest combination cost at most `most` times one of its passes more.

    Combinations rather than methods: a method that is slow in sum may be the best for one pass. Only passes that the
    layer needs may decide.
    """
    costs = needed(costs, shape)
    methods, sums = list(costs), totals(costs)
    best = np.unravel_index(sums.argmin(), sums.shape)
    found = np.zeros(len(methods), bool)
    for axis, which in enumerate(PASSES):
        if which in shape.passes:
            parts = costs[methods[best[axis]]]
            shared = (parts.get(part, 0.0) for part, steps in SHARED.items() if which in steps)
            others = tuple(it for it in range(len(PASSES)) if it != axis)
            more = sums.min(axis=others) - sums.min()
            found |= more <= most * (parts[which] + sum(shared))
    return [method for method, close in zip(methods, found.tolist(), strict=True) if close]


def _least(known: Look, new: Look) -> Look:
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
