"""Networks of convolutions in a row, and plans for them."""

from itertools import pairwise

from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Network, Node

K3, ONE = (3, 3, 3), (1, 1, 1)
PASSES = ("forward", "gradient", "weight")


def two_layers(channels, size, sparsity=ONE):
    """Two convolutions, so that the second passes a gradient back to the first."""
    nodes = tuple(
        Node(name, "transfer" if index else "input", count, function="linear")
        for index, (name, count) in enumerate(zip(("input", "a", "out"), channels, strict=True))
    )
    edges = (
        Edge("c1", "conv", "input", "a", size=size),
        Edge("c2", "conv", "a", "out", size=size, sparsity=sparsity),
    )
    return Network(nodes, edges)


def winograd_chain(
    images, sparsity=ONE, functions=("relu", "leaky_relu", "linear"), size=K3, padding=BARE
):
    """Convolutions in a row; the first one's source is an input."""
    named = zip((*"abcdefgh"[: len(images) - 1], "out"), images, functions, strict=True)
    nodes = [Node("input", "input", 1)]
    nodes += [Node(name, "transfer", count, function, slope=0.2) for name, count, function in named]
    names = [node.name for node in nodes]
    ends = pairwise(names)
    edges = [
        Edge(f"c{n}", "conv", *end, size=size, sparsity=sparsity, padding=padding)
        if n
        else Edge("c0", "conv", *end, size=size)
        for n, end in enumerate(ends)
    ]
    return Network(tuple(nodes), tuple(edges))


def winograd_plan(net, passes=PASSES, march=None):
    """Passes by winograd, of all layers but those of inputs, by a march where one is named."""
    direct = dict.fromkeys(("forward", "gradient", "weight"), "direct")
    learned = {edge.name: edge.source != "input" for edge in net.edges if edge.kind == "conv"}
    chosen = direct | dict.fromkeys(passes, "winograd")
    if march:
        chosen |= {f"{it}_march": march for it in passes}
    return {name: chosen if found else direct for name, found in learned.items()}
