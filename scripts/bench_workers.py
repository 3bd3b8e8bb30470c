"""How much faster several workers are than one, in turns, with proof that the cores were free.

    python scripts/bench_workers.py NET... [--threads 2] [--rounds 15] [--updates 30] [--json FILE]

Nets are FILTERxWIDTH (ZNN's CTMCTMCTCT), as 3x10, or configs. Each round runs updates of the same plan on one worker
and on several, and a loop that only computes, on one thread and on as many: what that loop gains is what the machine
had to give at that time. Only rounds in which it gained at least 97 % of the number of threads count (`--all`: every
round). With `--copies`, as many nets as threads also run at once, on one worker each: they share nothing but the
machine's memory, and what they gain is what that leaves to any scheduler.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from threading import Barrier
from typing import Any

import numba
from bench_recording import run
from recorded_scaling import maker
from stopwatch import seconds

from znnpy.profile.recorded_updates import random_batch
from znnpy.scheduler.core_count import keep_to

FREE = 0.97
STEPS = 4_000_000


def main() -> None:
    """Measure, print, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="+", metavar="NET")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=30, help="of each number of workers a round")
    parser.add_argument("--all", action="store_true", help="count rounds with busy cores too")
    parser.add_argument("--copies", action="store_true", help="independent nets on a worker each")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = {}
    for net in chosen.nets:
        name = Path(net).stem
        found[name] = summary(list(rounds(net, chosen)), chosen)
        show(name, found[name], chosen.threads)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


def rounds(net: str, chosen: argparse.Namespace) -> Iterator[tuple[float, float, float, float]]:
    """Seconds of an update on one worker, on several, what the bare loop and copies gained; each round."""
    with ExitStack() as open_:
        cores = iter(sorted(os.sched_getaffinity(0))[: chosen.threads])
        pool = open_.enter_context(
            ThreadPoolExecutor(chosen.threads, initializer=lambda: keep_to(next(cores)))
        )
        models, plan = [], None
        for count in (1, chosen.threads, *[1] * (chosen.threads - 1 if chosen.copies else 0)):
            made = maker(net, threads=count)(count, 0, plan)
            models.append(open_.enter_context(made))
            plan = models[0].plan_record
        batch = random_batch(models[0])
        for model in models:
            run(model, batch, chosen.updates)
        gained(pool, chosen.threads)
        for _ in range(chosen.rounds):
            before = gained(pool, chosen.threads)
            one, several = (run(model, batch, chosen.updates) for model in models[:2])
            copies = copies_gain(pool, [models[0], *models[2:]], batch, one, chosen.updates)
            yield one, several, min(before, gained(pool, chosen.threads)), copies


def gained(pool: ThreadPoolExecutor, threads: int) -> float:
    """How many times the work of one thread several do in the same time."""
    (alone,) = together(pool, 1)
    return threads * alone / max(together(pool, threads))


def copies_gain(
    pool: ThreadPoolExecutor, models: list[Any], batch: Any, alone: float, updates: int
) -> float:
    """How many times the updates of one net alone several independent ones make at once."""
    if len(models) == 1:
        return 0.0
    times = pool.map(lambda model: run(model, batch, updates), models)
    return sum(alone / each for each in times)


def together(pool: ThreadPoolExecutor, threads: int) -> list[float]:
    """Seconds of the bare loop on each of several threads that start at once."""
    start = Barrier(threads)

    def job(_: int) -> float:
        start.wait()
        return seconds(spin, STEPS)

    return list(pool.map(job, range(threads)))


@numba.njit("float64(int64)", nogil=True)
def spin(steps: int) -> float:
    """A chain of multiplications and additions: no memory, no vectors."""
    value = 0.0
    for _ in range(steps):
        value = value * 0.999 + 0.001
    return value


def summary(
    found: list[tuple[float, float, float, float]], chosen: argparse.Namespace
) -> dict[str, Any]:
    """Medians and quartiles of the rounds that count."""
    least = 0.0 if chosen.all else FREE * chosen.threads
    kept = [row for row in found if row[2] >= least]
    if len(kept) < 2:
        return {"rounds": len(found), "counted": len(kept), "gained": [row[2] for row in found]}
    ratios = [one / several for one, several, *_ in kept]
    return {
        "rounds": len(found),
        "counted": len(kept),
        "one_ms": median(one for one, *_ in kept) * 1e3,
        "several_ms": median(several for _, several, *_ in kept) * 1e3,
        "speed_up": median(ratios),
        "quartiles": [quantiles(ratios, n=4)[0], quantiles(ratios, n=4)[2]],
        "gained": [row[2] for row in found],
        "copies": median(row[3] for row in kept),
    }


def show(name: str, found: dict[str, Any], threads: int) -> None:
    """Print what was found."""
    loop = median(found["gained"])
    print(f"{name}: the bare loop gains {loop:.2f} by {threads} threads;", end=" ")
    if "speed_up" not in found:
        print(f"cores were free in {found['counted']} of {found['rounds']} rounds: too few")
        return
    low, high = found["quartiles"]
    print(
        f"update {found['one_ms']:.2f} ms on 1 worker, {found['several_ms']:.2f} ms on {threads}: "
        f"{found['speed_up']:.3f} times as fast ({low:.3f} to {high:.3f}, "
        f"{found['counted']} of {found['rounds']} rounds)",
        flush=True,
    )
    if found["copies"]:
        print(f"{name}: {threads} independent nets gain {found['copies']:.3f}", flush=True)


if __name__ == "__main__":
    main()
