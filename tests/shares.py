"""Which cases of a parametrised test are its quick share, and how many examples of a property."""

from __future__ import annotations

from collections.abc import Iterable

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
    """Cases that their test's `quick(count)` leaves out, of tests that are marked so.

    Cases are taken in turn, each time the first of those that show most values of parameters not
    shown yet: a grid's diagonal comes first, and every value stands in some quick case while `count` allows it.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for found in cases.values() for item in _left_out(found)]


def _left_out(cases: list[pytest.Item]) -> list[pytest.Item]:
    (count,) = cases[0].get_closest_marker("quick").args
    left, shown = list(cases), set[tuple[str, int]]()
    for _ in range(min(count, len(left))):
        new = max(left, key=lambda case: len(_values(case) - shown))
        shown |= _values(new)
        left.remove(new)
    return left


def _values(case: pytest.Item) -> set[tuple[str, int]]:
    """A case's parameters, by the number of their values."""
    return set(case.callspec.indices.items())
