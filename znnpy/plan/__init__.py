"""Plans: algorithm per layer and pass, cuts into tasks, costs. Knows nothing of tasks."""

from znnpy.plan.choose import Choice, candidates, choose
from znnpy.plan.cost import ConvShape, direct_seconds, fft_seconds
from znnpy.plan.parts import cut_axis, parts
from znnpy.plan.types import (
    ALGORITHMS,
    PASSES,
    Algorithm,
    Costs,
    LayerPlan,
    Method,
    PassName,
    Plan,
)

__all__ = [
    "ALGORITHMS",
    "PASSES",
    "Algorithm",
    "Choice",
    "ConvShape",
    "Costs",
    "LayerPlan",
    "Method",
    "PassName",
    "Plan",
    "candidates",
    "choose",
    "cut_axis",
    "direct_seconds",
    "fft_seconds",
    "parts",
]
