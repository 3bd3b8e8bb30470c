"""The edge kinds that there are, and the numbers of which each reads some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from znnpy.errors import NetworkError
from znnpy.layers.averages import AVG_POOL
from znnpy.layers.convolution import CONV
from znnpy.layers.crop import CROP
from znnpy.layers.dropout import DROPOUT
from znnpy.layers.identity import IDENTITY
from znnpy.layers.kind import EdgeKind
from znnpy.layers.maxima import MAX_FILTER, MAX_POOL
from znnpy.layers.transposed import CONV_TRANSPOSE
from znnpy.layers.upsample import UPSAMPLE
from znnpy.layers.values import BARE, ONCE, BorderName, Init, Interpolation, Sides, Triple

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
_ALL = (
    CONV,
    CONV_TRANSPOSE,
    MAX_FILTER,
    MAX_POOL,
    AVG_POOL,
    UPSAMPLE,
    IDENTITY,
    DROPOUT,
    CROP,
)
EDGE_KINDS: dict[str, EdgeKind] = {kind.name: kind for kind in _ALL}


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


def edge_kind(name: str) -> EdgeKind:
    """The kind of that name; NetworkError if there is none."""
    if name not in EDGE_KINDS:
        raise NetworkError(f"edge kind '{name}' is none of {', '.join(EDGE_KINDS)}")
    return EDGE_KINDS[name]
