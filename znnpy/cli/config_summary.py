"""Computes what `znnpy check` prints: volumes, layers, memory and time of an update, algorithms with runner-ups.

Memory and time are counted from an update's tasks, or, where these would be very many, bounded from below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

from znnpy_kernels.simd.lanes import LANES

from znnpy.config.models import Config
from znnpy.data.config_volumes import make_targets
from znnpy.engine.autotune import known_or_estimated, measuring_bytes, planned
from znnpy.engine.convolution.flops import of_convolution
from znnpy.engine.kept.graphs import recalled
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.limits import TooLargeError, least_bytes, refuse_hopeless
from znnpy.engine.memory_planning import MemoryPlan, planned_within
from znnpy.engine.step_tasks import Settings
from znnpy.engine.tasks.declaration import uncollected
from znnpy.geometry import Geometry, trained_geometry
from znnpy.geometry.finest_outputs import finest
from znnpy.infer.config_model import frozen_of
from znnpy.infer.microbatch import with_microbatch_chosen
from znnpy.infer.plan_limits import pinned_plan, plan_room, saved_bytes
from znnpy.infer.tiling import Tiling, unused_windows
from znnpy.network import (
    Network,
    build_network,
    doubtful_outputs,
    losses_of,
    parameter_shapes,
    trained_network,
    training_losses,
)
from znnpy.network.dense_conversion import densest
from znnpy.network.parameters import held
from znnpy.plan import PASSES, ConvShape, Plan
from znnpy.plan.choose import MEASURED, UNMEASURED, Choice, estimated_costs, layer_costs, left_out
from znnpy.plan.cost import MEMORY_RATE, convolutions
from znnpy.plan.fingerprint import fingerprint
from znnpy.plan.joint_choice import needed, shared_total
from znnpy.plan.partition import TARGET_SECONDS
from znnpy.plan.types import Costs, LayerPlan, Method, PassName
from znnpy.profile.machine import sgemm_rate
from znnpy.scheduler.core_count import available_cores
from znnpy.scheduler.topology import last_level_caches, numa_nodes
from znnpy.train.best import best_of
from znnpy.train.first_weights import first_weights
from znnpy.train.patch_sources import nothing_in
from znnpy.train.start import contents_of
from znnpy.train.survey import survey

# Of an update, of 0.1 ms each as estimated, up to which tasks are declared to be counted: those of nnU-Net at its real
# size are, in seconds.
MOST_TASKS = 500_000
TASKS_EACH = 10  # of a node and its edges, at least
Algorithms = list[dict[str, Any]]
MOST_SHAPES = 64  # of layers that differ, up to which their algorithms are compared
UNPLANNED = "unplanned"


@dataclass(frozen=True)
class Compared:
    """Seconds of one pass by its method; `other` is the next best, None where there is no other.

    What passes share counts at the first of them, so that a layer's passes add up to the layer.
    `other_seconds`: with the methods of the other passes as they are.
    """

    step: PassName
    method: Method
    seconds: float
    other: Method | None = None
    other_seconds: float | None = None


def compared(shape: ConvShape, layer: LayerPlan, costs: Costs) -> list[Compared]:
    """Return the passes that a layer needs; `costs` has seconds by part of its methods and the others."""
    chosen: dict[PassName, Method] = {which: layer.method(which) for which in shape.passes}
    # Tasks that make both gradients leave a pass nothing of its own.
    costs = needed(costs, shape)
    least, met = shared_total(chosen, costs), dict[PassName, Method]()
    rows, before = [], 0.0
    for which, method in chosen.items():
        met[which] = method
        seconds = shared_total(met, costs) - before
        before += seconds
        seconds += _moved(which, chosen, costs)
        others = {
            other: seconds + shared_total(chosen | {which: other}, costs) - least
            for other in costs
            if other != method
        }
        best = min(others, key=others.__getitem__, default=None)
        rows.append(Compared(which, method, seconds, best, others[best] if best else None))
    return rows


def _moved(which: PassName, chosen: Mapping[PassName, Method], costs: Costs) -> float:
    """Return the seconds that a pass is told more: tasks by Winograd that make both gradients are half of each.

    What other algorithms share are transforms, which the first pass needs anyway.
    """
    method, share = chosen[which], {"gradient": -0.5, "weight": 0.5}.get(which, 0.0)
    if method.algorithm != "winograd" or chosen.get("gradient") != chosen.get("weight"):
        return 0.0
    return share * costs[method].get("gradients", 0.0)


@dataclass(frozen=True)
class Needs:
    """The memory and time of an update; lower bounds if not `counted`.

    `bytes` in all, `uses`: what they serve at the moment that needs most, `kept`: bytes without rematerialisation
    (nothing computed again). `work`: seconds on one core, `again` of them for what is computed again. `in_flight`:
    microbatches at once. `connected`: training finds its tasks connected by an earlier start.
    """

    counted: bool
    bytes: int
    uses: dict[str, int]
    kept: int
    work: float
    again: float
    in_flight: int
    connected: bool = False


def find_needs(
    config: Config,
    network: Network,
    geometry: Geometry,
    plan: Plan,
    algorithms: Algorithms,
    threads: int,
    most: int | None,
    *,
    always: bool,
) -> Needs:
    """Return the needs, counted `always`, or where few tasks are expected; PlanError for more than `most` bytes."""
    training = config.training
    count, optimizer = training.batch // training.at_once, Optimizer.trained(training)
    layers: float = count * sum(row["seconds"] for row in algorithms)
    layout = Layout.of_batch(
        network, geometry, plan, training.batch, training.at_once, training.seed, threads
    )
    settings = Settings(
        training_losses(config, network),
        optimizer,
        training.clip_norm,
        threads,
        config.run.policy,
        max_memory=most,
        frozen=frozen_of(config, network),
    )
    memory = recalled(layout, settings)
    tasks = count * _expected_tasks(algorithms, network, geometry, training.at_once)
    if not memory and not always and tasks > MOST_TASKS:
        states, sizes = len(optimizer.state_names), (network, geometry, training.at_once)
        least = least_bytes(*sizes, True, staged=training.batch, states=states)
        return Needs(False, least, {}, least, layers, 0.0, 1)
    memory = memory or _planned(layout, settings, algorithms)
    work = layers + memory.elementwise + memory.again
    return Needs(
        True,
        memory.bytes,
        dict(memory.uses),
        memory.kept,
        work,
        memory.again,
        memory.layout.replicas,
        memory.connected is not None,
    )


def _planned(layout: Layout, settings: Settings, algorithms: Algorithms) -> MemoryPlan:
    """Return the planned memory; PlanError says where other algorithms might need less."""
    try:
        return planned_within(layout, settings)
    except TooLargeError as error:
        if any(row["why"] == UNMEASURED for row in algorithms):
            estimated = (
                f"{error.hint}. Algorithms are estimated here; training measures them first and may need "
                "another amount: --measure does it now"
            )
            raise TooLargeError(error.needs, error.has, estimated) from None
        raise


def _expected_tasks(
    algorithms: Algorithms, network: Network, geometry: Geometry, batch: int
) -> float:
    """Return about how many tasks an update has: declaring them all takes time and memory for each."""
    voxels: int = sum(
        node.channels * prod(geometry.nodes[node.name].shape) for node in network.nodes
    )
    moved = 4.0 * 3 * batch * voxels / MEMORY_RATE
    seconds: float = sum(row["seconds"] for row in algorithms)
    return TASKS_EACH * len(network.nodes) + (seconds + moved) / TARGET_SECONDS


@uncollected()
def summarise(config: Config, *, measure: bool = False) -> dict[str, Any]:
    """Return volumes, layers, shapes, plan, memory and time of one update, JSON-able; sizes z, y, x.

    Plans as training would if it `measure`s layers that this machine has not measured; else these are
    estimated. Raises VolumeError for volumes, before anything is planned, and PlanError when
    run.max_memory is exceeded.
    """
    run, chosen = config.run, config.training.microbatch == "auto"
    written = build_network(config.network)
    network = trained_network(config)
    make_targets(config, network)
    best_of(config, network)  # refuses a score that there will not be
    frozen_of(config, network)
    config = with_microbatch_chosen(config, network)
    training = config.training
    first = first_weights(config, network, contents_of(config))
    begun = first.notes() if first else []
    geometry = trained_geometry(config, network)
    predicted = densest(finest(network))
    prediction = Tiling.of(config, predicted).words()
    at_once = network, geometry, training.at_once
    with plan_room(config, network) as most:
        states = len(Optimizer.trained(training).state_names)
        refuse_hopeless(*at_once, True, most, staged=training.batch, states=states)
        volumes = survey(config, network)
        pinned = pinned_plan(config, network)
        conv = _affordable(config, network, geometry, measure=measure)
        plan = planned(*at_once, conv, pinned, measuring=measure, max_memory=most)
        threads = run.threads or available_cores()
        algorithms = _algorithms(config, network, geometry, plan, conv, most)
        sizes = config, network, geometry
        needs = find_needs(*sizes, plan, algorithms, threads, most, always=measure)
    count = training.batch // training.at_once
    shapes = parameter_shapes(network)
    return {
        "volumes": volumes,
        "inputs": geometry.input_shapes,
        "outputs": geometry.output_shapes,
        "receptive_field": geometry.fields_of_view,
        "prediction": prediction,
        "nodes": _nodes(written, geometry, shapes),
        "edges": _edges(network, geometry, plan, shapes),
        "algorithms": algorithms,
        "fingerprint": fingerprint(plan) if conv == training.conv else None,
        "lanes": LANES,
        "parameters": sum(prod(shape) for shape in shapes.values()),
        "microbatches": {
            "patches": training.at_once,
            "count": count,
            "in_flight": needs.in_flight,
            "chosen": chosen,
        },
        "counted": needs.counted,
        "memory_bytes": needs.bytes,
        "memory_uses": needs.uses,
        # Where an update has too many tasks to count, so have its layers.
        "measuring_bytes": _measuring(*sizes, conv, most) if needs.counted and not measure else 0,
        "memory_kept_bytes": needs.kept,
        "checkpoint_bytes": saved_bytes(config, network),
        "again_seconds": needs.again,
        "connected": needs.connected,
        "threads": threads,
        "machine": {
            "cores": available_cores(),
            "caches": [cache._asdict() for cache in last_level_caches()],
            "nodes": len(numa_nodes()),
        },
        "work_seconds": needs.work,
        "update_seconds": needs.work / threads,
        "weights": [text for text in begun if not text.startswith("warning: ")],
        "warnings": (
            []
            if config.data.train
            else [f"{nothing_in('data.train')}: this is a look at the network alone"]
        )
        + [text.removeprefix("warning: ") for text in begun if text.startswith("warning: ")]
        + doubtful_outputs(network, losses_of(config, network))
        + left_out(training, network)
        + unused_windows(config, predicted),
    }


def _nodes(network: Network, geometry: Geometry, shapes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": node.name,
            "kind": node.kind,
            "function": node.function if node.kind == "transfer" else None,
            "channels": node.channels,
            "shape": geometry.nodes[node.name].shape,
            "sparsity": geometry.nodes[node.name].sparsity,
            "stride": geometry.nodes[node.name].stride,
            "norm": node.norm.kind if node.norm else None,
            "parameters": sum(prod(shapes.get(name, (0,))) for name in (node.name, *held(node))),
        }
        for node in network.nodes
    ]


def _edges(
    network: Network, geometry: Geometry, plan: Plan, shapes: dict[str, Any]
) -> list[dict[str, Any]]:
    made = []
    for edge in network.edges:
        record: dict[str, Any] = {
            "name": edge.name,
            "kind": edge.kind,
            "from": edge.source,
            "to": edge.target,
            "size": edge.size,
            "stride": edge.stride,
            "sparsity": geometry.dilations[edge.name],
            "parameters": prod(shapes[edge.name]) if edge.name in shapes else 0,
        }
        if layer := plan.layers.get(edge.name):
            record["algorithms"] = {which: layer.method(which).algorithm for which in PASSES}
        made.append(record)
    return made


def _algorithms(
    config: Config,
    network: Network,
    geometry: Geometry,
    plan: Plan,
    conv: Choice,
    most: int | None,
) -> list[dict[str, Any]]:
    """Return a record for each layer and pass that it needs, with the runner-up; in seconds on one core.

    `of_sgemm`: the operations of direct convolution in that time, by those of a matrix product; None for estimates.
    """
    made: Algorithms = []
    # Once, if at all, by many short runs: other programs disturb few of them, as of the layers' tasks.
    rate = cache(partial(sgemm_rate, 512, 50))
    measure = partial(known_or_estimated, max_memory=most)
    for name, shape in _conv_shapes(config, network, geometry).items():
        costs, why = layer_costs(shape, conv, measure)
        why = why if conv == config.training.conv else UNPLANNED
        if config.training.plan is not None:
            pinned = [plan.layers[name].method(which) for which in shape.passes]
            costs, why = estimated_costs(shape, pinned) | costs, "training.plan"
        for row in compared(shape, plan.layers[name], costs):
            made.append(
                {
                    "layer": name,
                    "pass": row.step,
                    "algorithm": str(row.method),
                    "seconds": row.seconds,
                    "of_sgemm": of_convolution(shape) / row.seconds / rate()
                    if why == MEASURED
                    else None,
                    "next": str(row.other) if row.other else None,
                    "next_seconds": row.other_seconds,
                    "why": why,
                }
            )
    return made


def _affordable(config: Config, network: Network, geometry: Geometry, *, measure: bool) -> Choice:
    """Return the config's choice of algorithms, or direct where comparing those of all layers takes long."""
    different = set(_conv_shapes(config, network, geometry).values())
    return config.training.conv if measure or len(different) <= MOST_SHAPES else "direct"


def _measuring(
    config: Config, network: Network, geometry: Geometry, conv: Choice, most: int | None
) -> int:
    """Return the bytes that training takes at its start to measure layers; 0 where it measures none."""
    if conv != "auto" or config.training.plan is not None:
        return 0
    return measuring_bytes(network, geometry, config.training.at_once, True, most)


def _conv_shapes(config: Config, network: Network, geometry: Geometry) -> dict[str, ConvShape]:
    return {
        edge.name: ConvShape.of(edge, network, geometry, config.training.at_once)
        for edge in convolutions(network)
    }
