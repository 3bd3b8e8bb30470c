"""Matches losses with a network's outputs: which activation functions fit, and which the loss applies itself.

The cross-entropies take probabilities but are computed from logits, the values before the logistic or softmax:
there they are stable for any value, and their gradient is probability - target. So a network is trained, evaluated
and run without the functions that its loss applies itself (`logits_network`); they are applied to its output values
at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from znnpy.errors import OutputError
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import edge_kind
from znnpy.learning.loss import LossKeys, Objective
from znnpy.learning.losses import LOSSES, Losses, loss_keys, loss_of
from znnpy.learning.readings import Reading
from znnpy.network.types import Network, Node, Triple

Objectives = dict[str, Objective]
"""The loss of each output node, by name."""


def objectives(
    network: Network, loss: Losses, factor: Callable[[str], float] = lambda output: 1.0
) -> Objectives:
    """Return the loss at each output of a network, or of its `logits_network`, with its factor in the sum.

    Raises OutputError for an output with an activation function that belongs to other losses: its values would
    be taken for logits; and for one that a mapping of losses does not name.
    """
    return {
        node.name: Objective(loss_of(keys), keys, _reading(node, keys), factor(node.name))
        for node in network.outputs
        for keys in [_keys_at(loss, node.name)]
    }


def _keys_at(loss: Losses, output: str) -> LossKeys:
    if not isinstance(loss, Mapping):
        return loss_keys(loss)
    if output not in loss:
        raise OutputError(
            f"output {output!r} has no loss; there are those of {sorted(loss)}", output
        )
    return loss[output]


def total_factor(losses: Objectives) -> float:
    """Return the sum of the factors, by which a weighted sum over outputs is divided to make a mean; 1 if it is 0."""
    return sum(objective.factor for objective in losses.values()) or 1.0


def _reading(node: Node, keys: LossKeys) -> Reading:
    readings = list(loss_of(keys).readings)
    shown = node.shown or node.function
    for reading in readings:
        if shown in reading.functions:
            return reading
    own = [reading.functions[0] for reading in readings if reading.functions]
    what = f"output {node.name!r} has the function {shown}"
    if len(own) > 1:
        raise OutputError(
            f"{what}, but loss {keys.kind} needs one that says what it is: {_or(own)}", node.name
        )
    if own and (others := _meant_by(shown)):
        raise OutputError(
            f"{what}, which fits loss {others[0]}, not loss {keys.kind}: choose that loss, or the "
            f"function {own[0]} or linear",
            node.name,
        )
    return readings[0]


def _or(words: Sequence[str]) -> str:
    return " or ".join(words)


def _meant_by(function: str) -> list[str]:
    """Return the names of the losses that take values with this function as probabilities."""
    return [
        loss.name
        for loss in LOSSES.values()
        if any(function in reading.functions for reading in loss.readings)
    ]


def logits_network(network: Network, loss: Losses) -> Network:
    """Return the network whose outputs are what the loss is computed from; itself if nothing changes.

    Output nodes with a function that the loss applies itself become linear and keep it as `shown`.
    Raises NetworkError as `objectives` does.
    """
    found = objectives(network, loss)
    applied = {
        node.name for node in network.outputs if node.function in found[node.name].reading.functions
    }
    if not applied:
        return network
    nodes = (
        replace(n, function="linear", shown=n.function) if n.name in applied else n
        for n in network.nodes
    )
    return Network(tuple(nodes), network.edges)


def doubtful_outputs(network: Network, loss: Losses) -> list[str]:
    """Return a warning for each output whose activation function hinders training by its loss, with what fits."""
    found = objectives(network, loss)
    return [
        f"output {output.name!r} shows the function {node.function}"
        f"{'' if node is output else f' of node {node.name!r}'}, {_trouble(node.function)}; with loss "
        f"{objective.loss.name} it should be {_right(objective.reading, node, node is output)}"
        for output in network.outputs
        for objective in [found[output.name]]
        for node in _shown(network, output)
        if not FUNCTIONS[node.function].unbounded
        and not (node is output and node.function in objective.reading.functions)
    ]


def _trouble(function: str) -> str:
    if FUNCTIONS[function].passes_on:
        return "which passes gradients on unchanged"
    return "which does not reach every value and does not learn where it is flat"


def _right(reading: Reading, node: Node, is_output: bool) -> str:
    if reading.functions:
        return f"linear or {reading.functions[0]}" if is_output else "linear"
    fitting = _meant_by(node.function)
    return f"linear; {node.function} goes with loss {fitting[0]}" if fitting else "linear"


def _shown(network: Network, node: Node) -> Iterator[Node]:
    """Yield the transfer nodes whose values an output shows: itself, or those before it without filters between."""
    if node.kind == "transfer":
        yield node
    elif node.kind != "input":
        for edge in network.incoming(node.name):
            if not edge_kind(edge.kind).learns:
                yield from _shown(network, network.node(edge.source))


def refuse_apart(
    losses: Objectives, strides: Mapping[str, Triple], shapes: Mapping[str, Triple]
) -> None:
    """Raise OutputError if a loss compares neighbouring voxels that a patch does not have or that lie apart.

    `strides`, `shapes` by output: its stride in input voxels and the shape of its patch, (z, y, x).
    """
    for name, objective in losses.items():
        loss, shape = objective.loss, shapes[name]
        neighbours = loss.neighbours(objective.keys)
        if neighbours and strides[name] != (1, 1, 1):
            apart = " x ".join(map(str, strides[name]))
            raise OutputError(
                f"{loss.name} joins neighbours, but voxels of output {name!r} lie {apart} apart",
                name,
            )
        for offset in neighbours:
            if any(abs(step) >= size for step, size in zip(offset, shape, strict=True)):
                raise OutputError(
                    f"{loss.name} joins voxels at offset {list(offset)}, but a patch of output {name!r} has "
                    f"{' x '.join(map(str, shape))} voxels (z, y, x), no two of which lie so far apart",
                    name,
                )


def refuse_untrainable(network: Network, loss: Losses) -> None:
    """Raise OutputError for outputs whose number of channels does not suit their loss.

    One channel for classes, for instance: its probability is 1 whatever the network learns.
    """
    found = objectives(network, loss)
    for node in network.outputs:
        objective = found[node.name]
        if why := objective.loss.refused(objective.keys, objective.reading, node.channels):
            raise OutputError(
                f"{objective.loss.name} {why}, but output {node.name!r} has {node.channels} channels",
                node.name,
            )
        if objective.reading.whole_voxels and node.channels < 2:
            raise OutputError(
                f"{objective.loss.name} needs a channel for each class, at least 2, but output "
                f"{node.name!r} has {node.channels}; binomial_cross_entropy is for a single channel",
                node.name,
            )
