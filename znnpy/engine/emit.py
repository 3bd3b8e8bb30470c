"""A network's passes as declared tasks: the one module that binds operations to their emitters.

Each operation of each pass is a stage of its own, which matters to the policy `layers` alone.
"""

from __future__ import annotations

from znnpy.engine.convolution import fft
from znnpy.engine.convolution import passes as convolution
from znnpy.engine.layers import moves, pooling
from znnpy.engine.layers.loss import emit_loss
from znnpy.engine.layers.nodes import converge_backward, converge_forward, split_concat
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.repeats import average_gradient
from znnpy.engine.layers.updates import emit_updates
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.images import trained_nodes
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Node

FORWARD = {
    "conv": convolution.forward,
    "max_filter": pooling.forward,
    "max_pool": pooling.forward,
    "dropout": moves.dropout_forward,
    "crop": moves.crop_forward,
}
BACKWARD = {
    "conv": convolution.data_gradient,
    "max_filter": pooling.backward,
    "max_pool": pooling.backward,
    "dropout": moves.dropout_backward,
    "crop": moves.crop_backward,
}


def emit_forward(step: Step, build: Build) -> None:
    """Values of all nodes from the staged inputs."""
    network = build.layout.network
    for node in network.nodes:
        if node.kind == "input":
            if node.name in build.images.activations:
                moves.pack_input(step, build, node.name)
            continue
        for edge in network.incoming(node.name):
            FORWARD[edge.kind](step, build, edge)
            step.stage += 1
        fft.finish_forward(step, build, node)
        converge_forward(step, build, node)
        step.stage += 1


def emit_backward(step: Step, build: Build, loss: str) -> None:
    """Loss, then gradients of all filters and biases."""
    network = build.layout.network
    trained = trained_nodes(network)
    for node in network.outputs:
        emit_loss(step, build, node, loss)
    step.stage += 1
    for node in reversed(network.nodes):
        if node.name in trained:
            fft.finish_backward(step, build, node)
            converge_backward(step, build, node, loss)
            step.stage += 1
            _emit_edges_backward(step, build, node, trained)


def _emit_edges_backward(step: Step, build: Build, node: Node, trained: set[str]) -> None:
    first = 0
    for edge in build.layout.network.incoming(node.name):
        gradient = build.images.gradients[node.name]
        if node.kind == "concat" and edge.source in trained:
            gradient = split_concat(step, build, node, edge.name, first)
        first += build.images.contributions[edge.name].images
        if edge.kind == "conv":
            convolution.weight_gradient(step, build, edge, gradient)
            average_gradient(step, build, edge)
            step.stage += 1
        if edge.source in trained:
            BACKWARD[edge.kind](step, build, edge, gradient)
            step.stage += 1


def emit_update(
    step: Step, build: Build, loss: str, optimizer: Optimizer, clip_norm: float | None
) -> None:
    """One whole update: forward, loss, backward, weight gradients, optimiser, derived filters."""
    emit_forward(step, build)
    emit_backward(step, build, loss)
    emit_updates(step, build, optimizer, clip_norm)
    step.stage += 1
    emit_derived(step, build)


def emit_derived(step: Step, build: Build) -> None:
    """What passes need of filters beside themselves: transposed copies, spectra."""
    for edge in build.layout.network.edges:
        if edge.kind == "conv":
            convolution.derive(step, build, edge)
