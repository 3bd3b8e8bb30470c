"""Plans: the algorithm of each convolution layer and pass, and the cost by which it is cut into tasks."""

from znnpy.plan.algorithms import ALGORITHMS
from znnpy.plan.choose import Choice, candidates, choose
from znnpy.plan.cost import ConvShape
from znnpy.plan.partition import Grain, cut_axis, ranges
from znnpy.plan.record import Plan
from znnpy.plan.types import PASSES, AlgorithmName, Costs, LayerPlan, Method, PassName

__all__ = [
    "ALGORITHMS",
    "PASSES",
    "AlgorithmName",
    "Choice",
    "ConvShape",
    "Costs",
    "Grain",
    "LayerPlan",
    "Method",
    "PassName",
    "Plan",
    "candidates",
    "choose",
    "cut_axis",
    "ranges",
]
