"""The numbers of an operation, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Triple = tuple[int, int, int]
ONCE: Triple = (1, 1, 1)
InitKind = Literal["he", "xavier", "uniform", "normal", "constant"]


@dataclass(frozen=True)
class Init:
    """How a filter bank or bias starts.

    `he`: normal, std sqrt(2 / fan_in); `xavier`: uniform on +-sqrt(6 / (fan_in + fan_out));
    `uniform`: on [low, high]; `normal`: mean, std; `constant`: value.
    """

    kind: InitKind = "he"
    low: float = -0.1
    high: float = 0.1
    mean: float = 0.0
    std: float = 0.01
    value: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What an edge says of its operation; each kind reads what it knows. All triples are z, y, x.

    `size`: filter or pooling window. `stride`: true stride, output voxel i reads input voxel i * stride.
    `sparsity`: this conv's own dilation, multiplied with the one inherited from its source node.
    `sparsens`: factor by which everything downstream gets sparser (a max_filter's stride, ZNN section II).
    `keep`: probability with which dropout keeps a voxel. `offset`: voxels that crop removes on both sides.
    `init`: how filters start. `repeat`: they are the same number over blocks of so many taps, which start
    at tap 0.
    """

    size: Triple = ONCE
    stride: Triple = ONCE
    sparsity: Triple = ONCE
    sparsens: Triple = ONCE
    keep: float = 1.0
    offset: Triple = (0, 0, 0)
    init: Init = field(default_factory=Init)
    repeat: Triple = ONCE
