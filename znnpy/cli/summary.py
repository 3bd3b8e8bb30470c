"""What `znnpy check` says about a config and its volumes, found without training."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from znnpy_kernels.simd.lanes import LANES

from znnpy.cli.needs import find_needs
from znnpy.config.models import Config
from znnpy.engine.autotune import known_or_estimated, measuring_bytes, planned
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.limits import refuse_hopeless
from znnpy.geometry import Geometry, trained_geometry
from znnpy.geometry.finest import finest
from znnpy.infer.build import pinned_plan, plan_room, saved_bytes
from znnpy.infer.dense import densest
from znnpy.infer.material import make_targets
from znnpy.infer.tiling import Tiling, unused_windows
from znnpy.network import (
    Network,
    build_network,
    doubtful_outputs,
    parameter_shapes,
    trained_network,
)
from znnpy.network.parameters import held
from znnpy.plan import PASSES, ConvShape, Plan
from znnpy.plan.choose import Choice, estimated_costs, layer_costs, left_out
from znnpy.plan.compare import compared
from znnpy.plan.cost import convolutions
from znnpy.plan.fingerprint import fingerprint
from znnpy.scheduler.cores import available_cores
from znnpy.train.patches import nothing_in
from znnpy.train.survey import survey

MOST_SHAPES = 24  # of layers that differ, up to which their algorithms are weighed
UNPLANNED = "unplanned"


def summarise(config: Config, *, measure: bool = False) -> dict[str, Any]:
    """Volumes, layers, shapes, plan, memory and time of one update, JSON-able; sizes z, y, x.

    Plans as training would if it `measure`s layers that this machine has not seen; else these are
    estimated. Raises VolumeError for volumes, before anything is planned, and PlanError when
    run.max_memory is exceeded.
    """
    training, run = config.training, config.run
    written = build_network(config.network)
    network = trained_network(config)
    make_targets(config, network)
    geometry = trained_geometry(config, network)
    predicted = densest(finest(network))
    prediction = Tiling.of(config, predicted).words()
    at_once = network, geometry, training.at_once
    with plan_room(config, network) as most:
        states = len(Optimizer.of(training.optimizer).state_names)
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
        "field_of_view": geometry.fields_of_view,
        "prediction": prediction,
        "nodes": _nodes(written, geometry, shapes),
        "edges": _edges(network, geometry, plan, shapes),
        "algorithms": algorithms,
        "fingerprint": fingerprint(plan) if conv == training.conv else None,
        "lanes": LANES,
        "parameters": sum(prod(shape) for shape in shapes.values()),
        "microbatches": {"patches": training.at_once, "count": count, "in_flight": needs.in_flight},
        "counted": needs.counted,
        "memory_bytes": needs.bytes,
        "memory_uses": needs.uses,
        # Where an update has too many tasks to count, so have its layers.
        "measuring_bytes": _measuring(*sizes, conv, most) if needs.counted and not measure else 0,
        "memory_kept_bytes": needs.kept,
        "checkpoint_bytes": saved_bytes(config, network),
        "again_seconds": needs.again,
        "threads": threads,
        "work_seconds": needs.work,
        "update_seconds": needs.work / threads,
        "warnings": (
            []
            if config.data.train
            else [f"{nothing_in('data.train')}: this is a look at the network alone"]
        )
        + doubtful_outputs(network, training.loss)
        + left_out(training)
        + unused_windows(config, predicted),
    }


def _nodes(network: Network, geometry: Geometry, shapes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": node.name,
            "kind": node.kind,
            "function": node.function if node.kind == "transfer" else None,
            "images": node.images,
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
    """A record for each layer and pass that it needs, with the runner-up; in seconds on one core."""
    made = []
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
                    "next": str(row.other) if row.other else None,
                    "next_seconds": row.other_seconds,
                    "why": why,
                }
            )
    return made


def _affordable(config: Config, network: Network, geometry: Geometry, *, measure: bool) -> Choice:
    """The config's choice of algorithms, but direct where weighing those of all layers takes long."""
    different = set(_conv_shapes(config, network, geometry).values())
    return config.training.conv if measure or len(different) <= MOST_SHAPES else "direct"


def _measuring(
    config: Config, network: Network, geometry: Geometry, conv: Choice, most: int | None
) -> int:
    """Bytes that training takes at its start to measure layers; 0 where it measures none."""
    if conv != "auto" or config.training.plan is not None:
        return 0
    return measuring_bytes(network, geometry, config.training.at_once, True, most)


def _conv_shapes(config: Config, network: Network, geometry: Geometry) -> dict[str, ConvShape]:
    return {
        edge.name: ConvShape.of(edge, network, geometry, config.training.at_once)
        for edge in convolutions(network)
    }
