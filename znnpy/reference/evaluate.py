"""Evaluates a whole network in float64, node by node: forward pass, gradients and running statistics.

Parameters have the names of `network/parameters.py`: filters (out, in / groups, z, y, x) by conv edge, biases
(channels,) by transfer node, what normalisation keeps by `node.scale` and so on. Slow and plain on purpose. No
argument is changed, so calls may run concurrently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from numpy.typing import ArrayLike

from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry
from znnpy.layers import normalization
from znnpy.layers.activation_functions import Shaped, function_of
from znnpy.layers.edge_kind import Applied
from znnpy.layers.edges import edge_kind
from znnpy.layers.normalization import Statistics
from znnpy.layers.types import Array
from znnpy.network.objectives import Objectives, logits_network, objectives
from znnpy.network.parameters import learned, parameter_shapes, repeated, repeats_of
from znnpy.network.types import Edge, Network, Node, Norm


def forward(
    network: Network,
    geometry: Geometry,
    parameters: Mapping[str, ArrayLike],
    inputs: Mapping[str, ArrayLike],
    masks: Mapping[str, ArrayLike] | None = None,
    training: bool = False,
) -> dict[str, Array]:
    """Return the values of every node, after its activation function, by name.

    `inputs`: (batch, channel, z, y, x) by input node. `masks`: by dropout edge, of its source's shape, nonzero where a
    voxel is kept; an edge without a mask keeps everything, unscaled (inference). `training`: batch normalisation uses
    the batch's own statistics, not the running ones. Results are float64 arrays of the same axis order, new except
    that an input node's may be the caller's own. Raises ShapeError for a missing or misshapen input or parameter.
    """
    values = _checked_inputs(network, geometry, inputs)
    state = _State(network, geometry, _checked_parameters(network, parameters), values, training)
    state.masks.update(_doubles(masks or {}))
    for node in network.nodes:
        if node.kind != "input":
            values[node.name] = state.evaluate(node)
    return values


def gradients(
    network: Network,
    geometry: Geometry,
    parameters: Mapping[str, ArrayLike],
    inputs: Mapping[str, ArrayLike],
    targets: Mapping[str, ArrayLike],
    weights: Mapping[str, ArrayLike] | None = None,
    loss: str | Objectives = "square",
    masks: Mapping[str, ArrayLike] | None = None,
    whole: Mapping[str, Sequence[float]] | None = None,
) -> tuple[float, dict[str, Array]]:
    """Return the loss, summed over outputs, and its gradient by every parameter that is learned.

    `targets` and `weights` by output node; see `Objective.value_and_gradient` for both, `logits_network` for outputs
    whose function the loss applies itself, and `forward` for the rest. `loss`: a name, or the loss of each output of
    a `logits_network`. `whole`: by output, the `part_weights` of the whole batch if these samples are one microbatch
    of it. Gradients are new float64 arrays in the parameters' shapes.
    """
    if isinstance(loss, str):
        network, loss = logits_network(network, loss), objectives(network, loss)
    values = forward(network, geometry, parameters, inputs, masks, training=True)
    state = _State(network, geometry, _checked_parameters(network, parameters), values, True)
    state.masks.update(_doubles(masks or {}))
    total = 0.0
    for node in network.outputs:
        weight = None if weights is None else weights.get(node.name)
        part, gradient = loss[node.name].value_and_gradient(
            values[node.name],
            np.asarray(targets[node.name], np.float64),
            None if weight is None else np.asarray(weight, np.float64),
            None if whole is None else whole[node.name],
        )
        total += part
        state.node_gradients[node.name] = gradient
    for node in reversed(network.nodes):
        state.send_back(node)
    return total, {name: state.parameter_gradients[name] for name in learned(network)}


def moved_statistics(
    network: Network,
    geometry: Geometry,
    parameters: Mapping[str, ArrayLike],
    values: Mapping[str, Array],
    masks: Mapping[str, ArrayLike] | None = None,
) -> dict[str, Array]:
    """Return the running statistics, by name, after an update whose forward pass gave all nodes these values."""
    checked = _checked_parameters(network, parameters)
    state = _State(network, geometry, checked, dict(values), True)
    state.masks.update(_doubles(masks or {}))
    found: dict[str, Array] = {}
    for node in network.nodes:
        if node.norm is not None and node.norm.running:
            names = [f"{node.name}.{what}" for what in ("running_mean", "running_variance")]
            mean, variance = (checked[name] for name in names)
            moved = normalization.moved(mean, variance, state.summed(node), node.norm)
            found |= dict(zip(names, moved, strict=True))
    return found


@dataclass
class _State:
    """One evaluation in progress: values, masks and gradients so far."""

    network: Network
    geometry: Geometry
    parameters: dict[str, Array]
    values: dict[str, Array]
    training: bool
    masks: dict[str, Array] = field(default_factory=dict)
    node_gradients: dict[str, Array] = field(default_factory=dict)
    parameter_gradients: dict[str, Array] = field(default_factory=dict)

    def evaluate(self, node: Node) -> Array:
        """Return a node's values from the values of the nodes before it."""
        arriving = [self.through(edge) for edge in self.network.incoming(node.name)]
        match node.kind:
            case "concat":
                return np.concatenate(arriving, axis=1)
            case "sum":
                return _total(arriving)
            case "max":
                return np.asarray(np.max(arriving, axis=0))
            case "product":
                return np.asarray(np.prod(arriving, axis=0))
            case "transfer":
                total = self.normed(node, self.biased(node, arriving))
                return function_of(node.function).value(total, self.shape(node))
            case "input":
                return self.values[node.name]
            case _:
                assert_never(node.kind)

    def biased(self, node: Node, arriving: list[Array]) -> Array:
        """Return the sum of what arrives at a transfer node, bias included."""
        total = _total(arriving)
        return total + self.parameters[node.name][:, None, None, None] if node.bias else total

    def summed(self, node: Node) -> Array:
        """Return a transfer node's sum, bias included, from the values of the nodes before it."""
        return self.biased(node, [self.through(edge) for edge in self.network.incoming(node.name)])

    def normed(self, node: Node, total: Array) -> Array:
        """Return a transfer node's sum after its normalisation, which its function takes."""
        if node.norm is None:
            return total
        unit = normalization.normalised(total, node.norm, self.statistics(node, node.norm, total))
        if not node.norm.affine:
            return unit
        scale, shift = (self.of_channels(node, what) for what in ("scale", "shift"))
        # Added to the sum itself where the kind says so.
        return unit * scale + shift + (total if node.norm.adds else 0.0)

    def statistics(self, node: Node, norm: Norm, total: Array) -> Statistics:
        """Return the statistics that a node's sum is normalised by: its own in training, else running ones."""
        if self.training or not norm.running:
            return normalization.statistics(total, norm)
        mean, variance = (f"{node.name}.{what}" for what in ("running_mean", "running_variance"))
        return normalization.given(self.parameters[mean], self.parameters[variance])

    def of_channels(self, node: Node, what: str) -> Array:
        """Return an array that a node keeps as (channels, 1, 1, 1), to be multiplied with its values."""
        return self.parameters[f"{node.name}.{what}"][:, None, None, None]

    def shape(self, node: Node) -> Shaped:
        """Return the parameters that shape a node's activation function."""
        held = {what: self.of_channels(node, what) for what in function_of(node.function).held}
        return Shaped(node.slope, node.amplitude, node.gain, **held)

    def before(self, node: Node, gradient: Array) -> Array:
        """Return the gradient by a transfer node's sum, from that by its values."""
        function, found, shape = (
            function_of(node.function),
            self.values[node.name],
            self.shape(node),
        )
        if not function.needs_sum and node.norm is None:
            return function.gradient(found, gradient, shape)
        total = self.summed(node)
        if function.needs_sum:
            found = self.normed(node, total)
        if function.held_gradients is not None:
            for what, by_held in function.held_gradients(found, gradient, shape).items():
                own = by_held.sum(keepdims=True) if node.tied else by_held
                self.parameter_gradients[f"{node.name}.{what}"] = own
        gradient = function.gradient(found, gradient, shape)
        return gradient if node.norm is None else self.before_norm(node, node.norm, total, gradient)

    def before_norm(self, node: Node, norm: Norm, total: Array, gradient: Array) -> Array:
        """Return the gradient by the sum before normalisation; store that by scale and shift."""
        if norm.affine:
            unit = normalization.normalised(total, norm, normalization.statistics(total, norm))
            over = (0, 2, 3, 4)
            self.parameter_gradients[f"{node.name}.scale"] = (gradient * unit).sum(axis=over)
            self.parameter_gradients[f"{node.name}.shift"] = gradient.sum(axis=over)
            through = gradient * self.of_channels(node, "scale")
        else:
            through = gradient
        own = gradient if norm.adds else 0.0
        return normalization.normalised_gradient(total, through, norm) + own

    def applied(self, edge: Edge) -> Applied:
        """Return the operation of an edge with its dilation, filters and mask."""
        filters = self.parameters.get(edge.name, np.empty(0))
        dilation = self.geometry.dilations[edge.name]
        return Applied(edge, dilation, filters, self.masks.get(edge.name))

    def through(self, edge: Edge) -> Array:
        """Return the output of an edge."""
        return edge_kind(edge.kind).forward(self.values[edge.source], self.applied(edge))

    def send_back(self, node: Node) -> None:
        """Store the gradients of a node's bias and filters, and add its data gradients to its sources'."""
        if node.kind == "input":
            return
        gradient = self.node_gradients.pop(node.name)
        if node.kind == "transfer":
            gradient = self.before(node, gradient)
            if node.bias:
                self.parameter_gradients[node.name] = gradient.sum(axis=(0, 2, 3, 4))
        parts = self.parts(node, gradient)
        for edge, part in zip(self.network.incoming(node.name), parts, strict=True):
            self.back_through(edge, part)

    def parts(self, node: Node, gradient: Array) -> list[Array]:
        """Return the part of a node's gradient that goes to each of its edges."""
        edges = self.network.incoming(node.name)
        match node.kind:
            case "concat":
                counts = [
                    edge_kind(e.kind).brings(e, self.values[e.source].shape[1], node.channels)
                    for e in edges
                ]
                return np.split(gradient, np.cumsum(counts)[:-1], axis=1)
            case "max":
                winner = np.argmax([self.through(edge) for edge in edges], axis=0)
                return [np.where(winner == index, gradient, 0.0) for index in range(len(edges))]
            case "product":
                factors = [self.through(edge) for edge in edges]
                return [
                    gradient * np.prod([*factors[:index], *factors[index + 1 :]], axis=0)
                    for index in range(len(edges))
                ]
            case "sum" | "transfer" | "input":
                return [gradient for _ in edges]
            case _:
                assert_never(node.kind)

    def back_through(self, edge: Edge, gradient: Array) -> None:
        """Add an edge's data gradient to its source's gradient, and store the gradient of its filters."""
        kind, values, applied = edge_kind(edge.kind), self.values[edge.source], self.applied(edge)
        if kind.learns:
            found = kind.learns.gradient(values, gradient, applied)
            self.parameter_gradients[edge.name] = repeated(found, edge.repeat)
        if self.network.node(edge.source).kind != "input":
            sent = kind.data_gradient(values, gradient, applied)
            before = self.node_gradients.get(edge.source)
            self.node_gradients[edge.source] = sent if before is None else before + sent


def _total(arriving: list[Array]) -> Array:
    total: Array = np.sum(arriving, axis=0)
    return total


def _doubles(arrays: Mapping[str, ArrayLike]) -> dict[str, Array]:
    return {name: np.asarray(array, np.float64) for name, array in arrays.items()}


def _checked_inputs(
    network: Network, geometry: Geometry, inputs: Mapping[str, ArrayLike]
) -> dict[str, Array]:
    names = [node.name for node in network.inputs]
    if set(inputs) != set(names):
        raise ShapeError(f"inputs for {sorted(inputs)}, but the network's inputs are {names}")
    arrays = _doubles(inputs)
    for node in network.inputs:
        wanted = (node.channels, *geometry.input_shapes[node.name])
        if arrays[node.name].shape[1:] != wanted:
            raise ShapeError(
                f"input {node.name!r} has shape {arrays[node.name].shape}; "
                f"(batch, {', '.join(map(str, wanted))}) fits (batch, channel, z, y, x)"
            )
    return arrays


def _checked_parameters(network: Network, parameters: Mapping[str, ArrayLike]) -> dict[str, Array]:
    arrays, repeats = {}, repeats_of(network)
    for name, shape in parameter_shapes(network).items():
        if name not in parameters:
            raise ShapeError(f"parameter {name!r} of shape {shape} is missing")
        arrays[name] = np.asarray(parameters[name], np.float64)
        if arrays[name].shape != shape:
            raise ShapeError(f"parameter {name!r} has shape {arrays[name].shape}, not {shape}")
        arrays[name] = repeated(arrays[name], repeats.get(name))
    return arrays
