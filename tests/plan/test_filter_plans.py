"""Which filters the tables of roots take."""

from __future__ import annotations

import pytest

from znnpy.errors import PlanError
from znnpy.plan.fftw import plan_forward
from znnpy.plan.twiddle_tables import plan_filter


def test_layout_is_that_of_images() -> None:
    plan, images = plan_filter((9, 10, 15), (3, 3, 3)), plan_forward((9, 10, 15))
    assert (plan.row, plan.floats) == (images.row, images.floats)
    assert plan_filter((9, 10, 15), (3, 3, 3)) is plan


def test_filter_beyond_its_grid_is_refused() -> None:
    with pytest.raises(PlanError, match=r"extent \(7, 3, 3\)"):
        plan_filter((6, 6, 6), (3, 3, 3), (3, 1, 1))


def test_filter_with_too_many_taps_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 64"):
        plan_filter((1, 80, 80), (1, 65, 1))
