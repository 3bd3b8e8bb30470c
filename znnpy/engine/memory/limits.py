"""Plans that need more memory than there is, or than allowed, are refused, with a size that would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

from znnpy.data.memory import readable, whole_memory
from znnpy.engine.memory.build import STEPS
from znnpy.engine.memory.images import Layout
from znnpy.errors import NetworkError, PlanError, ShapeError
from znnpy.geometry import Geometry, describe, fit
from znnpy.layers.edges import edge_kind
from znnpy.network.types import Network, Triple

FLOAT = 4  # bytes


def refuse_hopeless(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool,
    limit: int | None,
    staged: int | None = None,
) -> None:
    """PlanError when the images alone exceed `limit` bytes or the machine: planning that takes minutes.

    `batch`: samples that are computed at once; `staged`: those that inputs are kept of (default: the same).
    """
    keeps = limit is None  # else images may be made again for the backward pass
    least = least_bytes(network, geometry, batch, training, staged, keeps=keeps)
    machine = whole_memory()
    allowed = machine if limit is None else min(machine, limit)
    if least <= allowed:
        return
    whose = "this machine has" if allowed == machine else "max_memory is"
    needs, has = _apart(least, allowed)
    raise PlanError(
        f"output_shape {_described(geometry)} needs inputs of "
        f"{_joined(geometry.input_shapes.values())} voxels (z, y, x), and the images of "
        f"{batch} of them at least {needs} of memory; {whose} {has}"
    )


def least_bytes(
    network: Network,
    geometry: Geometry,
    batch: int,
    training: bool,
    staged: int | None = None,
    *,
    keeps: bool = True,
) -> int:
    """Bytes that no plan can do without: inputs, outputs, and the largest images between.

    An update that `keeps` what its forward pass makes has all images that convolutions read.
    """
    size = {
        node.name: FLOAT * batch * node.images * prod(geometry.nodes[node.name].shape)
        for node in network.nodes
    }
    ends = {node.name for node in (*network.inputs, *network.outputs)}
    inner = {
        node.name: size[node.name]
        for node in network.nodes
        if node.name not in ends and node.kind != "concat"
    }
    inputs = sum(size[node.name] for node in network.inputs)
    outputs = sum(size[node.name] for node in network.outputs)
    if training:
        inputs = STEPS * inputs * (staged or batch) // batch
    if not (training and keeps):
        return inputs + max(inner.values(), default=0) + outputs
    read = {edge.source for edge in network.edges if edge_kind(edge.kind).learns}
    return inputs + sum(size for name, size in inner.items() if name in read) + outputs


def refuse_above(limit: int, needed: int, layout: Layout, needs: Callable[[Layout], int]) -> None:
    """PlanError when a layout needs more than `limit` bytes, naming an output shape that would fit.

    `needed`: the layout's; `needs`: says it of others.
    """
    if needed <= limit:
        return
    fitting = _fitting(limit, needed, layout, needs)
    hint = f"output_shape {fitting} would fit" if fitting else "no smaller output shape fits either"
    least = " at least" if layout.training else ""  # whatever is made again
    wanted, has = _apart(needed, limit)
    raise PlanError(
        f"output_shape {_described(layout.geometry)} needs{least} {wanted}, max_memory is {has}; {hint}"
    )


def _apart(needed: int, limit: int) -> tuple[str, str]:
    """Both for people, byte by byte where they would read the same."""
    texts = readable(needed), readable(limit)
    return texts if texts[0] != texts[1] else (f"{needed:,} B", f"{limit:,} B")


def _fitting(limit: int, needed: int, layout: Layout, needs: Callable[[Layout], int]) -> str | None:
    """The largest of some shapes of the same proportions that fits; `needed`: bytes of the whole."""
    for percent in range(95, 0, -5):
        if needed * (percent / 100) ** 3 > limit:
            continue
        shapes = {
            name: _scaled(shape, percent / 100)
            for name, shape in layout.geometry.output_shapes.items()
        }
        try:
            smaller = replace(layout, geometry=fit(layout.network, shapes))
        except (NetworkError, ShapeError):
            continue
        if needs(smaller) <= limit:
            return _described(smaller.geometry)
    return None


def _scaled(shape: Triple, factor: float) -> Triple:
    z, y, x = (max(1, int(size * factor)) for size in shape)
    return (z, y, x)


def _described(geometry: Geometry) -> str:
    return _joined(geometry.output_shapes.values())


def _joined(shapes: Iterable[Triple]) -> str:
    return ", ".join(describe(shape) for shape in shapes)
