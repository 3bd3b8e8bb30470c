"""How many values a normalisation takes its statistics from."""

from __future__ import annotations

from math import prod

from znnpy.errors import ShapeError
from znnpy.geometry.fit import Geometry
from znnpy.network.types import Network, Node, Norm


def refuse_single_values(network: Network, geometry: Geometry, batch: int) -> None:
    """ShapeError for a node in which every statistic would be of one value, which normalised is always 0."""
    for node in network.nodes:
        if node.norm is not None and _values(node, node.norm, geometry, batch) == 1:
            more = "a larger patch" + (" or batch" if node.norm.kind == "batch" else "")
            raise ShapeError(
                f"node {node.name!r}: its {node.norm.kind} normalisation has one voxel to take "
                f"statistics from, which would always become 0; train with {more}"
            )


def _values(node: Node, norm: Norm, geometry: Geometry, batch: int) -> int:
    images = node.images // norm.parts(node.images)
    return images * prod(geometry.nodes[node.name].shape) * (batch if norm.kind == "batch" else 1)
