"""What a loss asks of a network's outputs, and what it makes of their functions: the one place that knows.

The cross-entropies are of probabilities, but computed from logits, what comes before the logistic or the
softmax: there they are stable for any value, and their gradient is probability - target. So a network is
trained, evaluated and run without the functions that its loss applies itself (`logits_network`), and
those functions are put on its output values last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from znnpy.errors import NetworkError
from znnpy.layers.edges import edge_kind
from znnpy.layers.functions import FUNCTIONS
from znnpy.network.types import Network, Node

# Functions whose values a loss takes as probabilities; the first is the one to choose.
PROBABILITIES: dict[str, tuple[str, ...]] = {
    "binomial_cross_entropy": ("logistic", "forward_logistic"),
    "softmax": ("softmax",),
}


def applies(loss: str, node: Node) -> bool:
    """Whether the loss takes the values of an output node as probabilities, its function as its own."""
    return node.function in PROBABILITIES.get(loss, ())


def logits_network(network: Network, loss: str) -> Network:
    """The network whose output values are what the loss is computed from; itself if nothing changes.

    Output nodes with a function that the loss applies become linear. Raises NetworkError for an
    output whose function is that of another loss: its values would be taken for logits.
    """
    _refuse_others(network, loss)
    outputs = {node.name for node in network.outputs if applies(loss, node)}
    if not outputs:
        return network
    nodes = (replace(n, function="linear") if n.name in outputs else n for n in network.nodes)
    return Network(tuple(nodes), network.edges)


def _refuse_others(network: Network, loss: str) -> None:
    own = PROBABILITIES.get(loss)
    for node in network.outputs:
        meant = [other for other, functions in PROBABILITIES.items() if node.function in functions]
        if own and meant and meant != [loss]:
            raise NetworkError(
                f"output {node.name!r} has the function {node.function}, which fits loss {meant[0]}, "
                f"not loss {loss}: choose that loss, or the function {own[0]} or linear"
            )


def doubtful_outputs(network: Network, loss: str) -> list[str]:
    """One line for each output whose function hinders training by this loss, and what would be right."""
    return [
        f"output {output.name!r} shows the function {node.function}"
        f"{'' if node is output else f' of node {node.name!r}'}, {_trouble(node.function)}; with loss "
        f"{loss} it should be {_right(loss, node, node is output)}"
        for output in network.outputs
        for node in _shown(network, output)
        if not FUNCTIONS[node.function].unbounded and not (node is output and applies(loss, node))
    ]


def _trouble(function: str) -> str:
    if FUNCTIONS[function].passes_on:
        return "which passes gradients on unchanged"
    return "which does not reach every value and does not learn where it is flat"


def _right(loss: str, node: Node, is_output: bool) -> str:
    if loss in PROBABILITIES:
        return f"linear or {PROBABILITIES[loss][0]}" if is_output else "linear"
    fitting = [other for other, known in PROBABILITIES.items() if node.function in known]
    return f"linear; {node.function} goes with loss {fitting[0]}" if fitting else "linear"


def _shown(network: Network, node: Node) -> Iterator[Node]:
    """The transfer nodes whose values an output shows: itself, or those before it but for filters."""
    if node.kind == "transfer":
        yield node
    elif node.kind != "input":
        for edge in network.incoming(node.name):
            if not edge_kind(edge.kind).learns:
                yield from _shown(network, network.node(edge.source))


def refuse_one_class(network: Network, loss: str) -> None:
    """NetworkError for softmax of a single image, which is 1 whatever the network learns."""
    for node in network.outputs:
        if loss == "softmax" and node.images < 2:
            raise NetworkError(
                f"softmax needs an image for each class, at least 2, but output {node.name!r} "
                f"has {node.images}; binomial_cross_entropy is for a single image"
            )
