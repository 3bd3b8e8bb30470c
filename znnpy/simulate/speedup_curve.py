"""Predicts the time of an update on more workers: the curve, Brent's bounds, its error, other policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from znnpy.graph import POLICIES, GraphBuilder, TaskGraph
from znnpy.simulate.granularity import grain
from znnpy.simulate.measured_costs import Calibration, Measured, calibrated
from znnpy.simulate.memory import Memory, bytes_of_step, waits_by_kind
from znnpy.simulate.replay import Machine, Replay, without_memory
from znnpy.simulate.run import Outcome, simulate

# Dense where machines are, sparse beyond: each is a simulation.
WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of workers that a profile predicts for."""
COLUMNS = ("seconds", "unlimited", "brent_lower", "brent_upper", "least", "most")
"""The columns of the curve, each in seconds of an update."""


def simulate_profile(
    measured: Mapping[int, Measured],
    wide: TaskGraph | None = None,
    workers: Sequence[int] = WORKERS,
    seed: int = 0,
    memory: Memory | None = None,
) -> dict[str, Any]:
    """Return `simulation` and `grain` of a profile's summary, JSON-able; `measured` by number of threads.

    `wide`: the same tasks with the edges of a plan for more threads than were measured, which waits less for
    buffers. `memory`: of another machine, on whose cores the curve is; without it, memory slows tasks down as was
    measured here. Raises ValueError if nothing was measured.
    """
    case, here = Recorded.of(measured, wide, memory), Recorded.of(measured, wide)
    known, most, steps = case.known, max(measured), measured[min(measured)].updates
    if memory:
        cores = memory.figures.cores
        workers = [count for count in workers if count < cores] + [cores]
    simulation = curve(case.replay, case.on, workers, steps, seed, known.caller, memory)
    simulation["measured"] = {str(p): run.seconds for p, run in measured.items()}
    simulation["error"] = {
        # How far off the simulation is where it can be compared: beside the curve, so that readers can judge
        # it.
        str(p): _seconds(here.replay(p), p, here.on(p), steps, seed, known.caller) / run.seconds - 1
        for p, run in measured.items()
    }
    return {"simulation": simulation, "grain": grain(here.replay(most), known.machine, most)}


@dataclass(frozen=True, eq=False)
class Recorded:
    """What was recorded, for any number of workers of this machine, or of one with another `memory`."""

    known: Calibration
    measured: Mapping[int, Measured]
    wide: TaskGraph | None
    memory: Memory | None = None

    @classmethod
    def of(
        cls,
        measured: Mapping[int, Measured],
        wide: TaskGraph | None = None,
        memory: Memory | None = None,
    ) -> Recorded:
        """Return it with costs taken from the recordings; ValueError if there is none."""
        return cls(calibrated(measured), measured, wide, memory)

    def replay(self, count: int) -> Replay:
        """Return the tasks as they are ordered for so many workers."""
        most = max(self.measured)
        # The graph of the next larger number that was measured: more workers have more slack between buffers.
        enough = min((p for p in self.measured if p >= count), default=most)
        graph = self.measured[enough].graph
        if self.wide is not None and count > most:
            graph = self.wide
        return self.known.replay(graph, count)

    def on(self, count: int) -> Machine:
        """Return the machine as so many workers find it."""
        if self.memory is None:
            return self.known.on(count)
        known = replace(self.known, cores=self.memory.figures.cores)
        return self.memory.on(known.on(count))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A replay with its bytes, the machine, and what memory without limits would bring."""

    replay: Replay
    machine: Machine
    unlimited: Outcome


def prepare(
    own: Replay,
    machine: Machine,
    count: int,
    steps: int,
    seed: int = 0,
    memory: Memory | None = None,
) -> Prepared:
    """Simulate without memory's limits, and count by that what tasks move, if there is a memory to count for."""
    log = own.graph.size * steps if memory else 0
    free = simulate(own, count, without_memory(machine), steps, seed, log)
    return Prepared(memory.counted(own, free, count) if memory else own, machine, free)


def curve(
    replay: Callable[[int], Replay],
    on: Callable[[int], Machine],
    workers: Sequence[int],
    steps: int = 10,
    seed: int = 0,
    caller: float = 0.0,
    memory: Memory | None = None,
) -> dict[str, Any]:
    """Return the seconds of an update on each number of workers, JSON-able, with a range and Brent's bounds.

    `replay` gives the tasks as they are cut and ordered for a number of workers, `on` the machine as that number
    finds it. `brent_lower` is T1 / P, `brent_upper` T1 / P + Tinf with dispatch and a steal for each task (ZNN,
    arXiv 1510.06706, section V). These bounds ignore memory, and so does `unlimited`. `least` and `most` do not: the
    longest of T1 / P, of what the longest cycle of tasks takes an update, and of an update's bytes at memory's rate;
    and Brent's bound with every task as slow as while all workers want memory, with its tokens and a steal
    (burdened work and span, as Cilkscale has them). `bytes`, `waits`: of an update, from and to memory, and by
    kind of task the seconds that workers wait for it. `caller`: seconds of an update in which the thread that
    submits them computes; no number of workers makes updates come faster.
    """
    rows: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, "bytes", "waits")}
    for count in workers:
        ready = prepare(replay(count), on(count), count, steps, seed, memory)
        own, machine = ready.replay, ready.machine
        alone = max(ready.unlimited.seconds_per_step, caller)
        run, waits = ready.unlimited, {}
        # Not simulated twice where memory makes no difference.
        if _crowded(own, machine):
            run = simulate(own, count, machine, steps, seed)
            waits = waits_by_kind(own, run)
        moved = bytes_of_step(own)
        work = own.work(steps) / steps
        loaded, slowed = own.loaded(machine), own.slowed(machine, count).loaded(machine)
        hands = max(machine.caller, caller)
        values = (
            max(run.seconds_per_step, caller),
            alone,
            work / count,
            loaded.work(steps) / steps / count + loaded.span() + hands,
            max(work / count, own.period(), moved / machine.memory, caller),
            slowed.work(steps) / steps / count + slowed.span() + hands,
            moved,
            waits,
        )
        for column, value in zip(rows.values(), values, strict=True):
            column.append(value)
    own = replay(max(workers))
    return {
        "workers": list(workers),
        **rows,
        "work": own.work(steps) / steps,
        "span": own.span(),
        "memory": asdict(memory.figures) if memory else None,
        "machine": {
            "dispatch": machine.dispatch,
            "successor": machine.successor,
            "steal": machine.steal,
            "wake": machine.wake,
            "caller": machine.caller,
            "bandwidth": machine.bandwidth if np.isfinite(machine.bandwidth) else None,
        },
    }


def _crowded(replay: Replay, machine: Machine) -> bool:
    """Return whether memory can make a difference."""
    shared = bool(np.isfinite(machine.bandwidth) and replay.shares.any())
    return shared or bool(np.isfinite(machine.memory) and replay.traffic.any())


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
