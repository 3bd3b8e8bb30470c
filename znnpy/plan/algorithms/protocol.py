"""The interface of a convolution algorithm as plans, buffers and neighbouring layers see it (`Algorithm`, `Traits`).

Its tasks are made in `engine/convolution/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from znnpy.layers.activation_functions import FunctionName
from znnpy.network.types import Triple
from znnpy.plan.cost import ConvShape
from znnpy.plan.types import Method, PartSeconds, PassName


@dataclass(frozen=True)
class Traits:
    """Properties of an algorithm that hold for any layer; by default the fewest abilities."""

    # Possible sizes of tiles along an axis; none: its methods have no tile.
    tile_sizes: tuple[int, ...] = ()
    # Whether passes with the same method share spectra, and whether FFTW makes them.
    shares_spectra: bool = False
    plans_ffts: bool = False
    # Activation functions of a node that a pass applies to finished sums before it stores them.
    forward_functions: tuple[FunctionName, ...] = ()
    backward_functions: tuple[FunctionName, ...] = ()
    # Whether passes read and write channels and gradients that lie planar, without lanes.
    reads_planar: bool = False
    reads_planar_gradients: bool = False
    writes_planar: bool = False
    # Whether transposed convolutions write channels that lie planar.
    spreads_planar: bool = False
    # Whether it is for depthwise convolutions (filters of one channel each), and for no others.
    depthwise: bool = False
    # Whether it computes transposed convolutions.
    transposes: bool = False
    # Whether it sums those from overlapping tiles, so that no activation function can be applied in passing.
    overlaps: bool = False
    # Whether data gradients read zeros on both sides of the gradient's rows.
    reads_halos: bool = False
    # Whether data gradients leave out the voxels of padding.
    crops: bool = False
    # Whether its passes between planar channels see zeros beyond the source, without any frame.
    sees_zeros: bool = False
    # Whether groups that fill blocks of channels are computed by themselves, in bands.
    bands: bool = False
    # Whether its forward pass can add to what lies at the target already.
    adds: bool = False
    # Whether its methods may tell how its tiles go through a layer (`March`).
    marches: bool = False


class Algorithm(Protocol):
    """A convolution algorithm; each is a module of this package. `tile`: that of one of its methods, or None."""

    traits: Traits

    def refusal(self, size: Triple, stride: Triple) -> str:
        """Return why filters of this size and stride cannot run by it; empty if they can."""

    def between_planar(self, shape: ConvShape) -> tuple[PassName, ...]:
        """Return the passes that it runs between planar channels at both ends, without idle lanes."""

    def told(self, shape: ConvShape) -> list[Method]:
        """Return the methods among which `conv:` with this algorithm's name chooses."""

    def candidates(self, shape: ConvShape) -> list[Method]:
        """Return the methods worth measuring for a layer that it takes."""

    def patch_methods(self, shape: ConvShape, most_seconds: float) -> list[Method]:
        """Return the methods worth an estimate for a forward pass alone, for which others take `most_seconds`."""

    def costs(self, shape: ConvShape, tile: Triple | None) -> PartSeconds:
        """Return the estimated seconds on one core by part, which add up: passes, and what they share."""

    def patch_seconds(self, shape: ConvShape, tile: Triple | None) -> float:
        """Return the estimated seconds on one core of a forward pass of a patch that no cache holds."""


def stride_refusal(stride: Triple) -> str:
    """Return the refusal of a stride above 1."""
    return "a true stride runs by direct and spectral only" if max(stride) > 1 else ""
