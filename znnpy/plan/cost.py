"""Estimated seconds of a convolution pass, from operation counts and rates of one core.

Only ratios matter: they cut layers into tasks of 20 microseconds to 2 milliseconds and order tasks
before anything was measured. Rates are rounded down from measurements on AVX-512 cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from znnpy.geometry import Geometry, voxels
from znnpy.network.types import Edge, Network, Triple
from znnpy.plan.types import PASSES, PassName

DIRECT_RATE = 80e9  # flop/s
TRANSFORM_RATE = 5e9
PRODUCT_RATE = 20e9
MEMORY_RATE = 4e9  # bytes/s of elementwise work
IMAGES_RATE = 12e9  # bytes/s of images that a pass with few operations reads and writes
LANES_COUNTED = 16  # widest vector: fewer output images cost as much as this many
FEW_IMAGES = 8  # but these lie planar, without lanes


@dataclass(frozen=True)
class ConvShape:
    """All that the cost of one conv edge depends on."""

    inputs: int
    outputs: int
    size: Triple
    dilation: Triple
    stride: Triple
    source: Triple
    target: Triple
    batch: int
    passes: tuple[PassName, ...] = PASSES  # what is needed of it

    @property
    def training(self) -> bool:
        """Whether filters change: what is derived from them is made once otherwise, and costs nothing."""
        return "weight" in self.passes

    @classmethod
    def of(
        cls, edge: Edge, network: Network, geometry: Geometry, batch: int, training: bool = True
    ) -> ConvShape:
        """The shape of one conv edge in a fitted network; no data gradient goes into an input."""
        learns = network.node(edge.source).kind != "input"
        updates: tuple[PassName, ...] = PASSES if learns else ("forward", "weight")
        return cls(
            network.node(edge.source).images,
            network.node(edge.target).images,
            edge.size,
            geometry.dilations[edge.name],
            edge.stride,
            geometry.nodes[edge.source].shape,
            geometry.nodes[edge.target].shape,
            batch,
            updates if training else ("forward",),
        )


def direct_flops(shape: ConvShape, step: PassName = "forward") -> float:
    """Operations of one pass of direct convolution over the whole batch, padding of lanes included.

    Lanes hold the images that come out of the pass; few of them on the one side and many on the other
    are not padded.
    """
    padded, other = shape.outputs, shape.inputs
    if step == "gradient":
        padded, other = other, padded
    if padded > FEW_IMAGES or other <= FEW_IMAGES:
        padded = -(-padded // LANES_COUNTED) * LANES_COUNTED
    return 2.0 * shape.batch * padded * other * voxels(shape.size) * voxels(shape.target)


def direct_seconds(shape: ConvShape, step: PassName = "forward") -> float:
    """One pass by direct convolution on one core, bound by its operations or its images."""
    floats = shape.inputs * voxels(shape.source) + shape.outputs * voxels(shape.target)
    return max(direct_flops(shape, step) / DIRECT_RATE, 4.0 * shape.batch * floats / IMAGES_RATE)


def fft_seconds(shape: ConvShape) -> float:
    """One pass by whole-image FFT on one core, its share of the shared transforms included."""
    transform = 2.5 * voxels(shape.source) * log2(max(2, voxels(shape.source))) / TRANSFORM_RATE
    product = 4.0 * voxels(shape.source) / PRODUCT_RATE
    pairs = shape.inputs * shape.outputs
    transforms = shape.batch * (shape.inputs + shape.outputs) + pairs
    return transforms * transform + shape.batch * pairs * product


def fft_bytes(shape: ConvShape) -> float:
    """Memory of the spectra of all filters, images and sums of a layer."""
    spectra = shape.inputs * shape.outputs + 2 * shape.batch * (shape.inputs + shape.outputs)
    return 4.0 * spectra * voxels(shape.source)
