"""Does a running update hold the GIL? A Python thread counts in a loop, alone and beside updates.

    python scripts/bench_gil.py

One worker runs updates of a wide net while the main thread waits in compiled code; the counting
thread should keep its full speed if another core is free. Prints the ratio of the two speeds.
"""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np

import znnpy

SECONDS = 1.0
PAIRS = 7


def counted(seconds: float) -> float:
    """Turns a second of a pure Python loop in a thread of its own."""
    result = []

    def count() -> None:
        turns, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            turns += 1
        result.append(turns / seconds)

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    return result[0]


def beside_updates(model: znnpy.Model) -> float:
    """The same while one worker runs updates the whole time."""
    x = np.zeros((1, 1, *model.input_shape), np.float32)
    target = np.zeros((1, 3, *model.output_shape), np.float32)
    speed: list[float] = []
    counter = threading.Thread(target=lambda: speed.append(counted(SECONDS)))
    counter.start()
    while counter.is_alive():
        model.step(x, target)
    counter.join()
    return speed[0]


def main() -> None:
    """Alternate both and print the median ratio."""
    wide = {"conv": {"channels": 48, "size": 3, "function": "relu"}}
    layers = [wide, wide, wide, {"conv": {"channels": 3, "size": 3}}]
    with znnpy.Model({"layers": layers}, (40, 40, 40), threads=1, conv="direct") as model:
        beside_updates(model)
        ratios = [beside_updates(model) / counted(SECONDS) for _ in range(PAIRS)]
    low, high = min(ratios), max(ratios)
    print(f"counting beside updates: {statistics.median(ratios):.3f} of its speed alone", end=" ")
    print(f"(range {low:.3f} to {high:.3f} over {PAIRS} pairs)")


if __name__ == "__main__":
    main()
