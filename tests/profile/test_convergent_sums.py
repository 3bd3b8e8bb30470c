"""The three strategies of convergent sums give the sum; the tree always the same bits."""

import numpy as np
import pytest

from znnpy.profile.sum_strategies import Converging, compare_sums
from znnpy.scheduler import Executor


@pytest.mark.parametrize("strategy", ["tree", "exchange", "lock"])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_strategy_adds_all_contributions(strategy, workers):
    converging = Converging(sums=3, contributions=7, length=1000)
    converging.source[:] = np.arange(1000) % 32
    graph = converging.graph(strategy)
    with Executor(graph, workers=workers) as executor:
        for count in range(1, 20):
            converging.targets[:] = 0
            executor.release(0)
            assert executor.wait(0, count, timeout=300)
            found = converging.buffers[:, 0] if strategy == "tree" else converging.targets
            np.testing.assert_array_equal(found, np.tile(7 * converging.source, (3, 1)))


def test_compared_on_small_sums():
    rows = compare_sums(2, sums=2, contributions=5, length=100, repeats=3)
    assert [row["name"] for row in rows] == ["tree", "exchange", "lock"]
    for row in rows:
        assert row["seconds"] > 0
        assert row["seconds_waiting"] <= row["seconds_in_sums"]
        assert row["simulated_64"] > 0
    assert rows[0]["seconds_waiting"] == rows[1]["seconds_waiting"] == 0
