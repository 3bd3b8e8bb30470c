"""Choose a method per layer and pass: as told, or the cheapest by estimate or by measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Literal

from znnpy_kernels.fft.lines import MOST_TAPS

from znnpy.geometry import Geometry
from znnpy.network.types import Network, Triple
from znnpy.plan.cost import ConvShape, direct_seconds, fft_bytes, fft_seconds
from znnpy.plan.tiles import best_tiles, estimated_spectral, spectral_bytes, spectral_costs
from znnpy.plan.types import (
    COST_PARTS,
    PASSES,
    SHARED,
    Costs,
    LayerPlan,
    Method,
    PartSeconds,
    PassName,
    Plan,
    wanted,
)
from znnpy.plan.winograd import takes, winograd_costs

Choice = Literal["auto", "direct", "fft", "spectral"]
Measure = Callable[[ConvShape], Costs]

# Where the estimates differ by more than this, measuring cannot change the choice.
CLEAR_RATIO = 6.0
# Spectra of a layer's filters grow with inputs x outputs x voxels: beyond this, `auto` does not try.
MOST_BYTES = 2.0 * 2**30
MEASURED_TILES = 4  # sizes of tiles that `auto` measures
TRIED_TILES = 8  # sizes among which `conv: spectral` takes the best for each pass
DIRECT = Method("direct")
FFT = Method("fft")
WINOGRAD = Method("winograd")


def choose(
    network: Network,
    geometry: Geometry,
    batch: int,
    conv: Choice,
    measure: Measure,
    training: bool = True,
) -> Plan:
    """A plan for every conv edge; without `training` only forward passes count.

    With `conv: auto`, `measure` gives seconds by part for the methods of `candidates` where the estimates
    are close.
    """
    shapes = {
        edge.name: ConvShape.of(edge, network, geometry, batch, training)
        for edge in network.edges
        if edge.kind == "conv"
    }
    layers = {shape: _layer(shape, conv, measure) for shape in dict.fromkeys(shapes.values())}
    return Plan({name: layers[shape] for name, shape in shapes.items()})


def close_calls(
    network: Network, geometry: Geometry, batch: int, training: bool
) -> list[ConvShape]:
    """The layers, each shape once, whose methods `conv: auto` measures."""
    shapes = [
        ConvShape.of(edge, network, geometry, batch, training)
        for edge in network.edges
        if edge.kind == "conv" and max(edge.stride) == 1
    ]
    return [shape for shape in dict.fromkeys(shapes) if candidates(shape) != [DIRECT]]


def candidates(shape: ConvShape) -> list[Method]:
    """The methods worth measuring for a layer without strides; direct is always one."""
    return list(_candidates(shape))


@cache  # asked several times for each layer, and tiles are many
def _candidates(shape: ConvShape) -> tuple[Method, ...]:
    direct = direct_seconds(shape)
    found = [DIRECT]
    fits = max(shape.size) <= MOST_TAPS and fft_bytes(shape) <= MOST_BYTES
    if fits and fft_seconds(shape) <= direct * CLEAR_RATIO:
        found.append(FFT)
    if takes(shape) and "gradient" in shape.passes:  # without, images are an input's: not in blocks
        found.append(WINOGRAD)
    tiles = best_tiles(shape, MEASURED_TILES, MOST_BYTES)
    if "gradient" in shape.passes:
        # Full correlation covers other extents: what suits it need not suit the other passes.
        tiles += best_tiles(replace(shape, passes=("gradient",)), 1, MOST_BYTES)
    tiles += _told(shape)
    for tile in dict.fromkeys(tiles):
        if sum(spectral_costs(shape, tile).values()) <= len(PASSES) * direct * CLEAR_RATIO:
            found.append(Method("spectral", tile))
    return tuple(found)


def _told(shape: ConvShape) -> list[Triple]:
    """Tiles that `conv: spectral` would take, as long as they fit."""
    costs = estimated_spectral(shape, TRIED_TILES)
    if not costs:
        return []
    layer = cheapest(needed(costs, shape))
    tiles = [layer.method(step).tile for step in shape.passes]
    return [tile for tile in tiles if tile and spectral_bytes(shape, tile) <= MOST_BYTES]


def estimated(shape: ConvShape, method: Method) -> PartSeconds:
    """Estimated seconds of every part that measuring a method gives."""
    if method.tile:
        return spectral_costs(shape, method.tile)
    if method == WINOGRAD:
        return winograd_costs(shape)
    seconds = direct_seconds(shape) if method == DIRECT else fft_seconds(shape)
    return dict.fromkeys(COST_PARTS, seconds)


def estimated_seconds(shape: ConvShape, method: Method) -> float:
    """Estimated seconds of all passes that a layer needs, by one method."""
    costs = _estimated_cost(shape, method)
    return sum(costs.get(part, 0.0) for part in (*shape.passes, *SHARED))


def estimated_costs(shape: ConvShape, methods: Sequence[Method]) -> Costs:
    """Estimated seconds by part; parts that passes share are parts of a tiled method alone."""
    return {method: _estimated_cost(shape, method) for method in methods}


def _estimated_cost(shape: ConvShape, method: Method) -> PartSeconds:
    """What parts add up: estimates of passes include what they share, but for tiled methods."""
    return {
        part: seconds
        for part, seconds in estimated(shape, method).items()
        if method.tile or part not in SHARED
    }


def layer_costs(shape: ConvShape, conv: Choice, measure: Measure) -> tuple[Costs, str]:
    """Seconds by part of the methods among which a layer's are chosen, and why by these."""
    if max(shape.stride) > 1:
        return estimated_costs(shape, [DIRECT]), "strided convolutions run directly"
    if conv == "spectral":
        costs = estimated_spectral(shape, TRIED_TILES)
        why = "estimated" if costs else "no tile holds its filters"
        return costs or estimated_costs(shape, [DIRECT]), why
    if conv != "auto":
        return estimated_costs(shape, [Method(conv)]), f"conv: {conv}"
    if candidates(shape) == [DIRECT]:
        return estimated_costs(shape, [DIRECT]), "estimated"
    return measure(shape), "measured"


def _layer(shape: ConvShape, conv: Choice, measure: Measure) -> LayerPlan:
    costs, why = layer_costs(shape, conv, measure)
    return cheapest(needed(costs, shape), why)


def needed(costs: Costs, shape: ConvShape) -> Costs:
    """The costs of a layer's methods, where a pass that nobody needs costs nothing."""
    return {
        method: dict.fromkeys(PASSES, 0.0)
        | {part: cost for part, cost in parts.items() if wanted(part, shape.passes)}
        for method, parts in costs.items()
    }


def cheapest(costs: Costs, why: str = "measured") -> LayerPlan:
    """The combination of methods with the least sum, spectra that passes share counted once."""
    chosen = min(product(costs, costs, costs), key=lambda it: total(it, costs))
    return LayerPlan.of(*chosen, why)


def total(chosen: tuple[Method, Method, Method], costs: Costs) -> float:
    """Seconds of all passes by these methods; each shared part counts once for each method using it."""
    return shared_total(dict(zip(PASSES, chosen, strict=True)), costs)


def shared_total(by_pass: Mapping[PassName, Method], costs: Costs) -> float:
    """Seconds of some passes by the methods given, parts that they share counted once."""
    seconds = sum(costs[method][step] for step, method in by_pass.items())
    for part, steps in SHARED.items():
        users = {method for step, method in by_pass.items() if step in steps}
        seconds += sum(costs[method].get(part, 0.0) for method in users)
    return seconds
