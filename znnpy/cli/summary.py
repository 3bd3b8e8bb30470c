"""What `znnpy check` says about a config, found without training and without the volumes."""

from __future__ import annotations

from math import prod
from typing import Any

from rich.table import Table

from znnpy.cli.tables import console
from znnpy.config.models import Config
from znnpy.data.memory import readable
from znnpy.engine.autotune import planned
from znnpy.engine.graphs import Settings, estimated_work, planned_bytes, planned_memory
from znnpy.engine.images import Layout
from znnpy.engine.memory import refuse_above
from znnpy.geometry import Geometry, fit
from znnpy.infer.build import make_optimizer
from znnpy.infer.material import make_targets
from znnpy.network import Network, build_network, parameter_shapes
from znnpy.plan import PASSES, Plan
from znnpy.scheduler.cores import available_cores


def summarise(config: Config) -> dict[str, Any]:
    """Layers, shapes, plan, memory and time of one update, JSON-able; sizes z, y, x.

    Plans as training would, so it measures layers on a machine that has not seen them. Raises
    PlanError when run.max_memory is exceeded.
    """
    training, run = config.training, config.run
    network = build_network(config.network)
    make_targets(config, network)
    geometry = fit(network, training.output_shape)
    plan = planned(network, geometry, training.batch, training.conv, None)
    threads = run.threads or available_cores()
    layout = Layout(network, geometry, plan, training.batch, True, training.seed, threads)
    settings = Settings(
        training.loss,
        make_optimizer(training.optimizer),
        training.clip_norm,
        threads,
        run.policy,
        max_memory=run.max_memory,
    )
    memory = planned_memory(layout, settings)
    if run.max_memory is not None:
        refuse_above(run.max_memory, layout, lambda it: planned_bytes(it, settings))
    work = estimated_work(layout, settings)
    shapes = parameter_shapes(network)
    return {
        "inputs": geometry.input_shapes,
        "outputs": geometry.output_shapes,
        "field_of_view": geometry.fields_of_view,
        "nodes": _nodes(network, geometry, shapes),
        "edges": _edges(network, geometry, plan, shapes),
        "parameters": sum(prod(shape) for shape in shapes.values()),
        "memory_bytes": memory.bytes,
        "memory_uses": dict(memory.uses),
        "threads": threads,
        "work_seconds": work,
        "update_seconds": work / threads,
    }


def print_summary(found: dict[str, Any]) -> None:
    """The summary as tables."""
    out = console()
    out.print(_layers(found))
    out.print(_plans(found))
    views = ", ".join(f"{name} {_size(view)}" for name, view in found["field_of_view"].items())
    out.print(f"field of view   {views}", highlight=False)
    out.print(f"parameters      {found['parameters']:,}", highlight=False)
    out.print(f"peak memory     {readable(found['memory_bytes'])}", highlight=False)
    out.print(f"at the peak     {_uses(found['memory_uses'])}", highlight=False)
    out.print(
        f"time per update about {found['update_seconds'] * 1e3:.3g} ms on {found['threads']} "
        f"threads (estimated work {found['work_seconds'] * 1e3:.3g} ms)",
        highlight=False,
    )


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
            "parameters": prod(shapes[node.name]) if node.name in shapes else 0,
        }
        for node in network.nodes
    ]


def _edges(
    network: Network, geometry: Geometry, plan: Plan, shapes: dict[str, Any]
) -> list[dict[str, Any]]:
    made = []
    for edge in network.edges:
        layer = plan.layers.get(edge.name)
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
        if layer:
            record["algorithms"] = {step: getattr(layer, step) for step in PASSES}
            record["reason"] = layer.reason
        made.append(record)
    return made


def _layers(found: dict[str, Any]) -> Table:
    table = Table(title="network (sizes z, y, x)", title_justify="left")
    for name in ("name", "what", "images", "size or shape", "stride", "sparsity", "parameters"):
        table.add_column(name)
    for node in found["nodes"]:
        for edge in (e for e in found["edges"] if e["to"] == node["name"]):
            what = f"{edge['kind']} of {edge['from']}"
            size = "" if edge["kind"] in ("dropout", "crop") else _size(edge["size"])
            steps = _size(edge["stride"]), _size(edge["sparsity"])
            table.add_row(f"  {edge['name']}", what, "", size, *steps, _count(edge), style="dim")
        what = node["function"] or node["kind"]
        steps = _size(node["stride"]), _size(node["sparsity"])
        shape = _size(node["shape"])
        table.add_row(node["name"], what, str(node["images"]), shape, *steps, _count(node))
    return table


def _plans(found: dict[str, Any]) -> Table:
    table = Table(title="algorithms", title_justify="left")
    for name in ("layer", *PASSES, "why"):
        table.add_column(name)
    for edge in found["edges"]:
        if "algorithms" in edge:
            chosen = (edge["algorithms"][step] for step in PASSES)
            table.add_row(edge["name"], *chosen, edge["reason"])
    return table


def _uses(bytes_: dict[str, int]) -> str:
    """What memory serves at the busiest moment, largest first, without what is under 1 %."""
    total = sum(bytes_.values())
    ranked = sorted(bytes_.items(), key=lambda it: -it[1])
    return ", ".join(f"{use} {readable(size)}" for use, size in ranked if size > total / 100)


def _size(triple: tuple[int, int, int]) -> str:
    return " x ".join(map(str, triple))


def _count(item: dict[str, Any]) -> str:
    return f"{item['parameters']:,}" if item["parameters"] else ""
