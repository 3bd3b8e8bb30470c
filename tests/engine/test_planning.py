"""Memory is planned once for every layout that is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from small_models import small

from znnpy.engine import planning


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The layouts that memory is planned for."""
    found: list[Any] = []
    whole = planning._OneMicrobatch.of

    def told(layout: Any, settings: Any) -> Any:
        found.append(layout)
        return whole(layout, settings)

    monkeypatch.setattr(planning._OneMicrobatch, "of", told)
    return found


@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_a_model_plans_once(planned: list[Any], limit: int | None) -> None:
    with small(max_memory=limit) as model:
        assert planned == [model._layout]


def test_a_model_of_several_microbatches_plans_no_layout_twice(planned: list[Any]) -> None:
    sizes: dict[str, Any] = {"batch": 4, "microbatch": 1, "threads": 2}
    with small(**sizes) as model:
        memory = model.memory
    assert 1 <= len(planned) == len(set(map(id, planned))) <= 2
    planned.clear()
    with small(**sizes, max_memory=memory - 1):
        assert all(a != b for n, a in enumerate(planned) for b in planned[:n])
