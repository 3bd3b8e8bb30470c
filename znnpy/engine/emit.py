"""Walks a network forward and backward and declares the tasks of every node and edge; `EMITTERS` binds edge kinds.

Microbatches are computed in order and their gradients added up by a binary tree over their numbers (`turns`). Each
operation of each pass is a stage of its own, which only the scheduling policy `layers` regards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from znnpy.engine.communication.gradient_exchange import Exchange
from znnpy.engine.convolution import padding
from znnpy.engine.convolution import passes as convolution
from znnpy.engine.layers import (
    average_pooling,
    data_movement,
    depth_to_space,
    max_pooling,
    means,
    resizing,
    upsampling,
)
from znnpy.engine.layers.activation import repeat_slope
from znnpy.engine.layers.constrained_filters import (
    average_gradient,
    clear_gradient,
    standardize,
    standardized_gradient,
)
from znnpy.engine.layers.filter_reading import read_filters
from znnpy.engine.layers.gradient_accumulation import add_totals
from znnpy.engine.layers.loss import emit_loss
from znnpy.engine.layers.maxout import winner_gradient
from znnpy.engine.layers.nodes import converge_backward, converge_forward, split_concat
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.layers.parameter_updates import UpdateAtOnce, emit_updates
from znnpy.engine.layers.product import factor_gradient
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensor_aliases import adds, is_early
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.buffer_sharing import gate
from znnpy.engine.tasks.rematerialization import repeated
from znnpy.engine.tasks.step import Step, tree
from znnpy.errors import NetworkError
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import EdgeKindName
from znnpy.network.objectives import Objectives
from znnpy.network.parameters import trained_nodes
from znnpy.network.types import Edge, Node


class Turn(NamedTuple):
    """One microbatch in the order: the slot for its sums, and pairs of slots (into, from) to add after it."""

    slot: int
    pairs: list[tuple[int, int]]


def turns(count: int, slots: int) -> list[Turn]:
    """Return the slot and additions of each microbatch in order; slot 0 ends with the sum of all.

    Slots are reused in the order in which they become free, so that a new user seldom has to wait.
    """
    # First in, first out: the slot that has been free for longest is the least likely to be read
    # still.
    free, found = deque(range(slots)), list[Turn]()
    for ready in _ready(count):
        found.append(Turn(free.popleft(), []))
        pairs = [(found[into].slot, found[other].slot) for into, other in ready]
        found[-1].pairs.extend(pairs)
        free.extend(other for _, other in pairs)
    return found


def _ready(count: int) -> list[list[tuple[int, int]]]:
    """Return the pairs of the tree by the leaf after which both of their sums are complete."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for into, other in tree(count):
        # A pair `distance` apart joins leaves into..2 * other - into - 1; the last of these, or the
        # last of all, completes it.
        found[min(2 * other - into, count) - 1].append((into, other))
    return found


@dataclass(frozen=True)
class Emitter:
    """The functions that declare the tasks of one edge kind.

    `forward` fills the edge's contribution (its output), `backward` its data gradient, from the gradient of its
    target. A kind with filters has `weight_gradient`, from its target's gradient too, and `derive`, which computes
    what its passes need beside the filters (spectra, transposed copies).
    """

    forward: Callable[[Step, Build, Edge], None]
    backward: Callable[[Step, Build, Edge, Tensor], None]
    weight_gradient: Callable[[Step, Build, Edge, Tensor], None] | None = None
    derive: Callable[[Step, Build, Edge], None] | None = None


# Bound by name here, not in `layers`: what a layer means knows no task (docs/design/layers.md).
EMITTERS: dict[EdgeKindName, Emitter] = {
    "conv": Emitter(
        convolution.forward,
        convolution.data_gradient,
        convolution.weight_gradient,
        convolution.derive,
    ),
    "conv_transpose": Emitter(
        convolution.forward,
        convolution.data_gradient,
        convolution.weight_gradient,
        convolution.derive,
    ),
    "max_filter": Emitter(max_pooling.forward, max_pooling.backward),
    "max_pool": Emitter(max_pooling.forward, max_pooling.backward),
    "upsample": Emitter(upsampling.forward, upsampling.backward),
    "avg_pool": Emitter(average_pooling.forward, average_pooling.backward),
    "dropout": Emitter(data_movement.dropout_forward, data_movement.dropout_backward),
    "identity": Emitter(data_movement.identity_forward, data_movement.identity_backward),
    "crop": Emitter(data_movement.crop_forward, data_movement.crop_backward),
    "pad": Emitter(padding.pad, padding.unpad),
    "mean": Emitter(means.forward, means.backward),
    "depth_to_space": Emitter(depth_to_space.forward, depth_to_space.backward),
    "resize": Emitter(resizing.forward, resizing.backward),
}


def emitter_of(edge: Edge) -> Emitter:
    """Return the functions that declare an edge's tasks; NetworkError for a kind that float64 alone knows."""
    if edge.kind in EMITTERS:
        return EMITTERS[edge.kind]
    tasks = edge_kind(edge.kind).tasks
    if tasks is None:
        what = f"edge '{edge.name}': {edge.kind} has no tasks in float32"
        raise NetworkError(f"{what}; precision float64 runs it")
    made: Emitter = tasks()
    return made


def emit_forward(step: Step, build: Build) -> None:
    """Declare the forward pass: values of all nodes from the staged inputs."""
    for node in build.layout.network.nodes:
        emit_values(step, build, node)


def emit_values(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that compute a node's values from those of its sources."""
    if node.kind == "input":
        if node.name in build.maps.activations:
            data_movement.pack_input(step, build, node.name)
        padding.fill(step, build, node.name)
        _emit_early(step, build, node)
        return
    repeat_slope(step, build, node)
    for edge in build.layout.network.incoming(node.name):
        if not is_early(build.layout, edge):
            _emit_edge_forward(step, build, edge)
    # Before edges converge: edges by FFT are summed as spectra, and what they make is then one of
    # the addends.
    convolution.finish_forward(step, build, node)
    converge_forward(step, build, node)
    # Last: the frame repeats or surrounds finished values.
    padding.fill(step, build, node.name)
    step.stage += 1
    _emit_early(step, build, node)


def _emit_early(step: Step, build: Build, node: Node) -> None:
    for edge in build.maps.early.get(node.name, ()):
        _emit_edge_forward(step, build, edge)


def _emit_edge_forward(step: Step, build: Build, edge: Edge) -> None:
    read_filters(step, build, edge)
    if adds(build.layout, edge):
        # Its tasks may cut the target otherwise than those of the edges before.
        tensor = build.maps.contributions[edge.name]
        met = (region for batch in range(tensor.batch) for region in tensor.regions(batch))
        step.tasks.append(gate(dict.fromkeys(region.key for region in met), step.stage))
    emitter_of(edge).forward(step, build, edge)
    # Each pass of each edge is a stage of its own: the policy `layers` runs it like one call of
    # a framework.
    step.stage += 1


def emit_backward(step: Step, build: Build, losses: Objectives) -> None:
    """Declare the losses and the backward pass: gradients of all parameters."""
    network = build.layout.network
    trained = trained_nodes(network)
    # All losses before any backward pass: they fill the gradients that it begins with, and mark
    # where forward ends.
    for node in network.outputs:
        emit_loss(step, build, node, losses[node.name])
    step.stage += 1
    for node in reversed(network.nodes):
        if node.name in trained:
            # In this order: spectra become gradients, gradients of all readers are summed and taken
            # through the function, and only then do the node's own edges read them, with zeros
            # around.
            convolution.finish_backward(step, build, node)
            converge_backward(step, build, node, losses.get(node.name))
            padding.clear(step, build, node.name)
            step.stage += 1
            _emit_edges_backward(step, build, node, trained)


def _emit_edges_backward(step: Step, build: Build, node: Node, trained: set[str]) -> None:
    # Channels of a concat node that lie before those of this edge.
    first = 0
    for edge in build.layout.network.incoming(node.name):
        gradient = build.maps.gradients[node.name]
        if node.kind == "concat" and edge.source in trained:
            gradient = split_concat(step, build, node, edge, first)
        elif node.kind == "max" and edge.source in trained:
            gradient = winner_gradient(step, build, node, edge)
        elif node.kind == "product" and edge.source in trained:
            gradient = factor_gradient(step, build, node, edge)
        first += build.maps.contributions[edge.name].channels
        emitter = emitter_of(edge)
        # Weight gradient first: a spectral one may make the data gradient on its way, and the other
        # order keeps more memory alive (docs/design/order.md, "Tried"). Data gradient first where the
        # other one updates the filters, which it reads.
        back_first = edge.source in trained and convolution.updates_at_once(step, build, edge)
        if back_first:
            emitter.backward(step, build, edge, gradient)
            step.stage += 1
        if emitter.weight_gradient and edge.learn:
            emitter.weight_gradient(step, build, edge, gradient)
            # Constraints follow the products and precede sums over microbatches, all of them
            # linear, so that every sum is over constrained gradients.
            average_gradient(step, build, edge)
            clear_gradient(step, build, edge)
            standardized_gradient(step, build, edge)
            step.stage += 1
        if edge.source in trained and not back_first:
            emitter.backward(step, build, edge, gradient)
            step.stage += 1


def emit_gradients(
    step: Step, build: Build, losses: Objectives, exchange: Exchange | None = None
) -> None:
    """Declare forward pass, loss and backward pass of every microbatch, summed as soon as the tree allows."""
    layout = build.layout
    for microbatch, (slot, pairs) in enumerate(turns(len(layout.numbers), layout.slots)):
        own = build.of(microbatch, slot, pairs)
        # What edges share within a microbatch is made again for the next one.
        step.begin()
        first = len(step.tasks)
        emit_forward(step, own)
        # By several, predictions are declared by themselves: copies would grow with each.
        if len(layout.numbers) == 1:
            step.note_values()
        emit_backward(step, own, losses)
        # Per microbatch, before sums over microbatches are declared: these are never made again.
        step.tasks[first:] = repeated(step.tasks[first:], own.again)
        for number, (into, other) in enumerate(pairs):
            # Direct weight gradients may have added their first pairs themselves.
            made = {name for name, count in step.added.items() if number < count}
            add_totals(step, build, into, other, made)
    if exchange:
        exchange.add_up(step, build)


def updates_at_once(
    build: Build,
    optimizer: Optimizer,
    clip_norm: float | None,
    *,
    ranks: bool,
    frozen: frozenset[str],
) -> UpdateAtOnce | None:
    """Return what declares updates behind the tasks that make gradients; None where others wait for all gradients.

    `ranks`: whether gradients are added up over several.
    """
    alone = not ranks and len(build.layout.numbers) * build.layout.planned == 1
    return UpdateAtOnce(optimizer, frozen) if alone and clip_norm is None else None


def emit_update(
    step: Step,
    build: Build,
    losses: Objectives,
    optimizer: Optimizer,
    clip_norm: float | None,
    exchange: Exchange | None = None,
    frozen: frozenset[str] = frozenset(),
) -> int:
    """Declare a whole update: gradients of all microbatches, all-reduce over ranks, optimiser, derived filters.

    Return how many tasks the gradients have, which come first; 0 if some are updates, too.
    """
    ranks = exchange is not None
    step.at_once = updates_at_once(build, optimizer, clip_norm, ranks=ranks, frozen=frozen)
    emit_gradients(step, build, losses, exchange)
    gradients = len(step.tasks)
    # With rank 0 handing out weights the others move nothing and wait for them.
    if exchange is None or exchange.moves:
        emit_updates(step, build, optimizer, clip_norm, frozen)
        step.stage += 1
    if exchange:
        exchange.hand_out(step, build)
        step.stage += 1
        # Before derived filters are declared: no other rank waits for these.
        exchange.hasten(step, build.layout.workers)
    emit_derived(step, build)
    return 0 if step.updated else gradients


def emit_derived(step: Step, build: Build) -> None:
    """Declare what is derived from filters after an update: standardised ones, transposed copies, spectra."""
    for edge in build.layout.network.edges:
        if derive := emitter_of(edge).derive:
            # Spectra and transposed copies are made of standardised filters, so these come first.
            standardize(step, build, edge)
            derive(step, build, edge)
