"""Depthwise convolution as tasks: a block of images and its filters meet no other block."""

from znnpy.engine.convolution.depthwise.operations import operations
from znnpy.engine.convolution.depthwise.passes import (
    data_gradient,
    derive,
    forward,
    weight_gradient,
)
from znnpy.engine.convolution.finished import finish_backward, finish_forward, summed_elsewhere

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
