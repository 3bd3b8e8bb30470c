"""How fast updates would be on more workers: the simulated curve, its bounds, its own error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from znnpy.graph import POLICIES, GraphBuilder, TaskGraph
from znnpy.simulate.grain import grain
from znnpy.simulate.measured import Measured, calibrated
from znnpy.simulate.replay import Machine, Replay, simulate, without_memory

WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def simulate_profile(
    graph: TaskGraph,
    measured: Mapping[int, Measured],
    workers: Sequence[int] = WORKERS,
    seed: int = 0,
) -> dict[str, Any]:
    """`simulation` and `grain` of a profile's summary, JSON-able; `measured` by number of threads.

    All must have been recorded on graphs with the same tasks as `graph`. Raises ValueError when
    nothing was measured.
    """
    if not measured:
        raise ValueError("nothing was measured, so there is nothing to simulate from")
    costs, shares, machine = calibrated(graph, measured)
    replay = Replay.of(graph, costs, shares)
    steps = measured[min(measured)].updates
    simulation = curve(replay, machine, workers, steps, seed)
    own = {p: simulate(replay, p, machine, steps, seed).seconds_per_step for p in measured}
    simulation["measured"] = {str(p): run.seconds for p, run in measured.items()}
    simulation["error"] = {str(p): own[p] / run.seconds - 1 for p, run in measured.items()}
    return {"simulation": simulation, "grain": grain(replay, machine, max(measured))}


def curve(
    replay: Replay, machine: Machine, workers: Sequence[int], steps: int = 10, seed: int = 0
) -> dict[str, Any]:
    """Seconds of an update on each number of workers, between Brent's bounds.

    `brent_lower` is T1 / P, `brent_upper` T1 / P + Tinf with dispatch and a steal for each task (ZNN,
    arXiv 1510.06706, section V). They know nothing of memory, so crowded memory can lift the curve
    above them; `unlimited` leaves it out.
    """
    work, span = replay.work(steps) / steps, replay.span()
    loaded = replay.loaded(machine)
    most, longest = loaded.work(steps) / steps, loaded.span()
    free = without_memory(machine)
    crowded = np.isfinite(machine.bandwidth) and bool(replay.shares.any())
    seconds = [simulate(replay, p, machine, steps, seed).seconds_per_step for p in workers]
    unlimited = (
        [simulate(replay, p, free, steps, seed).seconds_per_step for p in workers]
        if crowded
        else seconds
    )
    return {
        "workers": list(workers),
        "seconds": seconds,
        "unlimited": unlimited,
        "brent_lower": [work / p for p in workers],
        "brent_upper": [most / p + longest for p in workers],
        "work": work,
        "span": span,
        "machine": {
            "dispatch": machine.dispatch,
            "successor": machine.successor,
            "steal": machine.steal,
            "wake": machine.wake,
            "bandwidth": machine.bandwidth if crowded else None,
        },
    }


def compare_policies(
    graph: TaskGraph,
    measured: Mapping[int, Measured],
    seconds: Mapping[str, float] | None = None,
    workers: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """`policies` of a profile's summary: the same tasks and costs under each policy, simulated.

    `seconds`: measured seconds of an update by policy, on as many threads as `measured` has most.
    Raises ValueError when nothing was measured.
    """
    if not measured:
        raise ValueError("nothing was measured, so there is nothing to simulate from")
    costs, shares, machine = calibrated(graph, measured)
    steps = measured[min(measured)].updates
    rows = []
    for name in POLICIES:
        replay = Replay.of(GraphBuilder.of(graph).build(name), costs, shares)
        simulated = {
            str(p): simulate(replay, p, machine, steps, seed).seconds_per_step for p in workers
        }
        rows.append(
            {
                "name": name,
                "threads": max(measured),
                "measured_seconds": (seconds or {}).get(name),
                "simulated": simulated,
            }
        )
    return rows
