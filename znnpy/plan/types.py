"""What the plan decides for each convolution: one algorithm per pass, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from znnpy_kernels.fft.codelets import SIZES

from znnpy.errors import PlanError
from znnpy.network.types import Network, Triple

Algorithm = Literal["direct", "fft", "spectral", "winograd"]
PassName = Literal["forward", "gradient", "weight"]
PASSES: tuple[PassName, ...] = get_args(PassName)
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
TILE_SIZES: tuple[int, ...] = SIZES
CostPart = PassName | Literal["images", "filters", "gradients"]
"""What costs are told of: a pass, or what two passes by the same method share (SHARED)."""
SHARED: dict[CostPart, tuple[PassName, PassName]] = {
    "images": ("forward", "weight"),
    "filters": ("forward", "gradient"),
    "gradients": ("gradient", "weight"),
}
"""Spectra that two passes share when they use the same method."""
COST_PARTS: tuple[CostPart, ...] = (*PASSES, *SHARED)
PartSeconds = dict[CostPart, float]


def wanted(part: CostPart, passes: Collection[PassName]) -> bool:
    """Whether a part of a layer's cost is met with only these passes.

    What passes share always is: whoever uses it pays for it.
    """
    return part in SHARED or part in passes


class Method(NamedTuple):
    """An algorithm, and the tile (z, y, x) of a spectral one; `str` is its name for people and files."""

    algorithm: Algorithm
    tile: Triple | None = None

    def __str__(self) -> str:
        return f"{self.algorithm} {'x'.join(map(str, self.tile))}" if self.tile else self.algorithm

    @classmethod
    def named(cls, name: str) -> Method:
        """The method whose `str` this is."""
        word, _, sizes = name.partition(" ")
        algorithm = ALGORITHMS[ALGORITHMS.index(word)]
        if not sizes:
            return cls(algorithm)
        z, y, x = map(int, sizes.split("x"))
        return cls(algorithm, (z, y, x))


Costs = dict[Method, PartSeconds]
"""Seconds of a layer's methods, part by part."""


@dataclass(frozen=True)
class LayerPlan:
    """Algorithms of one conv edge: forward, data `gradient`, `weight` gradient; `reason` for people.

    A spectral pass has a tile: points along z, y, x, each of TILE_SIZES.
    """

    forward: Algorithm
    gradient: Algorithm
    weight: Algorithm
    reason: str = ""
    forward_tile: Triple | None = None
    gradient_tile: Triple | None = None
    weight_tile: Triple | None = None

    @classmethod
    def of(cls, forward: Method, gradient: Method, weight: Method, reason: str = "") -> LayerPlan:
        """The plan with these methods."""
        return cls(
            forward.algorithm,
            gradient.algorithm,
            weight.algorithm,
            reason,
            forward.tile,
            gradient.tile,
            weight.tile,
        )

    def method(self, step: PassName) -> Method:
        """Algorithm and tile of one pass."""
        return Method(getattr(self, step), getattr(self, f"{step}_tile"))

    def uses(self, algorithm: Algorithm) -> bool:
        """Whether any pass runs by this algorithm."""
        return algorithm in (self.forward, self.gradient, self.weight)


@dataclass(frozen=True)
class Plan:
    """Choices that change bits, saved with a run: they do not depend on the number of threads."""

    layers: Mapping[str, LayerPlan]

    def to_record(self) -> dict[str, Any]:
        """JSON-able form, read back by `from_record`."""
        return {name: _layer_record(layer) for name, layer in self.layers.items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Mapping[str, Any]], network: Network) -> Plan:
        """Check and read a saved plan; PlanError when it is of another network or version."""
        edges = {edge.name: edge for edge in network.edges if edge.kind == "conv"}
        if not isinstance(record, Mapping):
            raise PlanError(f"the saved plan is a {type(record).__name__}, not a table of layers")
        if set(record) != set(edges):
            raise PlanError(
                f"the saved plan is for layers {sorted(record)}, the network has {sorted(edges)}"
            )
        plan = cls({name: _read_layer(name, layer) for name, layer in record.items()})
        for name, edge in edges.items():
            layer = plan.layers[name]
            if (
                max(edge.stride) > 1
                and not layer.forward == layer.gradient == layer.weight == "direct"
            ):
                raise PlanError(f"the saved plan of {name!r}: a true stride runs by direct only")
            if layer.uses("winograd") and edge.size != (3, 3, 3):
                raise PlanError(f"the saved plan of {name!r}: winograd takes filters of 3 x 3 x 3")
        return plan


def _layer_record(layer: LayerPlan) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for step in PASSES:
        method = layer.method(step)
        record[step] = method.algorithm
        if method.tile:
            record[f"{step}_tile"] = list(method.tile)
    return record | {"reason": layer.reason}


def _read_layer(name: str, layer: Mapping[str, Any]) -> LayerPlan:
    if not isinstance(layer, Mapping) or not isinstance(layer.get("reason", ""), str):
        raise PlanError(f"the saved plan of {name!r} is no table of passes")
    values = dict(layer)
    for step in PASSES:
        if values.get(step) not in ALGORITHMS:
            raise PlanError(
                f"the saved plan asks for {values.get(step)!r} in the {step} pass of "
                f"{name!r}; this version knows {', '.join(ALGORITHMS)}"
            )
        tile = values.pop(f"{step}_tile", None)
        values[f"{step}_tile"] = _read_tile(name, step, tile, values[step] == "spectral")
    unknown = sorted(set(values) - {field.name for field in fields(LayerPlan)})
    if unknown:
        raise PlanError(f"the saved plan of {name!r} has unknown entries {unknown}")
    return LayerPlan(**values)


def _read_tile(name: str, step: str, tile: Any, wanted: bool) -> Triple | None:
    if not wanted and tile is None:
        return None
    good = wanted and isinstance(tile, list | tuple) and len(tile) == 3
    if not good or any(type(size) is not int or size not in TILE_SIZES for size in tile):
        raise PlanError(
            f"the saved plan has tile {tile!r} in the {step} pass of {name!r}; a spectral pass has "
            f"three sizes of {TILE_SIZES}, others none"
        )
    z, y, x = tile
    return z, y, x
