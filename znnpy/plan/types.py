"""What the plan decides for each convolution: one algorithm per pass, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from znnpy.errors import PlanError
from znnpy.network.types import Network

Algorithm = Literal["direct", "fft"]
PassName = Literal["forward", "gradient", "weight"]
PASSES: tuple[PassName, ...] = get_args(PassName)
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class LayerPlan:
    """Algorithms of one conv edge: forward, data `gradient`, `weight` gradient; `reason` for people."""

    forward: Algorithm
    gradient: Algorithm
    weight: Algorithm
    reason: str = ""

    def uses(self, algorithm: Algorithm) -> bool:
        """Whether any pass runs by this algorithm."""
        return algorithm in (self.forward, self.gradient, self.weight)


@dataclass(frozen=True)
class Plan:
    """Choices that change bits, saved with a run: they do not depend on the number of threads."""

    layers: Mapping[str, LayerPlan]

    def to_record(self) -> dict[str, Any]:
        """JSON-able form, read back by `from_record`."""
        return {
            name: {**{step: getattr(layer, step) for step in PASSES}, "reason": layer.reason}
            for name, layer in self.layers.items()
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Mapping[str, Any]], network: Network) -> Plan:
        """Check and read a saved plan; PlanError when it is of another network or version."""
        edges = {edge.name: edge for edge in network.edges if edge.kind == "conv"}
        if set(record) != set(edges):
            raise PlanError(
                f"the saved plan is for layers {sorted(record)}, the network has {sorted(edges)}"
            )
        for name, layer in record.items():
            for step in PASSES:
                if layer.get(step) not in ALGORITHMS:
                    raise PlanError(
                        f"the saved plan asks for {layer.get(step)!r} in the {step} pass of "
                        f"{name!r}; this version knows {', '.join(ALGORITHMS)}"
                    )
        plan = cls({name: LayerPlan(**dict(layer)) for name, layer in record.items()})
        for name, edge in edges.items():
            if max(edge.stride) > 1 and plan.layers[name].uses("fft"):
                raise PlanError(f"the saved plan asks for fft in {name!r}, which has a true stride")
        return plan
