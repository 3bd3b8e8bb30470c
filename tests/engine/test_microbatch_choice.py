"""Which size of microbatches is taken, by forecasts that are given."""

from typing import Any

import pytest

from znnpy.engine import microbatch_choice
from znnpy.engine.memory_planning import Forecast
from znnpy.engine.microbatch_choice import NEAR, chosen_microbatch
from znnpy.errors import PlanError


@pytest.mark.parametrize(
    ("forecasts", "expected"),
    [
        # The largest of those near the fastest.
        ({8: Forecast(1, 2.0, 1.0), 4: Forecast(1, 1.2, 0.5), 2: Forecast(1, 1.0, 0.5)}, 4),
        ({8: Forecast(1, 2.0, 1.0), 4: Forecast(1, 1.3, 0.5), 2: Forecast(1, 1.0, 0.5)}, 2),
        # Short chains beside the work: no smaller one is looked at.
        ({8: Forecast(1, NEAR, 1.0)}, 8),
        # What does not fit, or is refused, does not count.
        ({8: Forecast(11, 1.0, 1.0), 4: Forecast(10, 1.0, 1.0)}, 4),
        ({8: None, 4: Forecast(1, 1.0, 1.0)}, 4),
        # If nothing fits, the smallest is what says so.
        ({8: Forecast(11, 1.0, 1.0), 4: None, 2: None}, 2),
    ],
)
def test_choice(
    forecasts: dict[int, Forecast | None], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(size: Any, settings: Any) -> Forecast:
        found = forecasts[size]
        if found is None:
            raise PlanError("too large")
        return found

    monkeypatch.setattr(microbatch_choice, "forecast", given)
    monkeypatch.setattr(microbatch_choice, "room_for_replicas", lambda settings: 10)
    sizes: Any = [8, 4, 2]
    assert chosen_microbatch(lambda size: size, None, sizes) == expected  # type: ignore[arg-type,return-value]
