"""A combining tree of tasks gives the same bits for any number of workers, seed and policy."""

from typing import Any

import numpy as np
import pytest
from scheduled_kernels import stamp
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import floats

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler import Executor

LEAVES = 32


AT = words("left right target")


@kernel(AT)
def add(args: Any, worker: int) -> None:
    """target = left + right, one float32."""
    floats(args[AT.target])[0] = floats(args[AT.left])[0] + floats(args[AT.right])[0]


def tree(values: np.ndarray, unused: np.ndarray, policy: str) -> TaskGraph:
    """values[1] becomes the sum of values[LEAVES:]; node n adds nodes 2n and 2n + 1."""
    builder = GraphBuilder()
    address = [values.ctypes.data + 4 * node for node in range(2 * LEAVES)]
    tasks = {}
    for leaf in range(LEAVES, 2 * LEAVES):
        dawdle = stamp.arguments(
            clock=unused.ctypes.data,
            log=unused.ctypes.data + 64,
            task=leaf,
            spins=leaf * 7 % 50,
            yields=0,
        )
        tasks[leaf] = builder.task(stamp.address, dawdle, Named("leaf", "leaf"), cost=1.0, phase=0)
    for node in range(LEAVES - 1, 0, -1):
        words = add.arguments(
            left=address[2 * node], right=address[2 * node + 1], target=address[node]
        )
        group = 0 if node == 1 else -1
        tasks[node] = builder.task(add.address, words, Named("add", "sum"), cost=1.0, group=group)
        builder.precede(tasks[2 * node], tasks[node])
        builder.precede(tasks[2 * node + 1], tasks[node])
    return builder.build(policy)


@pytest.mark.parametrize("policy", ["critical-path", "random", "lifo"])
def test_same_bits_for_any_schedule(policy: str) -> None:
    rng = np.random.default_rng(2)
    values = np.zeros(2 * LEAVES, np.float32)
    values[LEAVES:] = rng.standard_normal(LEAVES) * 10.0 ** rng.integers(-3, 4, LEAVES)
    expected = values.copy()
    for node in range(LEAVES - 1, 0, -1):
        expected[node] = expected[2 * node] + expected[2 * node + 1]
    unused = np.zeros(8 + 2 * LEAVES, np.int64)
    graph = tree(values, unused, policy)
    for workers in (1, 2, 3, 8):
        with Executor(graph, workers=workers, seed=workers) as executor:
            for step in range(1, 30):
                values[:LEAVES] = np.nan
                unused[0] = 0
                executor.release(0)
                assert executor.wait(0, step, timeout=300)
                assert values[1:].tobytes() == expected[1:].tobytes()
