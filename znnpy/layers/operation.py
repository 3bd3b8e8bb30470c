"""The names of edge kinds, and `Numbers`: size, stride, padding and so on of an edge; each kind reads some of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from znnpy.layers.types import BARE, ONCE, BorderName, Init, Interpolation, Sides, Triple

# The names are repeated as a type, so that the type checker finds a misspelt one.
EdgeKindName = Literal[
    "conv",
    "conv_transpose",
    "max_filter",
    "max_pool",
    "avg_pool",
    "upsample",
    "identity",
    "dropout",
    "crop",
]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers of an edge's operation; each kind reads those that it knows. All triples are z, y, x.

    `size`: filter or pooling window. `stride`: output voxel i reads input voxel i * stride.
    `sparsity`: the edge's own dilation (ZNN's word), multiplied with the one inherited from its source node.
    `sparsens`: factor by which everything downstream is dilated more (a max_filter's stride; Zlateski et al. 2015,
    section II). `keep`: probability with which dropout keeps a voxel. `offset`: voxels that crop removes on both sides.
    `init`: how filters start. `repeat`: blocks of taps, from tap 0 on, that share one number. `padding`: voxels around
    the source that windows see too, filled as `border` says; `same`: as many as keep the size, half of them before.
    `groups`: of channels, each convolved by itself. `weight_standardization`: filters are used with mean 0 and
    variance 1. `output_padding`: voxels that conv_transpose adds after the last ones. `factor`: by which upsampling
    grows, `mode`: nearest voxel or linear. `count_padding`: padding counts in averages, as zeros.
    """

    size: Triple = ONCE
    stride: Triple = ONCE
    sparsity: Triple = ONCE
    sparsens: Triple = ONCE
    keep: float = 1.0
    offset: Triple = (0, 0, 0)
    init: Init = field(default_factory=Init)
    repeat: Triple = ONCE
    padding: Sides | Literal["same"] = BARE
    border: BorderName = "zeros"
    groups: int = 1
    weight_standardization: bool = False
    output_padding: Triple = (0, 0, 0)
    factor: Triple = ONCE
    mode: Interpolation = "nearest"
    count_padding: bool = True
