"""Direct convolution as tasks: panels of outputs times ranges of the image, all passes."""

from znnpy.engine.convolution.direct.filters import derive
from znnpy.engine.convolution.direct.operations import operations
from znnpy.engine.convolution.direct.passes import data_gradient, forward, weight_gradient
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
