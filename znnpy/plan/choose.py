"""Chooses the algorithm of each convolution layer and pass: as the config says, or by estimated or measured cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from znnpy.config.training_section import ConvChoice, TrainingSection
from znnpy.errors import PlanError
from znnpy.geometry import Geometry
from znnpy.network.types import Network
from znnpy.plan.algorithms import ALGORITHMS, Algorithm
from znnpy.plan.algorithms.fft import FFT_TAPS
from znnpy.plan.cost import ConvShape, convolutions
from znnpy.plan.fftw import missing
from znnpy.plan.joint_choice import Combination, cheapest, needed, shared_total
from znnpy.plan.record import Plan
from znnpy.plan.types import PASSES, SHARED, AlgorithmName, Costs, LayerPlan, Method, PartSeconds

Choice = ConvChoice
Measure = Callable[[ConvShape], tuple[Costs, str]]
"""Seconds by part of a layer's methods, and which they are: one of the words that follow."""
MEASURED, ESTIMATED = "measured", "estimated"
UNMEASURED = "unmeasured"  # estimated, though they can be measured

# Any layer can run by one of these two. Candidates that are direct convolution alone leave nothing
# to measure.
DIRECT, DEPTHWISE = Method("direct"), Method("depthwise")


def choose(
    network: Network,
    geometry: Geometry,
    batch: int,
    conv: Choice,
    measure: Measure,
    training: bool = True,
) -> Plan:
    """Return a plan for every convolution; without `training` only forward passes count.

    With `conv: auto`, `measure` gives seconds by part for the methods of `candidates` where there are several.
    Raises PlanError if the algorithm that the config names cannot run here.
    """
    shapes = {
        edge.name: ConvShape.of(edge, network, geometry, batch, training)
        for edge in convolutions(network)
    }
    # Layers of one shape get one plan from one measurement; `dict.fromkeys` keeps the network's
    # order, so that progress is reported in it.
    layers = {shape: _layer(shape, conv, measure) for shape in dict.fromkeys(shapes.values())}
    return Plan({name: layers[shape] for name, shape in shapes.items()})


def left_out(training: TrainingSection, network: Network) -> list[str]:
    """Return messages on algorithms that `conv: auto` does not try on this machine though they may be the fastest."""
    # A plan that is given was chosen elsewhere, perhaps with FFTW.
    chosen_here = training.conv == "auto" and training.plan is None
    longest = max((max(edge.size) for edge in convolutions(network)), default=0)
    if not (chosen_here and missing() and longest >= FFT_TAPS):
        return []
    return [
        f"conv: auto does not try fft, which may be the fastest for {longest} taps: {missing()}"
    ]


def close_calls(
    network: Network, geometry: Geometry, batch: int, training: bool
) -> list[ConvShape]:
    """Return the layers, each shape once, whose methods `conv: auto` measures."""
    shapes = [
        ConvShape.of(edge, network, geometry, batch, training) for edge in convolutions(network)
    ]
    several = (shape for shape in dict.fromkeys(shapes) if not shape.depthwise)
    return [shape for shape in several if candidates(shape) != [DIRECT]]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the methods worth measuring for a layer; direct is always one."""
    return list(_candidates(shape))


@cache  # called several times for each layer, and there are many sizes of tiles
def _candidates(shape: ConvShape) -> tuple[Method, ...]:
    found: list[Method] = []
    # In the registry's order, in which ties go to the first.
    for algorithm in ALGORITHMS.values():
        if competes(algorithm, shape):
            found += algorithm.candidates(shape)
    return tuple(found)


def takes(algorithm: Algorithm, shape: ConvShape) -> bool:
    """Return whether an algorithm can run a layer."""
    # Depthwise layers and the depthwise algorithm take nothing but each other.
    if shape.depthwise or algorithm.traits.depthwise:
        return shape.depthwise and algorithm.traits.depthwise
    if shape.planar and not (algorithm.traits.reads_planar or algorithm.between_planar(shape)):
        return False
    if shape.transposed and not algorithm.traits.transposes:
        return False
    return not algorithm.refusal(shape.size, shape.stride)


def competes(algorithm: Algorithm, shape: ConvShape) -> bool:
    """Return whether an algorithm can run a layer, in bands where it has them."""
    return takes(algorithm, shape) and (algorithm.traits.bands or not shape.bands)


def estimated(shape: ConvShape, method: Method) -> PartSeconds:
    """Return the estimated seconds of a method by part; the sum is that of the layer."""
    algorithm = ALGORITHMS[method.algorithm]
    if not (algorithm.traits.bands and shape.bands):
        return algorithm.costs(shape, method.tile)
    costs = algorithm.costs(shape.band, method.tile)
    return {part: len(shape.bands) * seconds for part, seconds in costs.items()}


def estimated_seconds(shape: ConvShape, method: Method) -> float:
    """Return the estimated seconds of all passes that a layer needs, by one method."""
    costs = estimated(shape, method)
    return sum(costs.get(part, 0.0) for part in (*shape.passes, *SHARED))


def planned_seconds(shape: ConvShape, layer: LayerPlan, *, training: bool) -> float:
    """Return the estimated seconds of a layer's passes as planned; of the forward pass alone without `training`."""
    by_pass = {which: layer.method(which) for which in (shape.passes if training else PASSES[:1])}
    costs = estimated_costs(shape, list(set(by_pass.values())))
    return shared_total(by_pass, needed(costs, shape))


def estimated_costs(shape: ConvShape, methods: Sequence[Method]) -> Costs:
    """Return the estimated seconds by part of each method."""
    return {method: estimated(shape, method) for method in methods}


def layer_costs(shape: ConvShape, conv: Choice, measure: Measure) -> tuple[Costs, str]:
    """Return the seconds by part of the methods to choose from for a layer, and the reason for these methods."""
    if shape.depthwise:
        return estimated_costs(shape, [DEPTHWISE]), "each channel has a filter of its own"
    if conv == "auto":
        # Nothing to compare, so the time of measuring is spared.
        if candidates(shape) == [DIRECT]:
            return estimated_costs(shape, [DIRECT]), ESTIMATED
        return measure(shape)
    # `conv: NAME` must train any network, so layers that the algorithm cannot run go to direct
    # convolution and say why; only what nothing mends is refused, below.
    if why := _left_to_others(shape, conv):
        return estimated_costs(shape, [DIRECT]), why
    if refusal := ALGORITHMS[conv].refusal(shape.size, shape.stride):
        raise PlanError(f"conv: {conv}: {refusal}")
    tiled = ALGORITHMS[conv].traits.tile_sizes
    methods = ALGORITHMS[conv].told(shape)
    return estimated_costs(shape, methods), ESTIMATED if tiled else f"conv: {conv}"


def _left_to_others(shape: ConvShape, conv: AlgorithmName) -> str:
    """Return why other algorithms must run this layer; empty if this one can, or takes no filter of its size."""
    algorithm = ALGORITHMS[conv]
    refused = algorithm.refusal(shape.size, shape.stride)
    taps, stride = ("x".join(map(str, sizes)) for sizes in (shape.size, shape.stride))
    if shape.transposed and not algorithm.traits.transposes:
        what = "transposed convolutions"
    elif refused and max(shape.stride) > 1:
        what = "strides"
    elif refused and refused != missing():  # of FFTW, which nothing here mends
        what = f"{taps} filters"
    elif not refused and not takes(algorithm, shape):
        what = f"inputs of {shape.inputs} channels" if shape.inputs > 1 else "inputs of one channel"
    elif refused or algorithm.told(shape):
        return ""
    elif not algorithm.traits.tile_sizes:
        what = "strides of dilated filters"
    elif max(shape.phases.size) == 1:
        what = f"{taps} filters with stride {stride}, of which each voxel meets one tap at most"
    else:
        most = max(algorithm.traits.tile_sizes)
        what = f"{taps} filters with stride {stride}, whose taps no tile of {most} points holds"
    others = [name for name, it in ALGORITHMS.items() if takes(it, shape) and it.told(shape)]
    return f"{conv} takes no {what}; {' and '.join(others)} {'do' if others[1:] else 'does'}"


def _layer(shape: ConvShape, conv: Choice, measure: Measure) -> LayerPlan:
    costs, why = layer_costs(shape, conv, measure)
    return cheapest(needed(costs, shape), why, partial(_lies_as_measured, shape))


def _lies_as_measured(shape: ConvShape, chosen: Combination) -> bool:
    """Return whether channels lie as each method was measured: planar at both ends for all passes, or for none."""
    if not shape.between:  # for none; asked of each of a thousand combinations
        return True
    by_pass = zip(PASSES, chosen, strict=True)
    between = {
        which: ALGORITHMS[method.algorithm].between_planar(shape)
        for which, method in by_pass
        if which in shape.passes
    }
    # Weight gradients alone have no need of it.
    needs = any("forward" in passes for passes in between.values())
    return not needs or all(which in passes for which, passes in between.items())
