"""Plans: algorithm per layer and pass, cuts into tasks, costs. Knows nothing of tasks."""

from znnpy.plan.choose import Choice, Costs, choose
from znnpy.plan.cost import ConvShape, direct_seconds, fft_seconds
from znnpy.plan.parts import cut_axis, parts
from znnpy.plan.types import ALGORITHMS, PASSES, Algorithm, LayerPlan, PassName, Plan

__all__ = [
    "ALGORITHMS",
    "PASSES",
    "Algorithm",
    "Choice",
    "ConvShape",
    "Costs",
    "LayerPlan",
    "PassName",
    "Plan",
    "choose",
    "cut_axis",
    "direct_seconds",
    "fft_seconds",
    "parts",
]
