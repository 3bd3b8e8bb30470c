"""How long things take: what the measuring scripts share."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def seconds(work: Callable[..., object], *arguments: object) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def best(work: Callable[[], object], least: float = 0.3) -> float:
    """Seconds of the shortest of repeated calls, after one that warms up.

    At least three are made, for at least `least` seconds.
    """
    work()
    times: list[float] = []
    stop = time.perf_counter() + least
    while time.perf_counter() < stop or len(times) < 3:
        times.append(seconds(work))
    return min(times)


def sgemm(side: int = 1024) -> float:
    """GFLOP/s of NumPy's product of float32 matrices."""
    a = np.ones((side, side), np.float32)
    out = np.empty_like(a)
    return 2 * side**3 / best(lambda: np.matmul(a, a, out=out)) / 1e9
