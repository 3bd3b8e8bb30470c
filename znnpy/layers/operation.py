"""What an edge says of its operation: its kind's name, and the numbers of which each kind reads some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from znnpy.layers.types import BARE, ONCE, BorderName, Init, Interpolation, Sides, Triple

# The names once more: a misspelt one is then found by the type checker.
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
    """What an edge says of its operation; each kind reads what it knows. All triples are z, y, x.

    `size`: filter or pooling window. `stride`: true stride, output voxel i reads input voxel i * stride.
    `sparsity`: this conv's own dilation, multiplied with the one inherited from its source node.
    `sparsens`: factor by which everything downstream gets sparser (a max_filter's stride, ZNN section II).
    `keep`: probability with which dropout keeps a voxel. `offset`: voxels that crop removes on both sides.
    `init`: how filters start. `repeat`: they are the same number over blocks of so many taps, which start
    at tap 0. `padding`: voxels beyond the source's images that its windows see too, which `border` says;
    `same`: as many as keep the size, half of them before. `groups`: filters join images of their own
    group alone. `weight_standardization`: filters are used with mean 0 and variance 1. `output_padding`: rows
    that conv_transpose adds after the last ones. `factor`: by which images grow, `mode`: from the nearest voxel or
    linear between the nearest. `count_padding`: padding counts in averages, as zeros.
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
