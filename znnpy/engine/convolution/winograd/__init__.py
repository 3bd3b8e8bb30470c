"""Winograd's minimal filtering as tasks: whole slabs of tiles; see docs/design/winograd.md."""

from znnpy.engine.convolution.finished import finish_backward, finish_forward, summed_elsewhere
from znnpy.engine.convolution.winograd.filters import derive
from znnpy.engine.convolution.winograd.operations import operations
from znnpy.engine.convolution.winograd.passes import data_gradient, forward
from znnpy.engine.convolution.winograd.weight import weight_gradient

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
