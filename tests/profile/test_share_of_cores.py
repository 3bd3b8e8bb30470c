"""What ranks that are profiled together settle: threads, those of the one with the fewest cores; microbatches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from socket import gethostname
from typing import Any

import pytest

from znnpy.config.models import Config
from znnpy.network import trained_network
from znnpy.profile.command import share_of_cores, with_microbatches
from znnpy.scheduler.core_count import available_cores

HERE, OWN = gethostname(), sorted(os.sched_getaffinity(0))


class Told:
    """A world in which the other ranks tell this."""

    rank = 0

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


@pytest.mark.parametrize(("batch", "ranks", "microbatch"), [(8, 2, 4), (10, 4, 2), (5, 2, 1)])
def test_a_batch_is_cut_as_training_cuts_it(batch: int, ranks: int, microbatch: int) -> None:
    config = Config.model_validate(
        {
            "network": {"input": 1, "layers": [{"conv": {"channels": 1, "size": 1}}]},
            "training": {"output_shape": 4, "batch": batch},
        }
    )
    network = trained_network(config)
    assert with_microbatches(config, network, 1) == config
    assert with_microbatches(config, network, ranks).training.microbatch == microbatch
    one = config.training.model_copy(update={"microbatch": 1})
    named = config.model_copy(update={"training": one})
    assert with_microbatches(named, network, ranks).training.microbatch == 1
