"""ZNN's pointer exchange gives the exact sum for any number of workers, again and again."""

import numpy as np
import pytest
from znnpy_kernels.scheduling.wait_free_sum import exchange_deposit

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler import Executor


class Sum:
    """`contributions` buffers of integers that converge on one slot."""

    def __init__(self, contributions: int, count: int) -> None:
        self.values = np.random.default_rng(1).integers(-50, 50, (contributions, count))
        self.buffers = np.zeros((contributions, count), np.float32)
        self.slot = np.zeros(1, np.int64)
        self.remaining = np.array([contributions, contributions], np.int64)
        self.target = np.zeros(count, np.float32)

    def graph(self) -> TaskGraph:
        builder = GraphBuilder()
        for buffer in self.buffers:
            words = exchange_deposit.arguments(
                slot=self.slot.ctypes.data,
                buffer=buffer.ctypes.data,
                count=buffer.size,
                remaining=self.remaining.ctypes.data,
                target=self.target.ctypes.data,
            )
            builder.task(
                exchange_deposit.address, words, Named("add", "sum"), cost=1e-6, phase=0, group=0
            )
        return builder.build()


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_exact_sum_for_any_number_of_workers(workers: int) -> None:
    total = Sum(contributions=40, count=5000)
    with Executor(total.graph(), workers=workers) as executor:
        for repetition in range(60):
            total.buffers[:] = total.values + repetition
            total.target[:] = np.nan
            executor.release(0)
            assert executor.wait(0, repetition + 1, timeout=300)
            np.testing.assert_array_equal(total.target, (total.values + repetition).sum(axis=0))
            assert total.slot[0] == 0
            assert total.remaining[0] == 40


def test_a_single_contribution_is_copied() -> None:
    total = Sum(contributions=1, count=7)
    total.buffers[:] = total.values
    with Executor(total.graph(), workers=1) as executor:
        executor.release(0)
        assert executor.wait(0, 1, timeout=300)
    np.testing.assert_array_equal(total.target, total.values[0])
