"""Whole-image FFT convolution as tasks: spectra made once an update and shared by the passes.

Products and converging sums happen in the frequency domain; one inverse transform ends each sum
(ZNN, arXiv 1510.06706, section IV). A step remembers which spectra it has made.
"""

from znnpy.engine.convolution.fft.operations import operations
from znnpy.engine.convolution.fft.passes import (
    data_gradient,
    derive,
    finish_backward,
    finish_forward,
    forward,
    summed_elsewhere,
    weight_gradient,
)

__all__ = [
    "data_gradient",
    "derive",
    "finish_backward",
    "finish_forward",
    "forward",
    "operations",
    "summed_elsewhere",
    "weight_gradient",
]
