"""Builds the network that a config, a YAML or a .znn file describes, and writes one as a `network` section.

Names in a chain (`layers`): the input node is `input`; every layer makes an edge named after its
operation and counted per operation (`conv1`, `max_filter1`, `conv2`, ...) and a node counted along
the chain (`layer1`, `layer2`, ...), the last one `output`. So the filters of the second convolution
are `parameters["conv2"]`, and the biases of the last layer `parameters["output"]`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from znnpy.config import Config, load_network_section, network_section_from
from znnpy.config.network_section import EdgeSection, LayerSection, NetworkSection, NodeSection
from znnpy.config.unet_section import UnetSection
from znnpy.errors import ConfigError, NetworkError, OutputError
from znnpy.fields import Strict, shown
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import edge_kind
from znnpy.layers.keys import TransferKeys, init_data, init_of
from znnpy.layers.normalization import biased, norm_data, norm_of
from znnpy.layers.types import EdgeKindName
from znnpy.learning.loss import LossKeys
from znnpy.network.check import checked_network
from znnpy.network.objectives import Objectives, logits_network, objectives
from znnpy.network.types import Edge, Network, Node
from znnpy.network.unet import unet
from znnpy.network.znn import read_znn


def load_network(source: str | Path | Mapping[str, Any] | Network) -> Network:
    """Return the network of a YAML file or dict (a whole config or a `network` section), or of a .znn file.

    Raises ConfigError for malformed files and NetworkError for invalid graphs.
    """
    if isinstance(source, Network):
        return checked_network(source.nodes, source.edges)
    if isinstance(source, Mapping):
        return build_network(network_section_from(source))
    if not isinstance(source, str | os.PathLike) or "\0" in os.fspath(source):
        raise ConfigError(
            f"a network is a mapping of keys, a path of a YAML or .znn file, or a Network; found {shown(source)}"
        )
    if Path(source).suffix.lower() == ".znn":
        return read_znn(source)
    return build_network(load_network_section(source))


def build_network(section: NetworkSection, folder: str | Path | None = None) -> Network:
    """Return the checked network of a section; a relative `znn` path starts at `folder`.

    Raises NetworkError that names nodes and edges and, where the section was read from a file, file
    and line.
    """
    if section.znn is not None:
        path = Path(folder, section.znn) if folder is not None else section.znn
        with suppress(OSError):  # a name that no file can have, such as one too long: said below
            if path.is_file():
                return read_znn(path)
        place = section.place("znn") or "network"
        raise ConfigError(f"{place}: network.znn: there is no file {path}")
    if section.layers is not None:
        return _chain(section, section.layers)
    if section.unet is not None:
        return _unet(section, section.unet)
    nodes = [_node(name, node) for name, node in (section.nodes or {}).items()]
    edges = [_edge(name, edge) for name, edge in (section.edges or {}).items()]

    def where(name: str) -> str:
        group = "edges" if name in (section.edges or {}) else "nodes"
        return section.place(group, name)

    return checked_network(nodes, edges, where)


def trained_network(config: Config) -> Network:
    """Return the network that a config trains: its outputs are logits where the loss wants them (`logits_network`)."""
    network = build_network(config.network)
    _refuse_other_outputs(config, [node.name for node in network.outputs])
    with blamed_on_loss(config):
        return logits_network(network, losses_of(config, network))


def _refuse_other_outputs(config: Config, names: list[str]) -> None:
    for name in config.training.outputs:
        if name not in names:
            raise ConfigError(
                f"{config.place('training', 'outputs', name)}: the network has no such output; it has "
                f"{', '.join(names)}"
            )
    if not any(config.training.weight(name) for name in names):
        raise ConfigError(
            f"{config.place('training', 'outputs')}: every weight is 0, so nothing is learned"
        )


@contextmanager
def blamed_on_loss(config: Config) -> Iterator[None]:
    """Turn a NetworkError of the block into a ConfigError at the line of the loss, that of its output if it has one."""
    try:
        yield
    except NetworkError as error:
        output = error.output if isinstance(error, OutputError) else ""
        raise ConfigError(f"{config.loss_place(output)}: {error}") from None


def losses_of(config: Config, network: Network) -> dict[str, LossKeys]:
    """Return the keys of each output's loss, by name."""
    return {node.name: config.training.loss_of(node.name) for node in network.outputs}


def training_losses(config: Config, network: Network) -> Objectives:
    """Return the loss of each output of a config's `trained_network`, by name."""
    return objectives(network, losses_of(config, network), config.training.weight)


def _node(name: str, node: NodeSection) -> Node:
    return Node(
        name,
        node.kind,
        node.channels,
        node.function,
        _slope(node.function, node.slope),
        biased(node.bias, node.norm) and node.kind == "transfer",
        init_of(node.init),
        node.amplitude,
        node.gain,
        norm_of(node.norm),
        learn=node.learn,
        tied=node.tied,
    )


def _slope(function: str, slope: float | None) -> float:
    return FUNCTIONS[function].slope if slope is None else slope


def _edge(name: str, section: EdgeSection) -> Edge:
    return _operation(name, section.kind, section.source, section.target, section)


def _operation(name: str, kind: EdgeKindName, source: str, target: str, keys: Strict) -> Edge:
    return Edge(name, kind, source, target, **edge_kind(kind).numbers(keys))


def _chain(section: NetworkSection, layers: tuple[LayerSection, ...]) -> Network:
    nodes = [Node("input", "input", section.input or 1, bias=False)]
    edges: list[Edge] = []
    line_of = {"input": section.place("input")}
    counts: Counter[str] = Counter()
    for index, layer in enumerate(layers):
        counts[layer.kind] += 1
        edge = f"{layer.kind}{counts[layer.kind]}"
        node = "output" if index == len(layers) - 1 else f"layer{index + 1}"
        edges.append(_operation(edge, layer.kind, nodes[-1].name, node, layer.operation))
        channels = edge_kind(layer.kind).brings(edges[-1], nodes[-1].channels, nodes[-1].channels)
        nodes.append(_chain_node(node, layer.operation, max(channels, 1)))
        line_of[edge] = line_of[node] = section.place("layers", index)
    return checked_network(nodes, edges, lambda name: line_of.get(name, ""))


def _unet(section: NetworkSection, keys: UnetSection) -> Network:
    place = section.place("unet")
    try:
        nodes, edges = unet(keys)
    except NetworkError as error:
        raise NetworkError(f"{place}: network.unet: {error}" if place else str(error)) from None
    return checked_network(nodes, edges, lambda _: place)


def _chain_node(name: str, keys: Strict, channels: int) -> Node:
    if not isinstance(keys, TransferKeys):
        return Node(name, "sum", channels, bias=False)
    slope = _slope(keys.function, keys.slope)
    init = init_of(keys.bias_init)
    bias, norm = biased(keys.bias, keys.norm), norm_of(keys.norm)
    shape = (keys.amplitude, keys.gain, norm)
    # A layer is an edge and its node: what it says of learning is for both.
    learn = getattr(keys, "learn", True)
    return Node(
        name,
        "transfer",
        keys.channels,
        keys.function,
        slope,
        bias,
        init,
        *shape,
        learn=learn,
        tied=keys.tied,
    )


def self_contained(config: Config) -> Config:
    """Return the config with nodes and edges in place of its .znn file, if it names one.

    A run saves this form, and two configs are compared in it: the file may change or go away.
    """
    if config.network.znn is None:
        return config
    full = network_to_section(build_network(config.network))
    network = full.model_copy(update={"name": config.network.name})
    network.came_from(config.network.origin)
    return config.model_copy(update={"network": network})


def network_to_section(network: Network) -> NetworkSection:
    """Return a network as a section of nodes and edges, from which `build_network` makes the same again."""
    data = {
        "nodes": {node.name: _node_data(node) for node in network.nodes},
        "edges": {edge.name: _edge_data(edge) for edge in network.edges},
    }
    return network_section_from(data)


def _node_data(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": node.kind, "channels": node.channels}
    if node.kind == "transfer":
        data |= {"function": node.function, "bias": node.bias, "init": init_data(node.init)}
    if node.norm is not None:
        data["norm"] = norm_data(node.norm)
    if not node.learn:
        data["learn"] = False
    return data | {key: getattr(node, key) for key in FUNCTIONS[node.function].shaped}


def _edge_data(edge: Edge) -> dict[str, Any]:
    ends = {"kind": edge.kind, "from": edge.source, "to": edge.target}
    return {**ends, **edge_kind(edge.kind).data(edge)}
