"""Predicts the time of an update on more workers: the curve, Brent's bounds, its error, other policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from znnpy.graph import POLICIES, GraphBuilder, TaskGraph
from znnpy.simulate.granularity import grain
from znnpy.simulate.measured_costs import Measured, calibrated
from znnpy.simulate.replay import Machine, Replay, without_memory
from znnpy.simulate.run import simulate

# Dense where machines are, sparse beyond: each is a simulation.
WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of workers that a profile predicts for."""
COLUMNS = ("seconds", "unlimited", "brent_lower", "brent_upper")
"""The columns of the curve, each in seconds of an update."""


def simulate_profile(
    measured: Mapping[int, Measured],
    wide: TaskGraph | None = None,
    workers: Sequence[int] = WORKERS,
    seed: int = 0,
) -> dict[str, Any]:
    """Return `simulation` and `grain` of a profile's summary, JSON-able; `measured` by number of threads.

    `wide`: the same tasks with the edges of a plan for more threads than were measured, which waits less for
    buffers. Raises ValueError if nothing was measured.
    """
    known = calibrated(measured)
    steps, most = measured[min(measured)].updates, max(measured)

    def replay(count: int) -> Replay:
        # The graph of the next larger number that was measured: more workers have more slack between buffers.
        enough = min((p for p in measured if p >= count), default=most)
        graph = wide if wide is not None and count > most else measured[enough].graph
        return known.replay(graph, count)

    simulation = curve(replay, known.on, workers, steps, seed, known.caller)
    simulation["measured"] = {str(p): run.seconds for p, run in measured.items()}
    simulation["error"] = {
        # How far off the simulation is where it can be compared: beside the curve, so that readers can judge
        # it.
        str(p): _seconds(replay(p), p, known.on(p), steps, seed, known.caller) / run.seconds - 1
        for p, run in measured.items()
    }
    return {"simulation": simulation, "grain": grain(replay(most), known.machine, most)}


def curve(
    replay: Callable[[int], Replay],
    on: Callable[[int], Machine],
    workers: Sequence[int],
    steps: int = 10,
    seed: int = 0,
    caller: float = 0.0,
) -> dict[str, Any]:
    """Return the seconds of an update on each number of workers, between Brent's bounds.

    `replay` gives the tasks as they are cut and ordered for a number of workers, `on` the machine as that number
    finds it. `brent_lower` is T1 / P, `brent_upper` T1 / P + Tinf with dispatch and a steal for each task (ZNN,
    arXiv 1510.06706, section V). The bounds ignore memory, so crowded memory can lift the curve above them;
    `unlimited` ignores it too. `caller`: seconds of an update in which the thread that submits them computes; no
    number of workers makes updates come faster.
    """
    rows: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for count in workers:
        own, machine = replay(count), on(count)
        # Memory's share of the curve: the same without its limits.
        free = without_memory(machine)
        loaded = own.loaded(machine)
        crowded = np.isfinite(machine.bandwidth) and bool(own.shares.any())
        seconds = _seconds(own, count, machine, steps, seed, caller)
        # Not simulated twice where memory makes no difference.
        alone = _seconds(own, count, free, steps, seed, caller) if crowded else seconds
        upper = loaded.work(steps) / steps / count + loaded.span() + max(machine.caller, caller)
        values = seconds, alone, own.work(steps) / steps / count, upper
        for name, value in zip(COLUMNS, values, strict=True):
            rows[name].append(value)
    own = replay(max(workers))
    return {
        "workers": list(workers),
        **rows,
        "work": own.work(steps) / steps,
        "span": own.span(),
        "machine": {
            "dispatch": machine.dispatch,
            "successor": machine.successor,
            "steal": machine.steal,
            "wake": machine.wake,
            "caller": machine.caller,
            "bandwidth": machine.bandwidth if np.isfinite(machine.bandwidth) else None,
        },
    }


def compare_policies(
    measured: Mapping[int, Measured],
    wide: TaskGraph | None = None,
    seconds: Mapping[str, float] | None = None,
    workers: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Return `policies` of a profile's summary: the same tasks and costs simulated under each policy.

    `wide` as for `simulate_profile`. `seconds`: measured seconds of an update by policy, on the largest number of
    threads in `measured`; if given, only these policies are compared. Raises ValueError if nothing was measured.
    """
    known = calibrated(measured)
    steps, most = measured[min(measured)].updates, max(measured)
    # Near graphs for measured numbers, far ones beyond: `graphs[p > most]` picks by that.
    near, far = GraphBuilder.of(measured[most].graph), GraphBuilder.of(wide or measured[most].graph)
    rows = []
    for name in seconds or POLICIES:
        graphs = [builder.build(name) for builder in (near, far)]
        simulated = {
            str(p): _seconds(
                known.replay(graphs[p > most], p), p, known.on(p), steps, seed, known.caller
            )
            for p in workers
        }
        rows.append(
            {
                "name": name,
                "threads": most,
                "measured_seconds": (seconds or {}).get(name),
                "simulated": simulated,
            }
        )
    return rows


def _seconds(
    replay: Replay, workers: int, machine: Machine, steps: int, seed: int, caller: float
) -> float:
    """Return the seconds of an update: of the workers, or of the thread that submits updates if that is more."""
    # Updates come no faster than they are submitted.
    return max(simulate(replay, workers, machine, steps, seed).seconds_per_step, caller)
