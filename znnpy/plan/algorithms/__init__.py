"""Registry of convolution algorithms: one module and one line each, in the order in which they are tried."""

from collections.abc import Mapping

from znnpy.plan.algorithms import depthwise, direct, fft, spectral, winograd
from znnpy.plan.algorithms.protocol import Algorithm, Traits
from znnpy.plan.types import AlgorithmName

# Ties go to the first (docs/design/convolution.md, "What an algorithm is"), so the order is part of
# what makes plans repeatable.
ALGORITHMS: Mapping[AlgorithmName, Algorithm] = {
    "direct": direct,
    "depthwise": depthwise,
    "winograd": winograd,
    "spectral": spectral,
    "fft": fft,
}

__all__ = ["ALGORITHMS", "Algorithm", "Traits"]
