"""What each pass of a layer costs by its method, and by the next best one."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy.plan.combine import shared_total
from znnpy.plan.cost import ConvShape
from znnpy.plan.types import Costs, LayerPlan, Method, PassName


@dataclass(frozen=True)
class Compared:
    """Seconds of one pass by its method; `other` is the next best, None where there is no other.

    What passes share counts at the first of them, so that a layer's passes add up to the layer.
    `other_seconds`: with the methods of the other passes as they are.
    """

    step: PassName
    method: Method
    seconds: float
    other: Method | None = None
    other_seconds: float | None = None


def compared(shape: ConvShape, layer: LayerPlan, costs: Costs) -> list[Compared]:
    """The passes that a layer needs; `costs` has seconds by part of its methods and the others."""
    chosen: dict[PassName, Method] = {which: layer.method(which) for which in shape.passes}
    least, met = shared_total(chosen, costs), dict[PassName, Method]()
    rows, before = [], 0.0
    for which, method in chosen.items():
        met[which] = method
        seconds = shared_total(met, costs) - before
        before += seconds
        others = {
            other: seconds + shared_total(chosen | {which: other}, costs) - least
            for other in costs
            if other != method
        }
        best = min(others, key=others.__getitem__, default=None)
        rows.append(Compared(which, method, seconds, best, others[best] if best else None))
    return rows
