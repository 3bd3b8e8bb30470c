"""Whole commands side by side: wall time, processor time and peak memory of each, imports included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

MIB = 1 << 20
STARTER = """
import os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
sys.exit(status != 0)
"""


class Cost(NamedTuple):
    """What a command took: seconds, seconds of all processors, most bytes in memory."""

    seconds: float
    processor: float
    peak: float


def measured(line: Sequence[str], threads: int) -> Cost:
    """Run a command and return what it took; the program ends with its words if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    # Linux counts what the process that starts a program has held: so a small one starts it, and counts.
    started = subprocess.run(
        [sys.executable, "-S", "-c", STARTER, *line],
        capture_output=True, env=environment, check=False,
    )  # fmt: skip
    if started.returncode:
        sys.exit(started.stderr.decode()[-2000:])
    seconds, processor, peak = map(float, started.stdout.split())
    return Cost(seconds, processor, peak)


def compared(
    theirs: str, lines: Sequence[tuple[Sequence[str], Sequence[str]]], threads: int
) -> None:
    """Run pairs of commands, another program's (`theirs`) and znnpy's, in turns, and print costs and ratios.

    Ratios are of the best of all rounds.
    """
    found: dict[str, list[Cost]] = {theirs: [], "znnpy": []}
    for pair in lines:
        for name, line in zip(found, pair, strict=True):
            cost = measured(line, threads)
            found[name].append(cost)
            print(
                f"{name:13} {cost.seconds:8.1f} s {cost.processor:8.1f} processor s {cost.peak / MIB:8.0f} MiB",
                flush=True,
            )
    best = {name: [min(column) for column in zip(*own, strict=True)] for name, own in found.items()}
    time_, processor, memory = (a / b for a, b in zip(best[theirs], best["znnpy"], strict=True))
    print(
        f"znnpy takes 1 / {time_:.1f} of the time, 1 / {processor:.1f} of the processor time, "
        f"1 / {memory:.1f} of the memory"
    )
