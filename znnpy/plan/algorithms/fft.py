"""Plan of convolution by whole-image FFT: spectra of channels, filters and gradients serve two passes each."""

from __future__ import annotations

from math import log2

from znnpy_kernels.fft.pruned_lines import MOST_TAPS

from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan.algorithms.direct import direct_seconds
from znnpy.plan.algorithms.protocol import Traits, stride_refusal
from znnpy.plan.cost import CLEAR_RATIO, MOST_BYTES, PRODUCT_RATE, TRANSFORM_RATE, ConvShape
from znnpy.plan.fftw import missing
from znnpy.plan.types import PASSES, Method, PartSeconds, PassName

METHOD = Method("fft")
traits = Traits(
    shares_spectra=True,
    plans_ffts=True,
    reads_planar=True,
)


FFT_TAPS = 20
"""Filters of fewer taps along each axis are faster by other algorithms: docs/design/dependencies.md."""


def refusal(size: Triple, stride: Triple) -> str:
    """Refuse strides above 1, and every layer where FFTW is missing."""
    return stride_refusal(stride) or missing()


def between_planar(shape: ConvShape) -> tuple[PassName, ...]:
    """None: it writes blocks of channels."""
    return ()


def told(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the one method for long filters, if spectra fit and the estimate is not clearly above direct.

    So what `auto` chooses for shorter ones does not depend on FFTW, and layers of hundreds of channels, whose spectra
    are channels squared, are not timed in vain.
    """
    if max(shape.size) < FFT_TAPS:
        return []
    close = fft_seconds(shape) <= direct_seconds(shape) * CLEAR_RATIO
    return [METHOD] if close and _fits(shape) else []


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the one method if spectra fit."""
    return [METHOD] if _fits(shape) else []


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds by part; those of a pass include its share of the shared transforms."""
    return dict.fromkeys(PASSES, fft_seconds(shape))


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a forward pass."""
    return fft_seconds(shape)


def fft_seconds(shape: ConvShape) -> float:
    """Return the seconds of one pass by whole-image FFT on one core, its share of shared transforms included."""
    # 2.5 n log2 n operations of a real transform, FFTW's own count; `seen`, since padding is
    # transformed as well.
    transform = 2.5 * voxels(shape.seen) * log2(max(2, voxels(shape.seen))) / TRANSFORM_RATE
    # n / 2 complex multiply-adds of 8 operations.
    product = 4.0 * voxels(shape.seen) / PRODUCT_RATE
    pairs = shape.inputs * shape.outputs
    # Counted alike for each pass; passes share some of them, so the sum of all three is an
    # overestimate.
    transforms = shape.batch * (shape.inputs + shape.outputs) + pairs
    return transforms * transform + shape.batch * pairs * product


def fft_bytes(shape: ConvShape) -> float:
    """Return the bytes of the spectra of all filters, channels and sums of a layer."""
    spectra = shape.inputs * shape.outputs + 2 * shape.batch * (shape.inputs + shape.outputs)
    return 4.0 * spectra * voxels(shape.seen)


def _fits(shape: ConvShape) -> bool:
    return max(shape.size) <= MOST_TAPS and fft_bytes(shape) <= MOST_BYTES
