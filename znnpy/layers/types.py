"""Values that entries share: triples along z, y, x, and how a parameter starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_EDGES = 5_000  # and nodes of a network: the deepest that are trained have some hundreds
Triple = tuple[int, int, int]
ONCE: Triple = (1, 1, 1)
AXES = ("z", "y", "x")
Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Voxels before and after an image along z, y, x."""
BARE: Sides = ((0, 0), (0, 0), (0, 0))
BorderName = Literal["zeros", "replicate", "reflect"]
"""What voxels beyond an image are: 0, the nearest voxel, or the image mirrored at its outermost voxels."""
Interpolation = Literal["nearest", "linear"]
NormKind = Literal["batch", "instance", "group", "layer"]
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


@dataclass(frozen=True)
class Norm:
    """Normalisation of a node's sum, bias included, before its function: (x - mean) / sqrt(variance + epsilon).

    Statistics are over voxels and: the batch for each image (`batch`, Ioffe and Szegedy 2015; prediction
    uses running ones), each image of each sample alone (`instance`), `groups` of neighbouring images
    (`group`, Wu and He 2018), or all images (`layer`). `affine`: a learned scale and shift for each image.
    `momentum`: how much a running statistic takes from an update's. Variances are biased, running ones not.
    """

    kind: NormKind
    groups: int = 1
    epsilon: float = 1e-5
    momentum: float = 0.1
    affine: bool = True

    def parts(self, channels: int) -> int:
        """Into how many groups of neighbours so many images fall, each with statistics of its own."""
        return {"group": self.groups, "layer": 1}.get(self.kind, channels)

    @property
    def running(self) -> bool:
        """Whether prediction uses statistics of the training, which are kept with what is learned."""
        return self.kind == "batch"


class Held(NamedTuple):
    """An array (images,) that a node keeps: what it starts with, whether it has a gradient, and may be below 0."""

    start: float
    learned: bool
    negative: bool = True
