"""Fully connected layers: filters that see all of each image, so that a batch is a row of places.

The samples of a block lie one behind the other. Hence such a layer is, over the whole batch, a convolution of
rows: its filter has the voxels of an image as taps along x, and its stride is as many. All passes are those of a
strided convolution, whose register blocks hold several samples: each filter is read once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor, in_rows, is_dense
from znnpy.network.types import Edge


def in_a_row(
    build: Build, edge: Edge, source: Tensor, target: Tensor, *beside: Tensor
) -> tuple[Edge, Tensor, Tensor]:
    """The edge, its source's images and its target's as rows, where it covers images that lie so; else as they are.

    `beside`: images that are read or written with those.
    """
    if not (build.layout.covers(edge) and all(map(is_dense, (source, target, *beside)))):
        return edge, source, target
    taps = prod(edge.size)
    return (
        replace(edge, size=(1, 1, taps), stride=(1, 1, taps)),
        in_rows(source),
        in_rows(target),
    )
