"""What `znnpy check` says about a config and its volumes, found without training."""

from __future__ import annotations

import os
from functools import partial
from math import prod
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from znnpy.cli.tables import console
from znnpy.config.models import Config
from znnpy.data.memory import readable
from znnpy.engine.autotune import known_or_estimated, planned
from znnpy.engine.memory.images import Layout
from znnpy.engine.memory.limits import least_bytes, refuse_hopeless
from znnpy.engine.planning import MemoryPlan, estimated_work, planned_within
from znnpy.engine.steps import Settings
from znnpy.errors import PlanError
from znnpy.geometry import Geometry, trained_geometry
from znnpy.geometry.finest import finest
from znnpy.infer.build import make_optimizer, pinned_plan
from znnpy.infer.dense import densest
from znnpy.infer.material import make_targets
from znnpy.infer.tiling import Tiling
from znnpy.layers.edges import EDGE_KINDS
from znnpy.network import (
    Network,
    build_network,
    doubtful_outputs,
    parameter_shapes,
    trained_network,
    training_losses,
)
from znnpy.network.parameters import held
from znnpy.plan import PASSES, ConvShape, Plan
from znnpy.plan.choose import UNMEASURED, Choice, estimated_costs, layer_costs, left_out
from znnpy.plan.compare import compared
from znnpy.plan.cost import MEMORY_RATE, convolutions
from znnpy.plan.ranges import TARGET_SECONDS
from znnpy.scheduler.cores import available_cores
from znnpy.train.survey import survey

MOST_TASKS = (
    3000  # of an update, as estimated, up to which they are declared to count memory and work
)
TASKS_EACH = 10  # of a node and its edges, at least
MOST_SHAPES = 24  # of layers that differ, up to which their algorithms are weighed
_UNPLANNED = "unplanned"
_PASSES = {"forward": "forward", "gradient": "data gradient", "weight": "weight gradient"}


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
    prediction = Tiling.of(config, densest(finest(network))).words()
    sizes = training.at_once, True
    refuse_hopeless(network, geometry, *sizes, run.max_memory, staged=training.batch)
    volumes = survey(config, network)
    pinned = pinned_plan(config, network)
    conv = _affordable(config, network, geometry, measure=measure)
    sizes_at_once = network, geometry, training.at_once
    plan = planned(*sizes_at_once, conv, pinned, measuring=measure, max_memory=run.max_memory)
    threads = run.threads or available_cores()
    algorithms = _algorithms(config, network, geometry, plan, conv)
    count, in_flight = training.batch // training.at_once, 1
    tasks = count * _expected_tasks(algorithms, network, geometry, training.at_once)
    counted = measure or tasks <= MOST_TASKS
    if counted:
        layout = Layout.of_batch(
            network, geometry, plan, training.batch, training.at_once, training.seed, threads
        )
        settings = Settings(
            training_losses(config, network),
            make_optimizer(training.optimizer),
            training.clip_norm,
            threads,
            run.policy,
            max_memory=run.max_memory,
        )
        memory = _planned(layout, settings, algorithms)
        in_flight = memory.layout.replicas
        bytes_, uses, kept, again = memory.bytes, dict(memory.uses), memory.kept, memory.again
        work = estimated_work(memory.layout, settings) + again
    else:
        bytes_, uses = least_bytes(network, geometry, *sizes, staged=training.batch), {}
        kept, again = bytes_, 0.0
        work = count * sum(row["seconds"] for row in algorithms)
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
        "parameters": sum(prod(shape) for shape in shapes.values()),
        "microbatches": {"patches": training.at_once, "count": count, "in_flight": in_flight},
        "counted": counted,
        "memory_bytes": bytes_,
        "memory_uses": uses,
        "memory_kept_bytes": kept,
        "again_seconds": again,
        "threads": threads,
        "work_seconds": work,
        "update_seconds": work / threads,
        "warnings": doubtful_outputs(network, training.loss) + left_out(training),
    }


def _planned(layout: Layout, settings: Settings, algorithms: list[dict[str, Any]]) -> MemoryPlan:
    """Memory as planned; PlanError says where other algorithms might need less."""
    try:
        return planned_within(layout, settings)
    except PlanError as error:
        if any(row["why"] == UNMEASURED for row in algorithms):
            raise PlanError(
                f"{error}. Algorithms are estimated here; training measures them first and may need "
                "another amount: --measure does it now"
            ) from None
        raise


def _expected_tasks(
    algorithms: list[dict[str, Any]], network: Network, geometry: Geometry, batch: int
) -> float:
    """About how many tasks an update has: declaring them all takes time and memory for each."""
    voxels: int = sum(node.images * prod(geometry.nodes[node.name].shape) for node in network.nodes)
    moved = 4.0 * 3 * batch * voxels / MEMORY_RATE
    seconds: float = sum(row["seconds"] for row in algorithms)
    return TASKS_EACH * len(network.nodes) + (seconds + moved) / TARGET_SECONDS


def print_summary(found: dict[str, Any]) -> None:
    """The summary as tables."""
    out = console()
    if found["volumes"]:
        out.print(_volumes(found))
    else:
        out.print("volumes         the config names none: data.train is empty", highlight=False)
    out.print(_layers(found))
    out.print(_plans(found), width=min(100, out.width))
    if any(row["why"] == _UNPLANNED for row in found["algorithms"]):
        words = f"more than {MOST_SHAPES} layers differ, shown as if direct; --measure plans them"
        out.print(f"{_UNPLANNED:15} {words}", highlight=False)
    if any(row["why"] == UNMEASURED for row in found["algorithms"]):
        words = "training measures these first and may choose others; --measure does it now"
        out.print(f"{UNMEASURED:15} {words}", highlight=False)
    views = ", ".join(f"{name} {_size(view)}" for name, view in found["field_of_view"].items())
    out.print(f"field of view   {views}", highlight=False)
    out.print(f"prediction      {found['prediction']}", highlight=False, soft_wrap=True)
    out.print(f"parameters      {found['parameters']:,}", highlight=False)
    if found["microbatches"]["count"] > 1:
        out.print(f"microbatches    {_microbatches(found)}", highlight=False)
    if found["counted"]:
        out.print(f"peak memory     {readable(found['memory_bytes'])}", highlight=False)
        out.print(f"at the peak     {_uses(found['memory_uses'])}", highlight=False)
        if found["again_seconds"]:
            out.print(f"made again      {_again(found)}", highlight=False)
    else:
        least = f"at least {readable(found['memory_bytes'])}, by the images alone"
        words = f"{least}; an update has too many tasks to count them quickly, --measure counts"
        out.print(f"peak memory     {words}", highlight=False)
    out.print(
        f"time per update about {found['update_seconds'] * 1e3:.3g} ms on {found['threads']} "
        f"threads (estimated work {found['work_seconds'] * 1e3:.3g} ms)",
        highlight=False,
    )
    for text in found["warnings"]:
        out.print(f"warning: {text}", highlight=False, soft_wrap=True)


def _microbatches(found: dict[str, Any]) -> str:
    own = found["microbatches"]
    patches = f"{own['patches']} patch{'' if own['patches'] == 1 else 'es'} each"
    at_once = f", {own['in_flight']} in flight at once" if found["counted"] else ""
    return f"{own['count']} an update, {patches}{at_once}"


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
    config: Config, network: Network, geometry: Geometry, plan: Plan, conv: Choice
) -> list[dict[str, Any]]:
    """A record for each layer and pass that it needs, with the runner-up; in seconds on one core."""
    made, most = [], config.run.max_memory
    measure = partial(known_or_estimated, max_memory=most)
    for name, shape in _conv_shapes(config, network, geometry).items():
        costs, why = layer_costs(shape, conv, measure)
        why = why if conv == config.training.conv else _UNPLANNED
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


def _conv_shapes(config: Config, network: Network, geometry: Geometry) -> dict[str, ConvShape]:
    return {
        edge.name: ConvShape.of(edge, network, geometry, config.training.at_once)
        for edge in convolutions(network)
    }


def _layers(found: dict[str, Any]) -> Table:
    table = _table("network (sizes z, y, x)")
    for name in ("name", "what", "images", "size or shape", "stride", "sparsity", "parameters"):
        table.add_column(name)
    for node in found["nodes"]:
        for edge in (e for e in found["edges"] if e["to"] == node["name"]):
            what = f"{edge['kind']} of {edge['from']}"
            windowed = "size" in EDGE_KINDS[edge["kind"]].keys.model_fields
            size = _size(edge["size"]) if windowed else ""
            steps = _size(edge["stride"]), _size(edge["sparsity"])
            table.add_row(f"  {edge['name']}", what, "", size, *steps, _count(edge), style="dim")
        what = node["function"] or node["kind"]
        what = f"{node['norm']} norm, {what}" if node["norm"] else what
        steps = _size(node["stride"]), _size(node["sparsity"])
        shape = _size(node["shape"])
        table.add_row(node["name"], what, str(node["images"]), shape, *steps, _count(node))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _volumes(found: dict[str, Any]) -> Table:
    table = _table("volumes (shapes c, z, y, x)")
    for name in ("what", "volume", "shape", "type", "range", "patches"):
        table.add_column(name, overflow="fold")
    for volume in found["volumes"]:
        shape = _size(volume["shape"])
        span = f"{volume['lowest']:g} to {volume['highest']:g}"
        span += "" if volume["whole"] else " (sample)"
        what = volume["key"].removeprefix("data.")
        count = f"{volume['positions']:,}" if "positions" in volume else ""
        table.add_row(what, _near(volume["name"]), shape, volume["type"], span, count)
    return table


def _near(name: str) -> str:
    """A file's name from the current folder, where that is shorter."""
    return min(name, os.path.relpath(name), key=len)


def _plans(found: dict[str, Any]) -> Table:
    table = _table("algorithms (ms on one core)")
    for name in ("layer", "pass", "algorithm"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("next best", overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("why", overflow="fold")
    before = None
    for row in found["algorithms"]:
        first = row["layer"] != before
        before = row["layer"]
        table.add_row(
            before if first else "",
            _PASSES[row["pass"]],
            row["algorithm"],
            _ms(row["seconds"]),
            row["next"] or "",
            _ms(row["next_seconds"]),
            row["why"] if first else "",
        )
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _again(found: dict[str, Any]) -> str:
    """What is saved by what the forward pass leaves and the backward pass makes again, and what that costs."""
    saved = found["memory_kept_bytes"] - found["memory_bytes"]
    share = found["again_seconds"] / (found["work_seconds"] - found["again_seconds"])
    return (
        f"by run.max_memory: {readable(saved)} less than {readable(found['memory_kept_bytes'])}, "
        f"{share:.1%} more work; the same bits"
    )


def _uses(bytes_: dict[str, int]) -> str:
    """What memory serves at the busiest moment, largest first, without what is under 1 %."""
    total = sum(bytes_.values())
    ranked = sorted(bytes_.items(), key=lambda it: -it[1])
    return ", ".join(f"{use} {readable(size)}" for use, size in ranked if size > total / 100)


def _size(triple: tuple[int, ...]) -> str:
    return "x".join(map(str, triple))


def _count(item: dict[str, Any]) -> str:
    return f"{item['parameters']:,}" if item["parameters"] else ""
