"""Dispatches each pass of a conv edge to the algorithm that the plan chose; the registry `CONV_EMITTERS`."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution import depthwise, direct, fft, padding, spectral, winograd
from znnpy.engine.convolution.algorithm import ConvEmitter
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge, Node
from znnpy.plan import AlgorithmName, PassName
from znnpy.plan.cost import Band

# One line each; what plans know of them is in `plan.algorithms`.
CONV_EMITTERS: Mapping[AlgorithmName, ConvEmitter] = {
    "direct": direct,
    "depthwise": depthwise,
    "winograd": winograd,
    "spectral": spectral,
    "fft": fft,
}


def emitter_of(build: Build, edge: Edge, which: PassName) -> ConvEmitter:
    """Return the algorithm that declares the tasks of one pass of a conv edge."""
    return CONV_EMITTERS[build.layout.algorithm(edge, which)]


def _parts(build: Build, edge: Edge) -> list[tuple[Build, Edge, Band | None]]:
    """Return the edge as it is, or each of its bands as an edge between parts of its ends."""
    return [*build.banded(edge)] or [(build, edge, None)]


def _seen(gradient: Tensor, band: Band | None) -> Tensor:
    """Return the channels of a gradient that a band reads."""
    return gradient.part(band.first_output // LANES, band.outputs) if band else gradient


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare a conv edge's forward pass; by FFT its output stays a spectrum until `finish_forward`."""
    for own, part, _ in _parts(build, edge):
        emitter_of(build, edge, "forward").forward(step, own, part)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare a conv edge's data gradient; by FFT it stays a spectrum until `finish_backward`."""
    for own, part, band in _parts(build, edge):
        emitter_of(build, edge, "gradient").data_gradient(step, own, part, _seen(gradient, band))


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the gradient of an edge's filters, from its source's values and its target's gradient."""
    for own, part, band in _parts(build, edge):
        emitter_of(build, edge, "weight").weight_gradient(step, own, part, _seen(gradient, band))


def updates_at_once(step: Step, build: Build, edge: Edge) -> bool:
    """Return whether the weight gradient of an edge also updates its filters, so that it is declared last."""
    if edge.kind != "conv" or not edge.learn:
        return False
    return emitter_of(build, edge, "weight").updates_at_once(step, build, edge)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Declare what the passes need derived from filters, computed anew after each update."""
    # Weight gradients read no filters.
    reading: tuple[PassName, ...] = ("forward", "gradient")
    reading = reading if edge.name in build.maps.backward else reading[:1]
    used = {build.layout.algorithm(edge, which) for which in reading}
    for name, emitter in CONV_EMITTERS.items():
        if name in used:
            for own, part, _ in _parts(build, edge):
                emitter.derive(step, own, part)


def finish_forward(step: Step, build: Build, node: Node) -> None:
    """Declare what turns the spectra of a node's incoming edges into values."""
    for emitter in CONV_EMITTERS.values():
        emitter.finish_forward(step, build, node)


def finish_backward(step: Step, build: Build, node: Node) -> None:
    """Declare what turns the spectra of a node's outgoing edges into its gradient, and folds padding."""
    for emitter in CONV_EMITTERS.values():
        emitter.finish_backward(step, build, node)
    edges = build.layout.network.outgoing(node.name)
    # Edges that another one's inverse transform includes have nothing of their own to fold.
    included = summed_elsewhere(build, edges, "gradient")
    for edge in edges:
        if build.layout.folded(edge) and edge.name not in included:
            padding.fold(step, build, edge)


def summed_elsewhere(build: Build, edges: tuple[Edge, ...], which: PassName) -> set[str]:
    """Return the edges into or out of one node whose output is already summed into another edge's."""
    return {
        name
        for emitter in CONV_EMITTERS.values()
        for name in emitter.summed_elsewhere(build, edges, which)
    }
