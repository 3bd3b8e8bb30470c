"""Describes a network and its parameters as a `Computation`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from znnpy.errors import ExportError
from znnpy.geometry.receptive_field import lattice_of
from znnpy.interop.export.computation import Computation, Operation, Tensor
from znnpy.interop.export.edges import EDGES
from znnpy.interop.export.identifiers import Identifiers
from znnpy.layers.activation_functions import FUNCTIONS, FunctionName
from znnpy.layers.edges import edge_kind
from znnpy.network.parameters import repeated, repeats_of
from znnpy.network.types import Edge, Network, Node

SAID = frozenset(
    {"linear", "relu", "leaky_relu", "prelu", "elu", "tanh", "logistic", "softmax", "forward_logistic", "softplus",
     "soft_sign", "silu", "hard_swish", "gelu", "gelu_tanh"}
)  # fmt: skip
"""Functions that every writer knows."""
COMBINED = {
    "input": "", "transfer": "add", "sum": "add", "product": "multiply", "max": "maximum", "concat": "concat",
}  # fmt: skip
"""What becomes of several edges into a node, by its kind."""
NORMS = {
    "batch": "batch_norm", "instance": "instance_norm", "group": "group_norm", "layer": "group_norm",
    "channel": "channel_norm", "length": "length_norm", "response": "response_norm",
}  # fmt: skip
WORDS = {
    "border": ("zeros", "replicate", "reflect"),
    "mode": ("nearest", "nearest_exact", "linear", "corners"),
}
_NORM_TENSORS = {
    "scale": "weight", "shift": "bias", "running_mean": "running_mean", "running_variance": "running_var",
}  # fmt: skip

_FUNCTION_TENSORS = {"slopes": "weight"}


def described(
    network: Network, parameters: Mapping[str, Tensor], shown: Mapping[str, FunctionName]
) -> Computation:
    """Return what a network computes when it predicts, with these parameters.

    `shown`: by output node, the function that its loss applies to its values. Raises ExportError that names the node
    or edge whose kind or function no other program has.
    """
    _refuse_unknown(network)
    repeats = repeats_of(network)  # as the engine makes them equal, whatever a file holds
    used = {name: repeated(array, repeats.get(name)) for name, array in parameters.items()}
    return _Describing(network, used, shown).whole()


def _refuse_unknown(network: Network) -> None:
    """Raise ExportError for whatever is not said here, as of plug-ins: nothing is taken for something else."""
    said: list[tuple[str, str, str, Collection[str]]] = []
    for edge in network.edges:
        place = f"edge {edge.name!r}"
        said.append((place, "kind", edge.kind, EDGES.keys()))
        said += [(place, key, getattr(edge, key), known) for key, known in WORDS.items()]
    for node in network.nodes:
        place = f"node {node.name!r}"
        said.append((place, "kind", node.kind, COMBINED.keys()))
        said.append((place, "function", node.function, SAID))
        if node.norm is not None:
            said.append((place, "norm", node.norm.kind, NORMS.keys()))
    for place, key, word, known in said:
        if word not in known:
            raise ExportError(
                f"{place}: {key} {word} is not one that other programs have; those that can be exported are "
                f"{', '.join(sorted(known))}"
            )


class _Describing:
    """One description in progress."""

    def __init__(
        self,
        network: Network,
        parameters: Mapping[str, Tensor],
        shown: Mapping[str, FunctionName],
    ) -> None:
        self._network, self._parameters, self._shown = network, parameters, shown
        self._dilations = lattice_of(network).dilations
        self._names = Identifiers()
        self._nodes = self._names.take_all(node.name for node in network.nodes)
        self._edges = self._names.take_all(edge.name for edge in network.edges)
        self._values: dict[str, str] = {}
        self._operations: list[Operation] = []
        self._tensors: dict[str, Tensor] = {}
        self._fixed: list[str] = []

    def whole(self) -> Computation:
        """Return the computation of all nodes."""
        for node in self._network.nodes:
            own = self._nodes[node.name]
            self._values[node.name] = own if node.kind == "input" else self._made(node, own)
        outputs = {self._values[node.name]: node.channels for node in self._network.outputs}
        return Computation(
            {self._nodes[node.name]: node.channels for node in self._network.inputs},
            outputs,
            tuple(self._operations),
            frozenset(self._values.values()),
            self._tensors,
            tuple(self._fixed),
        )

    def _made(self, node: Node, own: str) -> str:
        """Return the value of a node, which bears the node's name if anything is computed for it."""
        before = len(self._operations)
        value = self._combined(node)
        if node.kind == "transfer":
            value = self._normed(node, value)
            value = self._function(node, node.function, own, value)
        if node.name in self._shown:
            value = self._function(node, self._shown[node.name], f"{own}_shown", value)
        # Two outputs, or an input and an output, are not one value.
        if len(self._operations) == before and node in self._network.outputs:
            name = self._names.take(f"{own}_same")
            value = self._add("identity", name, (value,), (node.channels, node.channels))
        if len(self._operations) == before:
            return value
        self._operations[-1] = replace(self._operations[-1], output=own)
        return own

    def _combined(self, node: Node) -> str:
        """Return what arrives at a node, combined, and the bias with it."""
        incoming = self._network.incoming(node.name)
        bias = self._parameters[node.name] if node.kind == "transfer" and node.bias else None
        # Filters take the bias up, of the first edge that has some.
        bearer = next((edge.name for edge in incoming if edge_kind(edge.kind).learns), None)
        arriving = [self._through(edge, bias if edge.name == bearer else None) for edge in incoming]
        channels = node.channels, node.channels
        value = arriving[0]
        if len(arriving) > 1:
            kind = COMBINED[node.kind]
            name = self._names.take(f"{self._nodes[node.name]}_{kind}")
            value = self._add(kind, name, tuple(arriving), channels)
        if bias is not None and bearer is None:
            name = self._names.take(f"{self._nodes[node.name]}_bias")
            value = self._add("bias", name, (value,), channels, {}, {"bias": bias})
            self._fix(node.learn, name, "bias")
        return value

    def _through(self, edge: Edge, bias: Tensor | None) -> str:
        """Return the value that an edge brings."""
        source, target = (self._network.node(name) for name in (edge.source, edge.target))
        value, own = self._values[edge.source], self._edges[edge.name]
        kept = source.channels, source.channels
        filters = self._parameters.get(edge.name)
        steps = EDGES[edge.kind](edge, self._dilations[edge.name], filters)
        bearer = next((step for step in steps if step.tensors), steps[-1] if steps else None)
        for step in steps:
            tensors = dict(step.tensors)
            channels = (source.channels, target.channels) if tensors else kept
            if step.kind == "depth_to_space":
                channels = kept[0], kept[0] // prod(step.attributes["factor"])
            if tensors and bias is not None:
                tensors["bias"] = bias
            name = own if step is bearer else self._names.take(f"{own}_{step.kind}")
            value = self._add(step.kind, name, (value,), channels, step.attributes, tensors)
            self._fix(edge.learn, name, *step.tensors)
            self._fix(target.learn, name, *(tensors.keys() - step.tensors.keys()))
            kept = channels[1], channels[1]
        return value

    def _normed(self, node: Node, value: str) -> str:
        norm = node.norm
        if norm is None:
            return value
        tensors = {
            theirs: self._parameters[f"{node.name}.{ours}"]
            for ours, theirs in _NORM_TENSORS.items()
            if f"{node.name}.{ours}" in self._parameters
        }
        if norm.running:
            tensors["num_batches_tracked"] = np.array(0, np.int64)
        attributes = {
            "epsilon": float(norm.epsilon),
            "momentum": float(norm.momentum),
            "groups": norm.parts(node.channels),
        }
        name = self._names.take(f"{self._nodes[node.name]}_norm")
        channels = node.channels, node.channels
        self._fix(node.learn, name, *(tensors.keys() & {"weight", "bias"}))
        return self._add(NORMS[norm.kind], name, (value,), channels, attributes, tensors)

    def _function(self, node: Node, function: FunctionName, own: str, value: str) -> str:
        if function == "linear":
            return value
        entry = FUNCTIONS[function]
        numbers = {"slope": node.slope, "amplitude": node.amplitude, "gain": node.gain}
        attributes: dict[str, Any] = {"function": function, "tied": node.tied}
        attributes |= {key: float(numbers[key]) for key in entry.shaped if key in numbers}
        held = {what: self._parameters[f"{node.name}.{what}"] for what in entry.held}
        tensors = {_FUNCTION_TENSORS[what]: array for what, array in held.items()}
        channels = node.channels, node.channels
        name = self._names.take(f"{own}_{function}")
        self._fix(node.learn, name, *tensors)
        return self._add("function", name, (value,), channels, attributes, tensors)

    def _fix(self, learn: bool, name: str, *tensors: str) -> None:
        """Remember which tensors of an operation do not learn."""
        self._fixed += [] if learn else [f"{name}.{what}" for what in sorted(tensors)]

    def _add(
        self,
        kind: str,
        name: str,
        inputs: tuple[str, ...],
        channels: tuple[int, int],
        attributes: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> str:
        """Add an operation by the name that was taken for it, and return the value that it makes."""
        made = self._names.take(f"{name}_value")
        keys = {what: f"{name}.{what}" for what in tensors or {}}
        self._tensors |= {keys[what]: tensor for what, tensor in (tensors or {}).items()}
        self._operations.append(
            Operation(name, kind, inputs, made, channels, attributes or {}, keys)
        )
        return made
