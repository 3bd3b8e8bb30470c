"""Tasks of `product` nodes: factors multiplied voxel by voxel, and the gradient of each factor."""

from __future__ import annotations

from znnpy_kernels.layers.product import multiply_rows

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensor_aliases import first_of
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Node
from znnpy.plan.cost import MEMORY_RATE


def multiply(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that multiply what a node's edges bring; of a single edge it is the value already."""
    incoming = build.layout.network.incoming(node.name)
    first = first_of(incoming)
    others = [build.maps.contributions[edge.name] for edge in incoming if edge is not first]
    target, product = build.maps.activations[node.name], build.maps.contributions[first.name]
    what = Identity(node.name, Pass.FORWARD, Part.MULTIPLIED)
    for other in others:
        _multiply(step, product, other, target, what)
        product = target


def factor_gradient(step: Step, build: Build, node: Node, edge: Edge) -> Tensor:
    """Declare the tasks that multiply a product's gradient by all other factors; return the tensor of one edge.

    That of an identity edge is written straight into the data gradient.
    """
    product = build.maps.gradients[node.name]
    others = [other for other in build.layout.network.incoming(node.name) if other is not edge]
    if not others:
        return product
    passed = edge.kind == "identity"
    target = build.maps.backward[edge.name] if passed else build.concat_gradient(edge.name)
    what = Identity(node.name, Pass.BACKWARD, Part.MULTIPLIED)
    for other in others:
        _multiply(step, product, build.maps.contributions[other.name], target, what)
        product = target
    return target


def _multiply(step: Step, first: Tensor, second: Tensor, target: Tensor, what: Identity) -> None:
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 3):
                step.add(
                    multiply_rows,
                    {
                        **rows_of(first, "first", batch, block, low),
                        **rows_of(second, "second", batch, block, low),
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "length": target.row,
                    },
                    what=what,
                    cost=target.plane * (high - low) * 12 / MEMORY_RATE,
                    reads=list(
                        dict.fromkeys(
                            [
                                first.region(batch, block, low, high),
                                second.region(batch, block, low, high),
                            ]
                        )
                    ),
                    writes=[target.region(batch, block, low, high)],
                )
