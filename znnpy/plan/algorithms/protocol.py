"""What plans, buffers and neighbours must know of a way to convolve. Its tasks are made in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from znnpy.layers.activation_functions import FunctionName
from znnpy.network.types import Triple
from znnpy.plan.cost import ConvShape
from znnpy.plan.types import Method, PartSeconds


@dataclass(frozen=True)
class Traits:
    """What holds of an algorithm whatever the layer; the least that one can do where nothing is said."""

    # Sizes of tiles along an axis; none: its methods have no tile.
    tile_sizes: tuple[int, ...] = ()
    # Whether passes with the same method share spectra, and whether FFTW makes them.
    shares_spectra: bool = False
    plans_ffts: bool = False
    # Functions of a node that a pass applies to finished sums before it stores them.
    forward_functions: tuple[FunctionName, ...] = ()
    backward_functions: tuple[FunctionName, ...] = ()
    # Whether images and gradients may lie planar, without lanes, where passes read and write them.
    reads_planar: bool = False
    reads_planar_gradients: bool = False
    writes_planar: bool = False
    # Whether it is for filters of one channel each, and for no others.
    depthwise: bool = False
    # Whether it makes transposed convolutions.
    transposes: bool = False
    # Whether these are sums of tiles that overlap, so that no function can be applied in passing.
    overlaps: bool = False
    # Whether data gradients read zeros on both sides of the gradient's rows.
    reads_halos: bool = False
    # Whether data gradients leave out voxels that padding has added.
    crops: bool = False


class Algorithm(Protocol):
    """One way to convolve; a module of this package is one. `tile`: the one of a method of its own."""

    traits: Traits

    def refusal(self, size: Triple, stride: Triple) -> str:
        """Why filters of this size and stride cannot run so here; empty if they can."""

    def told(self, shape: ConvShape) -> list[Method]:
        """The methods among which `conv:` with this algorithm's name chooses."""

    def candidates(self, shape: ConvShape) -> list[Method]:
        """The methods worth measuring for a layer that it takes."""

    def patch_methods(self, shape: ConvShape, most_seconds: float) -> list[Method]:
        """Those worth an estimate for a forward pass alone, which others do in `most_seconds`."""

    def costs(self, shape: ConvShape, tile: Triple | None) -> PartSeconds:
        """Estimated seconds on one core by part, which add up: passes, and what they share."""

    def patch_seconds(self, shape: ConvShape, tile: Triple | None) -> float:
        """Estimated seconds on one core of a forward pass of a patch that no cache holds."""


def stride_refusal(stride: Triple) -> str:
    """The refusal of a true stride."""
    return "a true stride runs by direct and spectral only" if max(stride) > 1 else ""
