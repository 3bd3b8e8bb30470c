"""Records the graphs of many workers on one, and simulates these workers: `scaling.py --recorded`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peers.cases import network_case

from znnpy import Execution, Model
from znnpy.cli.options import memory_bytes
from znnpy.config import load_config
from znnpy.geometry import trained_geometry
from znnpy.geometry.finest_outputs import finest
from znnpy.graph import Touched
from znnpy.infer.config_model import patch_model, training_model
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.network import trained_network
from znnpy.network.types import Network, Triple
from znnpy.profile.machine import OtherMachine
from znnpy.profile.recorded_updates import events_needed, profile_predictions, profile_updates
from znnpy.scheduler.core_count import available_cores
from znnpy.scheduler.topology import last_level_caches
from znnpy.simulate import Machine, Measured, Memory, Replay, curve, simulate
from znnpy.simulate.measured_costs import measured_machine, run_costs

Make = Callable[[int, int, Any], Model]
"""Makes a model for so many workers that keeps so many events, by a plan or None."""
CASE = re.compile(r"[1-9]\d*x[1-9]\d*")
"""A net of ZNN's pattern, FILTERxWIDTH."""
WARM_UP = 2
HERE = {"cores": available_cores(), "caches": [cache.bytes for cache in last_level_caches()]}


def show_recorded(options: argparse.Namespace) -> None:
    """Print a line for each net and number of workers."""
    found, counted = {}, options.memory_bandwidth is not None
    header = (
        "net | workers | tasks | T1 ms | Tinf ms | T1 / Tinf | longest us | update ms | speed-up"
    )
    print(header + (" | with memory: ms | from | to | speed-up | MiB | waits" if counted else ""))
    for net in options.recorded:
        make, rows = maker(net, forward=options.forward), []
        plan, alone = None, None
        for workers in (1, *options.workers):
            it = record(
                make, workers, options.updates, options.line, plan, options.forward,
                least=options.least,
            )  # fmt: skip
            row, plan = recorded(it, workers, _memory(options, it.touched)), it.plan
            alone = alone or row["seconds"]
            row["speed_up"] = alone / row["seconds"]
            if counted:
                row["memory"]["speed_up"] = alone / row["memory"]["seconds"]
            rows.append(row)
            print(
                f"{Path(net).stem} | {workers} | {row['tasks']} | {row['work'] * 1e3:.2f} | "
                f"{row['span'] * 1e3:.2f} | {row['work'] / row['span']:.0f} | {row['longest'] * 1e6:.0f} | "
                f"{row['seconds'] * 1e3:.2f} | {row['speed_up']:.1f}"
                + (" | " + _with_memory(row) if counted else ""),
                flush=True,
            )
        found[net] = rows
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def _with_memory(row: dict[str, Any]) -> str:
    """The columns of a simulation that counts bytes; kinds that wait for a hundredth of the workers' time or more."""
    it, whole = row["memory"], row["memory"]["seconds"] * row["workers"]
    waits = [
        f"{kind} {seconds / whole:.0%}"
        for kind, seconds in it["waits"].items()
        if seconds >= 0.01 * whole
    ]
    return (
        f"{it['seconds'] * 1e3:.2f} | {it['least'] * 1e3:.2f} | {it['most'] * 1e3:.2f} | {it['speed_up']:.1f} | "
        f"{it['bytes'] / 2**20:.0f} | {', '.join(waits) or 'none'}"
    )


def maker(net: str, *, forward: bool = False, threads: int = 1) -> Make:
    """How to make the models of a net: that train, or that predict a patch as large as those of training.

    `threads`: on which they run, whatever the number of workers that they are cut for.
    """
    if CASE.fullmatch(net):
        case = network_case(net)
        return of_network(case.network, case.output_shape, training=not forward, threads=threads)
    config = load_config(Path(net))
    network = trained_network(config)
    run = config.run.model_copy(update={"threads": threads})
    config = config.model_copy(update={"run": run})
    if forward:
        patch, (inference,) = trained_geometry(config, finest(network)), finest(network).outputs
        shape = patch.output_shapes[inference.name]
        return lambda workers, record, plan: patch_model(
            config, finest(network), shape, plan, record, cut_for=workers
        )
    plans: dict[int, Any] = {}

    def updated(workers: int, record: int, plan: Any) -> Model:
        # `microbatch: auto` as these workers would have it, each size with a plan of its own.
        settled = with_microbatch_chosen(config, network, workers=workers)
        size = settled.training.at_once
        own = plans.get(size, plan if size == config.training.at_once else None)
        model = training_model(settled, network, own, record, cut_for=workers)
        plans[size] = model.plan_record
        return model

    return updated


def of_network(
    network: Network,
    shape: Triple,
    conv: str = "auto",
    *,
    training: bool = True,
    threads: int = 1,
) -> Make:
    """How to make the models of a network and output shape, which run on so many threads."""

    def made(workers: int, record: int, plan: Any) -> Model:
        execution = Execution(cut_for=workers, record=record)
        return Model(
            network,
            shape,
            threads=threads,
            conv=conv,
            plan=plan,
            training=training,
            execution=execution,
        )

    return made


@dataclass(frozen=True)
class Recording:
    """The graph for some workers as it ran on one: medians or least of its tasks' seconds, and the machine."""

    replay: Replay
    machine: Machine
    touched: Touched
    updates: int
    plan: Any


def record(
    make: Make,
    workers: int,
    updates: int,
    line: float = 50.0,
    plan: Any = None,
    forward: bool = False,
    *,
    least: bool = False,
) -> Recording:
    """Record the graph for so many workers on one; `line`: ns that each token takes from core to core.

    `forward`: passes of models that predict, in place of updates. `least`: of the runs of each task, not their median.
    """
    run = profile_predictions if forward else profile_updates
    with make(workers, 0, plan) as model:
        needed, plan = events_needed(model, updates + WARM_UP), model.plan_record
    with make(workers, needed, plan) as model:
        profile = run(model, updates, WARM_UP)
        graph, touched = model.task_graph_for(workers), model.touched()
    events = [worker.events for worker in profile.workers]
    measured = Measured(
        profile.graph, events, profile.updates, profile.seconds_per_update, 0.0, available_cores()
    )
    # What disturbs some updates of one recording must not count as work of its graph.
    costs = (np.min if least else np.median)(run_costs(measured), axis=0)
    replay = Replay.of(graph, costs)
    machine = measured_machine(measured)
    if workers > 1:
        machine = Machine(dispatch=machine.dispatch, successor=line * 1e-9)
    return Recording(replay, machine, touched, updates, plan)


def recorded(it: Recording, workers: int, memory: Memory | None) -> dict[str, Any]:
    """The row of so many workers."""
    own, names = it.replay, ("seconds", "least", "most", "bytes", "waits")
    row = {
        "workers": workers,
        "tasks": own.graph.size // 2,
        "work": own.work(it.updates) / it.updates,
        "span": own.span(),
        "longest": float(own.costs.max()),
        "seconds": simulate(own, workers, it.machine, it.updates).seconds_per_step,
    }
    if memory:
        machine = memory.on(it.machine)
        found = curve(lambda _: own, lambda _: machine, [workers], it.updates, memory=memory)
        row["memory"] = {name: found[name][0] for name in names}
    return row


def _memory(options: argparse.Namespace, touched: Touched) -> Memory | None:
    if options.memory_bandwidth is None:
        return None
    machine = OtherMachine(
        max(options.workers),
        options.memory_bandwidth * 1e9,
        memory_bytes(options.l3, "--l3"),
        options.domains,
    )
    return Memory(machine.figures(HERE), touched)
