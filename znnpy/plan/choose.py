"""Choose an algorithm per layer and pass: as told, or the cheapest by estimate or by measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from znnpy.geometry import Geometry
from znnpy.network.types import Network
from znnpy.plan.cost import ConvShape, direct_seconds, fft_seconds
from znnpy.plan.types import PASSES, Algorithm, LayerPlan, PassName, Plan

Choice = Literal["auto", "direct", "fft"]
Timer = Callable[[ConvShape, PassName, Algorithm], float]

# Where the estimates differ by more than this, measuring cannot change the choice.
CLEAR_RATIO = 8.0


def choose(
    network: Network, geometry: Geometry, batch: int, conv: Choice, timer: Timer | None = None
) -> Plan:
    """A plan for every conv edge; `timer` measures where the estimates are close (`conv: auto`)."""
    layers = {}
    for edge in network.edges:
        if edge.kind == "conv":
            shape = ConvShape.of(edge, network, geometry, batch)
            layers[edge.name] = _layer(shape, conv, timer)
    return Plan(layers)


def _layer(shape: ConvShape, conv: Choice, timer: Timer | None) -> LayerPlan:
    if max(shape.stride) > 1:
        return LayerPlan("direct", "direct", "direct", "strided convolutions run directly")
    if conv != "auto":
        return LayerPlan(conv, conv, conv, f"conv: {conv}")
    direct, fft = direct_seconds(shape), fft_seconds(shape)
    if timer is None or direct * CLEAR_RATIO < fft:
        best: Algorithm = "direct" if direct <= fft else "fft"
        return LayerPlan(best, best, best, f"estimated direct {_ms(direct)}, fft {_ms(fft)} a pass")
    return _measured(shape, timer)


def _measured(shape: ConvShape, timer: Timer) -> LayerPlan:
    chosen: dict[PassName, Algorithm] = {}
    words = []
    for step in PASSES:
        direct, fft = timer(shape, step, "direct"), timer(shape, step, "fft")
        chosen[step] = "direct" if direct <= fft else "fft"
        words.append(f"{step} direct {_ms(direct)}, fft {_ms(fft)}")
    return LayerPlan(**chosen, reason="measured " + "; ".join(words))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
