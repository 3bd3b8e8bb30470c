"""Types that all layers share: triples along z, y, x, padding, initialisation, norms, an edge's kind and `Numbers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_EDGES = 5_000  # also of nodes: the deepest networks that are trained have some hundreds
Triple = tuple[int, int, int]
ONCE: Triple = (1, 1, 1)
AXES = ("z", "y", "x")
Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Voxels of padding before and after, along z, y, x."""
BARE: Sides = ((0, 0), (0, 0), (0, 0))
BorderName = Literal["zeros", "replicate", "reflect"]
"""How padding is filled: 0, the nearest voxel, or the values mirrored at the outermost voxel, which is not repeated."""
Interpolation = Literal["nearest", "nearest_exact", "linear", "corners"]
"""Between voxels: the one at or before a place, the one whose middle is nearest; linear between middles, or between
the middles of the outermost voxels, which stay."""
NormKind = Literal["batch", "instance", "group", "layer", "channel", "length", "response"]
InitKind = Literal["he", "xavier", "uniform", "normal", "constant"]


@dataclass(frozen=True)
class Init:
    """How filters or biases are initialised.

    `he`: normal, std sqrt(2 / fan_in); `xavier`: uniform on +-sqrt(6 / (fan_in + fan_out));
    `uniform`: on [low, high]; `normal`: mean, std; `constant`: value.
    """

    kind: InitKind = "he"
    low: float = -0.1
    high: float = 0.1
    mean: float = 0.0
    std: float = 0.01
    value: float = 0.0


@dataclass(frozen=True)
class Norm:
    """Normalisation of a node's sum, bias included, before its function: (x - mean) / sqrt(variance + epsilon).

    Statistics are over voxels, of each channel over the batch (`batch`, Ioffe and Szegedy 2015; prediction uses running
    ones), of each channel of each sample (`instance`), of each sample's `groups` of neighbouring channels (`group`, Wu
    and He 2018), or of all channels of a sample (`layer`). Or they are of each voxel, over its channels (`channel`,
    `length`), or over the norms of all channels (`response`, which is added to the sum itself); see
    `channel_statistics.py`. `affine`: learn a scale and a shift for each channel.
    `momentum`: the share of an update's statistics in the new running ones. Variances are biased, running ones are not.
    """

    kind: NormKind
    groups: int = 1
    epsilon: float = 1e-5
    momentum: float = 0.1
    affine: bool = True

    def parts(self, channels: int) -> int:
        """Return the number of groups of neighbouring channels, each with statistics of its own."""
        if self.kind == "group":
            return self.groups
        return channels if self.kind in ("batch", "instance") else 1

    @property
    def of_voxels(self) -> bool:
        """Whether each voxel has statistics of its own."""
        return self.kind in ("channel", "length")

    @property
    def adds(self) -> bool:
        """Whether what is normalised is added to the sum itself, so that its scale begins at 0."""
        return self.kind == "response"

    @property
    def running(self) -> bool:
        """Whether prediction uses running statistics of the training, which are saved with the parameters."""
        return self.kind == "batch"


class Held(NamedTuple):
    """An array (channels,) that a node keeps: its start value, whether it is learned, whether it may be negative.

    `tied`: one number, (1,), for all channels.
    """

    start: float
    learned: bool
    negative: bool = True
    tied: bool = False


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
    "pad",
    "mean",
    "depth_to_space",
    "resize",
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
    grows, `mode`: see `Interpolation`. `divisor`: by which resizing shrinks, `more`: voxels that it makes beyond that.
    `count_padding`: padding counts in averages, as zeros. `learn`: filters have gradients and are updated.
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
    divisor: Triple = ONCE
    more: Triple = (0, 0, 0)
    mode: Interpolation = "nearest"
    count_padding: bool = True
    learn: bool = True
