"""Resizing as nodes of ONNX, whatever the size of an image."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.interop.export.computation import Operation, Tensor
from znnpy.interop.export.onnx_graph import Graph
from znnpy.layers.types import AXES

RESIZED = {
    "nearest": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "linear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
}  # fmt: skip


def resize(graph: Graph, it: Operation, _: Mapping[str, Tensor]) -> None:
    """Add the nodes of a resize by ratios of voxels, and some more."""
    name, said = it.name, it.attributes
    shape = graph.node("Shape", it.inputs, f"{name}.shape")
    old = _part(graph, shape, 2, 5, f"{name}.old")
    few, many = zip(*said["ratios"], strict=True)
    parts = graph.node("Div", [old, graph.numbers(f"{name}.few", *few)], f"{name}.parts")
    grown = graph.node("Mul", [parts, graph.numbers(f"{name}.many", *many)], f"{name}.grown")
    new = graph.node("Add", [grown, graph.numbers(f"{name}.more", *said["more"])], f"{name}.new")
    if said["mode"] in ("linear", "corners"):
        samples = _part(graph, shape, 0, 2, f"{name}.samples")
        size = graph.node("Concat", [samples, new], f"{name}.size", axis=0)
        graph.node("Resize", [it.inputs[0], "", "", size], it.output, **RESIZED[said["mode"]])
        return
    changed = [
        axis
        for axis, (ratio, more) in enumerate(zip(said["ratios"], said["more"], strict=True))
        if ratio != (1, 1) or more
    ]
    value = it.inputs[0]
    for axis in changed:
        made = it.output if axis == changed[-1] else f"{name}.{AXES[axis]}"
        own = f"{name}.voxels_{AXES[axis]}"
        ends = [
            _part(graph, all_, axis, axis + 1, f"{own}.{i}") for i, all_ in enumerate((old, new))
        ]
        taken = _nearest(graph, own, ends[0], ends[1], exact=said["mode"] == "nearest_exact")
        value = graph.node("Gather", [value, taken], made, axis=2 + axis)


def _part(graph: Graph, numbers: str, low: int, end: int, name: str) -> str:
    bounds = [graph.numbers(f"{name}.low", low), graph.numbers(f"{name}.end", end)]
    return graph.node("Slice", [numbers, *bounds], name)


def _nearest(graph: Graph, name: str, old: str, new: str, *, exact: bool) -> str:
    """Add which old voxel each new one takes, in whole numbers: in float32, as runtimes find it for a Resize, rounding
    makes some the one before.
    """
    zero, one, two = (graph.numbers(f"{name}.number{n}", n) for n in (0, 1, 2))
    ends = [graph.node("Squeeze", [n], f"{name}.end{i}") for i, n in enumerate((zero, new, one))]
    place = graph.node("Range", ends, f"{name}.all")
    if exact:
        place = graph.node("Mul", [place, two], f"{name}.twice")
        place = graph.node("Add", [place, one], f"{name}.middle")
        new = graph.node("Mul", [new, two], f"{name}.steps")
    place = graph.node("Mul", [place, old], f"{name}.place")
    return graph.node("Div", [place, new], name)
