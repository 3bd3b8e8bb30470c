"""Tasks of conv edges: every pass by the algorithm that the plan chose."""

from __future__ import annotations

from types import ModuleType

from znnpy.engine.convolution import direct, fft, spectral
from znnpy.engine.convolution.winograd import passes as winograd
from znnpy.engine.convolution.winograd import weight as winograd_weight
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge

_EMITTERS: dict[str, ModuleType] = {
    "direct": direct,
    "fft": fft,
    "spectral": spectral,
    "winograd": winograd,
}


def forward(step: Step, build: Build, edge: Edge) -> None:
    """What a conv edge brings to its target; by FFT it stays a spectrum until `fft.finish_forward`."""
    _EMITTERS[build.layout.plan.layers[edge.name].forward].forward(step, build, edge)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """What a conv edge brings to its source's gradient; by FFT until `fft.finish_backward`."""
    emitter = _EMITTERS[build.layout.plan.layers[edge.name].gradient]
    emitter.data_gradient(step, build, edge, gradient)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Gradient of an edge's filters, from its source's images and its target's gradient."""
    algorithm = build.layout.plan.layers[edge.name].weight
    emitter = winograd_weight if algorithm == "winograd" else _EMITTERS[algorithm]
    emitter.weight_gradient(step, build, edge, gradient)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """What the passes need of filters beside themselves, made anew after each update."""
    layer = build.layout.plan.layers[edge.name]
    backward = layer.gradient if edge.name in build.images.backward else None
    if "fft" in (layer.forward, backward):
        fft.derive(step, build, edge)
    if layer.forward == "spectral":
        spectral.derive(step, build, edge)
    if "winograd" in (layer.forward, backward):
        winograd.derive(step, build, edge)
    if direct.needs_transposed(build, edge):
        direct.transpose(step, build, edge)
