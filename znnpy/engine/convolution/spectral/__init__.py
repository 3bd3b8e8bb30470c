"""Tiled spectral convolution as tasks: transforms of tiles, products of each frequency, and back.

Images are cut into overlapping tiles (overlap-save); see docs/design/spectral.md. Forward and
weight gradient share the spectra of the source's tiles where their tiles are the same.
"""

from znnpy.engine.convolution.finished import finish_backward, finish_forward, summed_elsewhere
from znnpy.engine.convolution.spectral.filters import derive
from znnpy.engine.convolution.spectral.operations import operations
from znnpy.engine.convolution.spectral.passes import data_gradient, forward, weight_gradient

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
