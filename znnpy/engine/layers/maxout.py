"""Tasks of maxout (`max` nodes): the maximum over incoming edges, and gradients to the edge that won."""

from __future__ import annotations

from collections.abc import Sequence

from znnpy_kernels.layers.maxout import larger_rows, winner_rows

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Node
from znnpy.plan.cost import MEMORY_RATE

WINNERS = Use("winners of maxout")


def largest(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that take the maximum over edges, one after the other, in the first one's output."""
    target = build.maps.activations[node.name]
    for number, edge in _others(build, node):
        source = build.maps.contributions[edge.name]
        for batch, block, low, high in _parts(target):
            won = _winners(build, node, target)
            step.add(
                larger_rows,
                {
                    **rows_of(source, "source", batch, block, low),
                    **rows_of(target, "target", batch, block, low),
                    **_index(won, target, batch, block, low),
                    **counts(target, low, high),
                    "number": number,
                    "length": target.row,
                },
                what=Identity(node.name, Pass.FORWARD, Part.LARGEST),
                cost=_cost(target, low, high),
                reads=[
                    source.region(batch, block, low, high),
                    own := target.region(batch, block, low, high),
                    # The first comparison fills the winners, later ones change them.
                    *(_noted(won, target, batch, block, low, high) if number > 1 else ()),
                ],
                writes=[own, *_noted(won, target, batch, block, low, high)],
            )


def winner_gradient(step: Step, build: Build, node: Node, edge: Edge) -> Tensor:
    """Declare the tasks that pick the part of a max node's gradient that belongs to one edge; return its tensor."""
    gradient, values = build.maps.gradients[node.name], build.maps.activations[node.name]
    incoming = build.layout.network.incoming(node.name)
    # A single edge always wins.
    if len(incoming) == 1:
        return gradient
    # Each edge needs a tensor of its own: zeros where another edge has won.
    target, won = build.concat_gradient(edge.name), _winners(build, node, values)
    for batch, block, low, high in _parts(target):
        step.add(
            winner_rows,
            {
                **rows_of(gradient, "source", batch, block, low),
                **rows_of(target, "target", batch, block, low),
                **_index(won, values, batch, block, low),
                **counts(target, low, high),
                "number": incoming.index(edge),
                "length": target.row,
            },
            what=Identity(node.name, Pass.BACKWARD, Part.SPLIT),
            cost=_cost(target, low, high),
            reads=[
                gradient.region(batch, block, low, high),
                *_noted(won, values, batch, block, low, high),
            ],
            writes=[target.region(batch, block, low, high)],
        )
    return target


def _others(build: Build, node: Node) -> Sequence[tuple[int, Edge]]:
    """Return all edges but the first, with their numbers."""
    return list(enumerate(build.layout.network.incoming(node.name)))[1:]


def _parts(tensor: Tensor) -> list[tuple[int, int, int, int]]:
    """Return sample, block and planes of each task."""
    return [
        (batch, block, low, high)
        for batch in range(tensor.batch)
        for block in range(tensor.blocks)
        for low, high in plane_ranges(tensor, 3)
    ]


def _cost(tensor: Tensor, low: int, high: int) -> float:
    return tensor.plane * (high - low) * 12 / MEMORY_RATE


def _winners(build: Build, node: Node, values: Tensor) -> Buffer | None:
    """Return the buffer of winners, a byte for each value of the node; None if it has no gradient."""
    if node.name not in build.maps.gradients:
        return None
    depth, height, _ = values.shape
    bytes_ = values.batch * values.blocks * depth * height * values.row
    return build.shared(Name(WINNERS, node.name), -(-bytes_ // 4))


def _noted(
    won: Buffer | None, values: Tensor, batch: int, block: int, low: int, high: int
) -> list[Region]:
    # Regions count planes of a block, as those of the values do.
    section = batch * values.blocks + block
    return [won.region(low, high, section=section)] if won else []


def _index(won: Buffer | None, values: Tensor, batch: int, block: int, low: int) -> dict[str, int]:
    """Return the words `index`, `index_z`, `index_y`; address 0 if no gradient needs the winners."""
    if won is None:
        return dict.fromkeys(("index", "index_z", "index_y"), 0)
    depth, height, _ = values.shape
    z, _, y, _ = values.box(low, low + 1)
    row = (batch * values.blocks + block) * depth * height + z * height + y
    return {
        "index": won.address + row * values.row,
        "index_z": height * values.row,
        "index_y": values.row,
    }
