"""The `network` section of a config to a Network.

Names in a chain (`layers`): the input node is `input`; every layer makes an edge named after its
operation and counted per operation (`conv1`, `max_filter1`, `conv2`, ...) and a node counted along
the chain (`layer1`, `layer2`, ...), the last one `output`. So the filters of the second convolution
are `parameters["conv2"]`, and the biases of the last layer `parameters["output"]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from znnpy.config import Config, load_network_section, network_section_from
from znnpy.config.network_section import (
    ConvEdge,
    ConvLayer,
    CropEdge,
    CropLayer,
    DropoutEdge,
    DropoutLayer,
    InitSection,
    LayerSection,
    MaxFilterEdge,
    MaxFilterLayer,
    MaxPoolEdge,
    MaxPoolLayer,
    NetworkSection,
    NodeSection,
)
from znnpy.errors import ConfigError, NetworkError
from znnpy.network.check import checked_network
from znnpy.network.outputs import logits_network
from znnpy.network.types import Edge, Init, Network, Node
from znnpy.network.znn import read_znn

AnyEdge = ConvEdge | MaxFilterEdge | MaxPoolEdge | DropoutEdge | CropEdge


def load_network(source: str | Path | Mapping[str, Any] | Network) -> Network:
    """The network of a YAML file or dict (a whole config or a `network` section), or a .znn file.

    Raises ConfigError for malformed files and NetworkError for graphs that are none.
    """
    if isinstance(source, Network):
        return checked_network(source.nodes, source.edges)
    if isinstance(source, Mapping):
        return build_network(network_section_from(source))
    if Path(source).suffix.lower() == ".znn":
        return read_znn(source)
    return build_network(load_network_section(source))


def build_network(section: NetworkSection, folder: str | Path | None = None) -> Network:
    """Build and check the network of a section; `folder` is where a relative `znn` path starts.

    Raises NetworkError that names nodes and edges and, where the section was read from a file, file
    and line.
    """
    if section.znn is not None:
        path = Path(folder, section.znn) if folder is not None else section.znn
        if not path.is_file():
            place = section.place("znn") or "network"
            raise ConfigError(f"{place}: network.znn: there is no file {path}")
        return read_znn(path)
    if section.layers is not None:
        return _chain(section, section.layers)
    nodes = [_node(name, node) for name, node in (section.nodes or {}).items()]
    edges = [_edge(name, edge) for name, edge in (section.edges or {}).items()]

    def where(name: str) -> str:
        group = "edges" if name in (section.edges or {}) else "nodes"
        return section.place(group, name)

    return checked_network(nodes, edges, where)


def trained_network(config: Config) -> Network:
    """The network of a config as its loss takes it: `logits_network` of the one that is written."""
    return logits_network(build_network(config.network), config.training.loss)


def _node(name: str, node: NodeSection) -> Node:
    return Node(
        name,
        node.kind,
        node.images,
        node.function,
        _slope(node.function, node.slope),
        node.bias and node.kind == "transfer",
        _init(node.init),
        node.amplitude,
        node.gain,
    )


def _slope(function: str, slope: float | None) -> float:
    if slope is not None:
        return slope
    return 1.0 if function == "elu" else 0.01


def _init(init: InitSection) -> Init:
    kind = "he" if init.kind == "msra" else init.kind
    return Init(kind, init.low, init.high, init.mean, init.std, init.value)


def _edge(name: str, edge: AnyEdge) -> Edge:
    return _operation(name, edge.source, edge.target, edge)


def _operation(
    name: str,
    source: str,
    target: str,
    given: ConvEdge | ConvLayer | MaxFilterLayer | MaxPoolLayer | DropoutLayer | CropLayer,
) -> Edge:
    match given:
        case ConvEdge() | ConvLayer():
            return Edge(
                name,
                "conv",
                source,
                target,
                size=given.size,
                stride=given.stride,
                sparsity=given.sparsity,
                sparsens=given.sparsens,
                init=_init(given.init),
                repeat=given.repeat,
            )
        case MaxFilterLayer():
            sparsens = given.stride or given.size
            return Edge(name, "max_filter", source, target, size=given.size, sparsens=sparsens)
        case MaxPoolLayer():
            stride = given.stride or given.size
            return Edge(name, "max_pool", source, target, size=given.size, stride=stride)
        case DropoutLayer():
            return Edge(name, "dropout", source, target, keep=given.keep)
        case CropLayer():
            return Edge(name, "crop", source, target, offset=given.offset)


def _chain(section: NetworkSection, layers: tuple[LayerSection, ...]) -> Network:
    nodes = [Node("input", "input", section.input or 1, bias=False)]
    edges: list[Edge] = []
    line_of = {"input": section.place("input")}
    counts: Counter[str] = Counter()
    for index, layer in enumerate(layers):
        counts[layer.kind] += 1
        edge = f"{layer.kind}{counts[layer.kind]}"
        node = "output" if index == len(layers) - 1 else f"layer{index + 1}"
        given = getattr(layer, layer.kind)
        edges.append(_operation(edge, nodes[-1].name, node, given))
        nodes.append(_chain_node(node, given, nodes[-1].images))
        line_of[edge] = line_of[node] = section.place("layers", index)
    return checked_network(nodes, edges, lambda name: line_of.get(name, ""))


def _chain_node(name: str, layer: Any, images: int) -> Node:
    if not isinstance(layer, ConvLayer):
        return Node(name, "sum", images, bias=False)
    slope = _slope(layer.function, layer.slope)
    init = _init(layer.bias_init)
    shape = (layer.amplitude, layer.gain)
    return Node(name, "transfer", layer.images, layer.function, slope, layer.bias, init, *shape)


def self_contained(config: Config) -> Config:
    """The config with the content of its .znn file, if any, as nodes and edges.

    What a run saves, and what two configs are compared by: the file may change or go away.
    """
    if config.network.znn is None:
        return config
    full = network_to_section(build_network(config.network))
    network = full.model_copy(update={"name": config.network.name})
    return config.model_copy(update={"network": network})


def network_to_section(network: Network) -> NetworkSection:
    """The full form (nodes and edges) of a network: what a run saves so that it needs no .znn file."""
    data = {
        "nodes": {node.name: _node_data(node) for node in network.nodes},
        "edges": {edge.name: _edge_data(edge) for edge in network.edges},
    }
    return network_section_from(data)


def _init_data(init: Init) -> dict[str, Any]:
    keys = {"uniform": ("low", "high"), "normal": ("mean", "std"), "constant": ("value",)}
    return {"kind": init.kind, **{key: getattr(init, key) for key in keys.get(init.kind, ())}}


def _node_data(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": node.kind, "images": node.images}
    if node.kind == "transfer":
        data |= {"function": node.function, "bias": node.bias, "init": _init_data(node.init)}
        data["slope"] = node.slope
    if node.function == "tanh":
        data |= {"amplitude": node.amplitude, "gain": node.gain}
    return data


def _edge_data(edge: Edge) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": edge.kind, "from": edge.source, "to": edge.target}
    match edge.kind:
        case "conv":
            sizes = {"size": edge.size, "stride": edge.stride, "sparsity": edge.sparsity}
            sizes |= {"sparsens": edge.sparsens, "repeat": edge.repeat}
            return data | sizes | {"init": _init_data(edge.init)}
        case "max_filter":
            return data | {"size": edge.size, "stride": edge.sparsens}
        case "max_pool":
            return data | {"size": edge.size, "stride": edge.stride}
        case "dropout":
            return data | {"keep": edge.keep}
        case "crop":
            return data | {"offset": edge.offset}
    raise NetworkError(f"edge '{edge.name}': {edge.kind} cannot be written")
