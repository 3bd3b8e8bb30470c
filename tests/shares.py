"""Which cases of a parametrised test are run, which of them are quick, and how many examples of a property."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from itertools import combinations

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the example holds.
settings.register_profile("untimed", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10)


def examples(count: int) -> settings:
    """So many examples of a property, but where slow tests are left out no more than of others."""
    few = settings.get_profile("quick").max_examples
    return settings(max_examples=few if settings.default.max_examples == few else count)


def slow_cases(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Cases that their test's `quick(count)` leaves out, of tests that are marked so."""
    return left_out(items, "quick")


def left_out(items: Iterable[pytest.Item], mark: str) -> list[pytest.Item]:
    """Cases that are not among the `count` of their test's mark, of tests that are marked so.

    Cases are taken in turn, each time the first of those that show most values of parameters not shown yet, of these
    most pairs of values, and of these the values that were shown least: a grid's diagonal comes first, every value
    stands in some case while `count` allows it, and none in many more than another.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(mark):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for found in cases.values() for item in _left_out(found, mark)]


def _left_out(cases: list[pytest.Item], mark: str) -> list[pytest.Item]:
    (count,) = cases[0].get_closest_marker(mark).args
    shows, shown = [_shows(case) for case in cases], Counter[_Shown]()

    def known(number: int) -> tuple[int, int, int, int]:
        values, pairs = shows[number]
        return (
            -len(values - shown.keys()),
            -len(pairs - shown.keys()),
            sum(shown[it] for it in values),
            number,
        )

    # A case never shows more than it did before: who is first by what was known of it, and by what is now, is first.
    left = [known(number) for number in range(len(cases))]
    heapify(left)
    while left and count:
        *_, number = left[0]
        if (now := known(number)) > left[0]:
            heapreplace(left, now)
            continue
        heappop(left)
        shown.update(set.union(*shows[number]))
        count -= 1
    return [cases[number] for number in sorted(number for *_, number in left)]


_Shown = tuple[object, ...]


def _shows(case: pytest.Item) -> tuple[set[_Shown], set[_Shown]]:
    """A case's parameters and pairs of them, by their values, which all cases share: pytest's numbers count cases."""
    values = sorted((name, id(value)) for name, value in case.callspec.params.items())
    return set(values), set(combinations(values, 2))
