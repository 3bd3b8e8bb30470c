"""How many values a normalisation takes its statistics from."""

from __future__ import annotations

from math import prod

from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry
from znnpy.network.types import Network, Node, Norm


def refuse_single_values(network: Network, geometry: Geometry, batch: int | None) -> None:
    """ShapeError for a node in which every statistic would be of one value, which normalised is always 0.

    Without a `batch`, of a prediction: there batch normalisation has the statistics of training.
    """
    for node in network.nodes:
        if node.norm is None or (node.norm.kind == "batch" and batch is None):
            continue
        if _values(node, node.norm, geometry, batch or 1) == 1:
            more = "a larger patch" + (" or batch" if node.norm.kind == "batch" else "")
            raise ShapeError(
                f"node {node.name!r}: its {node.norm.kind} normalisation has one voxel to take "
                f"statistics from, which would always become 0; take {more}"
            )


def _values(node: Node, norm: Norm, geometry: Geometry, batch: int) -> int:
    images = node.channels // norm.parts(node.channels)
    return images * prod(geometry.nodes[node.name].shape) * (batch if norm.kind == "batch" else 1)
