"""Measures updates on real numbers of workers, beside the simulator's: `scaling.py --measured`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_workers import gained
from recorded_scaling import Recording, maker, record
from threadpoolctl import threadpool_limits

from znnpy import Model
from znnpy.profile.lost_time import LOSSES, find_losses
from znnpy.profile.recorded_updates import Profile, profile_predictions, profile_updates
from znnpy.scheduler.core_count import available_cores, keep_to
from znnpy.simulate import simulate

RING = 1 << 17
"""Events that each worker keeps: a round has as many updates as one worker can keep, `UPDATES` at most."""
UPDATES = 200
SHARE = 0.01
"""Losses of a smaller share of the workers' time are left out."""
LONG = 0.5  # seconds of products on each core
SIDE = 512  # of the matrices of sgemm: three fill most of a core's own cache
WORDS = "net | workers | update ms | least | times as fast | simulated ms | tasks take | measured by both"


@dataclass
class Real:
    """A model on threads of its own, what the last round recorded, and the seconds of an update in each."""

    workers: int
    model: Model
    last: Profile
    rounds: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)


def show_measured(options: argparse.Namespace) -> None:
    """Print a line for each net and number of workers, measured in turns, with what the most lose."""
    found: dict[str, Any] = {"machine": gains(max(_counts(options)))}
    print(", ".join(f"{what} {value:.4g}" for what, value in found["machine"].items()))
    print(WORDS, flush=True)
    for net in options.measured:
        rows = found[net] = measured(net, options)
        for row in rows:
            print(_line(net, row))
        print(f"{Path(net).stem}: {rows[-1]['workers']} workers lose {_lost(rows[-1])}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))


def gains(cores: int) -> dict[str, float]:
    """What this machine gives to so many threads, a core each: the rates of chains of operations and of sgemm."""

    def product(core: int) -> float:
        """Products a second, for as long as all others make theirs."""
        keep_to(core)
        a = np.ones((SIDE, SIDE), np.float32)
        out, made, until = np.empty_like(a), 0, time.perf_counter() + LONG
        while time.perf_counter() < until:
            np.matmul(a, a, out=out)
            made += 1
        return made / LONG

    chosen = sorted(os.sched_getaffinity(0))[:cores]
    with ThreadPoolExecutor(cores) as pool, threadpool_limits(1):
        (alone,) = pool.map(product, chosen[:1])
        together = sum(pool.map(product, chosen))
        loop = gained(pool, cores)
    return {"cores": cores, "bare loop gains": loop, "sgemm gains": together / alone}


def measured(net: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a net: seconds on each number of workers, in turns, and simulated for the most."""
    counts = _counts(options)
    run = profile_predictions if options.forward else profile_updates
    with ExitStack() as stack:
        reals: list[Real] = []
        plan = None
        for count in counts:
            make = maker(net, forward=options.forward, threads=count)
            model = stack.enter_context(make(count, RING, plan))
            plan = model.plan_record
            reals.append(Real(count, model, run(model, 2, 2)))
        for _ in range(options.rounds):
            for real in reals:
                real.last = run(real.model, _updates(real, options), 2)
                real.rounds.append(real.last.seconds_per_update)
        alone = maker(net, forward=options.forward)
        most = record(alone, counts[-1], 4, options.line, plan, options.forward)
        rows = [_row(real, reals[0]) for real in reals]
        rows[-1] |= _explained(reals[-1], most)
        return rows


def _counts(options: argparse.Namespace) -> list[int]:
    return [count for count in options.workers if count <= available_cores()]


def _updates(real: Real, options: argparse.Namespace) -> int:
    """An even number of updates that take about as long as is asked for, and that a worker alone could keep."""
    wanted = options.seconds / real.last.seconds_per_update
    return 2 * max(1, int(min(wanted, UPDATES, RING / real.last.tasks_per_update) / 2))


def _row(real: Real, alone: Real) -> dict[str, Any]:
    return {
        "workers": real.workers,
        "tasks": real.last.tasks_per_update,
        "seconds": real.seconds,
        "least": min(real.rounds),
        "rounds": real.rounds,
        "speed_up": alone.seconds / real.seconds,
    }


def _explained(real: Real, alone: Recording) -> dict[str, Any]:
    """What was simulated; how much longer tasks took than alone; shares of the workers' time, in the last round."""
    own, profile = alone.replay, real.last
    losses = find_losses(profile)
    busy = sum(loss.busy for loss in losses)
    whole = profile.seconds_per_update * profile.updates * real.workers
    causes = [cause for cause in LOSSES if cause != "messages"]
    return {
        "simulated": simulate(own, real.workers, alone.machine, alone.updates).seconds_per_step,
        "slower": busy / profile.updates / (own.work(alone.updates) / alone.updates),
        "lost": {
            "tasks": busy / whole,
            **{cause: sum(loss.causes[cause] for loss in losses) / whole for cause in causes},
        },
    }


def _line(net: str, row: dict[str, Any]) -> str:
    text = (
        f"{Path(net).stem} | {row['workers']} | {row['seconds'] * 1e3:.2f} | {row['least'] * 1e3:.2f} | "
        f"{row['speed_up']:.2f}"
    )
    if "simulated" in row:
        ratio = row["seconds"] / (row["simulated"] * row["slower"])
        text += f" | {row['simulated'] * 1e3:.2f} | {row['slower']:.2f} | {ratio:.2f}"
    return text


def _lost(row: dict[str, Any]) -> str:
    """Slower tasks and other causes, in shares of the workers' time."""
    tasks = row["lost"]["tasks"]
    shares = {**row["lost"], "tasks": tasks - tasks / row["slower"]}
    shares = {"slower tasks": shares.pop("tasks"), **shares}
    named = [f"{cause} {share:.1%}" for cause, share in shares.items() if share >= SHARE]
    return ", ".join(named) or "nothing"
