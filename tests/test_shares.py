"""Quick shares of parametrised tests."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from shares import examples, slow_cases


def case(name: str, count: int | None, **values: int) -> Any:
    """What pytest makes of a test's case, as far as it matters."""
    mark = None if count is None else SimpleNamespace(args=(count,))
    return SimpleNamespace(
        nodeid=f"{name}{list(values.values())}",
        callspec=SimpleNamespace(params=values),
        get_closest_marker=lambda kind: mark if kind == "quick" else None,
    )


def quick(cases: list[Any]) -> list[Any]:
    slow = slow_cases(cases)
    return [case for case in cases if case not in slow]


def test_a_diagonal_shows_every_value() -> None:
    cases = [case("grid", 5, a=a, b=b, c=c) for a, b, c in product(range(5), range(3), range(2))]
    shown = [found.callspec.params for found in quick(cases)]
    assert len(shown) == 5
    assert [{row[key] for row in shown} for key in "abc"] == [{*range(5)}, {*range(3)}, {0, 1}]


@pytest.mark.parametrize(("count", "left"), [(1, 1), (7, 7), (90, 12)])
def test_so_many_cases_are_quick(count: int, left: int) -> None:
    cases = [case("one", count, a=a, b=b) for a, b in product(range(4), range(3))]
    assert len(quick(cases)) == left


def test_pairs_of_values_come_after_values() -> None:
    """Of three parameters with three values each nine cases are enough for all pairs."""
    cases = [case("grid", 9, a=a, b=b, c=c) for a, b, c in product(range(3), repeat=3)]
    shown = [found.callspec.params for found in quick(cases)]
    for one, other in ("ab", "ac", "bc"):
        assert len({(row[one], row[other]) for row in shown}) == 9


def test_no_value_is_shown_more_often_than_need_be() -> None:
    cases = [case("grid", 6, a=a, b=b) for a, b in product(range(6), range(2))]
    shown = [found.callspec.params for found in quick(cases)]
    assert [sum(row["b"] == b for row in shown) for b in range(2)] == [3, 3]


@pytest.mark.quick(3)
@pytest.mark.parametrize("a", [2, 3, 4])
@pytest.mark.parametrize("b", [2, 3, 4])
def test_the_diagonal_of_a_grid_is_quick(request: pytest.FixtureRequest, a: int, b: int) -> None:
    """As pytest makes cases of stacked grids, where it has made all of them."""
    all_cases = (
        sum(getattr(item, "function", None) is request.function for item in request.session.items)
        == 9
    )
    assert (request.node.get_closest_marker("slow") is None) == (a == b) or not all_cases


def test_others_are_left_alone() -> None:
    """Tests without the mark, and each test by itself."""
    cases = [case(name, count, a=a) for name, count in (("x", None), ("y", 2)) for a in range(3)]
    assert [found.nodeid for found in quick(cases)] == ["x[0]", "x[1]", "x[2]", "y[0]", "y[1]"]


def test_properties_are_tried_on_fewer_examples_where_slow_tests_are_left_out() -> None:
    loaded = "quick" if examples(60).max_examples < 60 else "untimed"
    try:
        found = [
            settings.load_profile(it) or examples(60).max_examples for it in ("quick", "untimed")
        ]
    finally:
        settings.load_profile(loaded)
    assert found == [10, 60]
