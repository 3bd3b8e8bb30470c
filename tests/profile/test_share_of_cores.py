"""Ranks that are profiled together have as many threads as the one with the fewest cores for itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from socket import gethostname
from typing import Any

import pytest

from znnpy.profile.command import share_of_cores
from znnpy.scheduler.cores import available_cores

HERE, OWN = gethostname(), sorted(os.sched_getaffinity(0))


class Told:
    """A world in which the other ranks tell this."""

    def __init__(self, *others: Sequence[Any]) -> None:
        self._others = list(others)

    def exchange(self, own: Any) -> list[Any]:
        """Our value, and what the others tell."""
        return [own, *self._others.pop(0)]


@pytest.mark.parametrize(
    ("other", "sharing"),
    [([HERE, OWN], 2), ([HERE, [max(OWN) + 1]], 1), (["elsewhere", OWN], 1)],
)
def test_ranks_that_share_cores_divide_them(other: list[Any], sharing: int) -> None:
    told = Told([other], [1 << 10])
    assert share_of_cores(told) == available_cores(sharing)  # type: ignore[arg-type]


def test_all_ranks_have_the_fewest() -> None:
    told = Told([["elsewhere", OWN]], [1])
    assert share_of_cores(told) == 1  # type: ignore[arg-type]
