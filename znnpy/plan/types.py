"""Types of a plan: names of algorithms and passes, methods with their tiles, the plan of one layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from znnpy_kernels.fft.codelets import SIZES

from znnpy.network.types import Triple

AlgorithmName = Literal["direct", "depthwise", "fft", "spectral", "winograd"]
PassName = Literal["forward", "gradient", "weight"]
# Everything that pairs passes with methods relies on this order: `LayerPlan.of`,
# `joint_choice.totals`.
PASSES: tuple[PassName, ...] = get_args(PassName)
ALGORITHM_NAMES: tuple[AlgorithmName, ...] = get_args(AlgorithmName)
TILE_SIZES: tuple[int, ...] = SIZES
March = Literal["apart", "joined"]
"""How Winograd's tiles go through a layer: one for each pass, or by kernels that can make both gradients at once."""
MARCHES: tuple[March, ...] = get_args(March)
CostPart = PassName | Literal["images", "filters", "gradients"]
"""What costs are told of: a pass, or what two passes by the same method share (SHARED)."""
SHARED: dict[CostPart, tuple[PassName, PassName]] = {
    "images": ("forward", "weight"),
    "filters": ("forward", "gradient"),
    "gradients": ("gradient", "weight"),
}
"""Spectra that two passes share when they use the same method."""
COST_PARTS: tuple[CostPart, ...] = (*PASSES, *SHARED)
PartSeconds = dict[CostPart, float]


def wanted(part: CostPart, passes: Collection[PassName]) -> bool:
    """Return whether a part of a layer's cost arises with only these passes.

    Shared parts always do: each method that uses them pays.
    """
    # What a method does not share costs 0 there, so counting shared parts always is safe.
    return part in SHARED or part in passes


class Method(NamedTuple):
    """An algorithm, the tile (z, y, x) of a spectral one, the march of Winograd's where it was measured.

    `str` gives its name for people and files.
    """

    algorithm: AlgorithmName
    tile: Triple | None = None
    march: March | None = None

    def __str__(self) -> str:
        which = "x".join(map(str, self.tile)) if self.tile else self.march
        return f"{self.algorithm} {which}" if which else self.algorithm


Costs = dict[Method, PartSeconds]
"""Seconds of a layer's methods, part by part."""


@dataclass(frozen=True)
class LayerPlan:
    """The algorithms of one convolution: forward, data `gradient`, `weight` gradient; `reason` for people.

    A spectral pass has a tile: points along z, y, x, each of TILE_SIZES. A pass of Winograd's may have a march; without
    one sizes decide, as where it was not measured.
    """

    forward: AlgorithmName
    gradient: AlgorithmName
    weight: AlgorithmName
    reason: str = ""
    forward_tile: Triple | None = None
    gradient_tile: Triple | None = None
    weight_tile: Triple | None = None
    forward_march: March | None = None
    gradient_march: March | None = None
    weight_march: March | None = None

    @classmethod
    def of(cls, forward: Method, gradient: Method, weight: Method, reason: str = "") -> LayerPlan:
        """Return the plan with these methods."""
        return cls(
            forward.algorithm,
            gradient.algorithm,
            weight.algorithm,
            reason,
            forward.tile,
            gradient.tile,
            weight.tile,
            forward.march,
            gradient.march,
            weight.march,
        )

    def method(self, which: PassName) -> Method:
        """Return the algorithm, tile and march of one pass."""
        return Method(*(getattr(self, f"{which}{part}") for part in ("", "_tile", "_march")))

    def uses(self, algorithm: AlgorithmName) -> bool:
        """Return whether any pass runs by this algorithm."""
        return algorithm in (self.forward, self.gradient, self.weight)
