"""Choose an algorithm per layer and pass: as told, or the cheapest by estimate or by measurement."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Literal

from znnpy_kernels.fft_lines import MOST_TAPS

from znnpy.geometry import Geometry
from znnpy.network.types import Network
from znnpy.plan.cost import ConvShape, direct_seconds, fft_bytes, fft_seconds
from znnpy.plan.types import ALGORITHMS, PASSES, Algorithm, LayerPlan, Plan

Choice = Literal["auto", "direct", "fft"]
Costs = dict[str, float]
Measure = Callable[[ConvShape], Costs]

# Where the estimates differ by more than this, measuring cannot change the choice.
CLEAR_RATIO = 6.0
# Spectra of a layer's filters grow with inputs x outputs x voxels: beyond this, `auto` does not try.
MOST_FFT_BYTES = 2.0 * 2**30


def choose(
    network: Network, geometry: Geometry, batch: int, conv: Choice, measure: Measure
) -> Plan:
    """A plan for every conv edge.

    With `conv: auto`, `measure` gives seconds by part (`direct forward`, `fft weight`, and the
    spectra that passes share: `images`, `filters`, `gradients`) where the estimates are close.
    """
    return Plan(
        {
            edge.name: _layer(ConvShape.of(edge, network, geometry, batch), conv, measure)
            for edge in network.edges
            if edge.kind == "conv"
        }
    )


def _layer(shape: ConvShape, conv: Choice, measure: Measure) -> LayerPlan:
    if max(shape.stride) > 1:
        return LayerPlan("direct", "direct", "direct", "strided convolutions run directly")
    if conv != "auto":
        return LayerPlan(conv, conv, conv, f"conv: {conv}")
    if max(shape.size) > MOST_TAPS:
        return LayerPlan("direct", "direct", "direct", f"fft takes up to {MOST_TAPS} taps an axis")
    direct, fft = direct_seconds(shape), fft_seconds(shape)
    if fft_bytes(shape) > MOST_FFT_BYTES:
        words = f"fft would take {fft_bytes(shape) / 2**30:.2g} GiB"
        return LayerPlan("direct", "direct", "direct", words)
    if direct * CLEAR_RATIO < fft:
        words = f"estimated direct {_ms(direct)}, fft {_ms(fft)} a pass"
        return LayerPlan("direct", "direct", "direct", words)
    return cheapest(measure(shape))


def cheapest(costs: Costs) -> LayerPlan:
    """The combination of algorithms with the least sum, spectra that passes share counted once."""
    forward, gradient, weight = min(
        product(ALGORITHMS, repeat=len(PASSES)), key=lambda chosen: _total(chosen, costs)
    )
    words = ", ".join(
        f"{step} {_ms(costs[f'direct {step}'])} against {_ms(costs[f'fft {step}'])}"
        for step in PASSES
    )
    shared = _ms(sum(costs[part] for part in ("images", "filters", "gradients")))
    return LayerPlan(
        forward,
        gradient,
        weight,
        f"measured direct against fft: {words}, shared spectra {shared}",
    )


def _total(chosen: tuple[Algorithm, ...], costs: Costs) -> float:
    total = sum(costs[f"{how} {step}"] for how, step in zip(chosen, PASSES, strict=True))
    forward, gradient, weight = (how == "fft" for how in chosen)
    total += costs["images"] * (forward or weight)
    total += costs["filters"] * (forward or gradient)
    return total + costs["gradients"] * (gradient or weight)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
