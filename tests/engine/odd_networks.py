"""Networks with corners, each with everything that it needs, and plans that mix algorithms."""

import numpy as np
import random_networks as rn

from znnpy.geometry import fit
from znnpy.network.types import Edge, Network, Node

LANE_CROSSING = 21  # images: more than a block of any CPU, and no multiple of one


def network(nodes, edges):
    """`name kind images function` and `kind source target`, with what else an edge has."""
    made = [
        Node(name, kind, images, **more)
        for name, kind, images, more in ((*node, {})[:4] for node in nodes)
    ]
    lines = [
        Edge(f"e{index}", kind, source, target, **more)
        for index, (kind, source, target, more) in enumerate((*edge, {})[:4] for edge in edges)
    ]
    return Network(tuple(made), tuple(lines))


def size(*triple, **more):
    return {"size": triple, **more}


NETWORKS = {
    "one conv": (
        network([("x", "input", 1), ("y", "transfer", 1)], [("conv", "x", "y", size(3, 3, 3))]),
        (1, 1, 1),
    ),
    "flat": (
        network(
            [("x", "input", 2), ("a", "transfer", 17, {"function": "relu"}), ("b", "sum", 17),
             ("y", "transfer", 3)],
            [("conv", "x", "a", size(1, 3, 3)),
             ("max_filter", "a", "b", size(1, 2, 2, sparsens=(1, 2, 2))),
             ("conv", "b", "y", size(1, 4, 3))],
        ),
        (1, 9, 7),
    ),
    "thin, cut along y": (
        network(
            [("x", "input", 3), ("a", "transfer", 18, {"function": "tanh"}), ("b", "sum", 18),
             ("c", "transfer", 5), ("d", "sum", 5), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 3, 3)), ("crop", "a", "b", {"offset": (0, 1, 2)}),
             ("conv", "b", "c", size(2, 2, 3, stride=(1, 2, 3))),
             ("max_pool", "c", "d", size(1, 3, 2, stride=(1, 2, 1))),
             ("conv", "d", "y", size(1, 2, 2))],
        ),
        (2, 10, 5),
    ),
    "an input that feeds three kinds of edge": (
        network(
            [("x", "input", 1), ("m", "sum", 1), ("a", "transfer", 4),
             ("k", "concat", 6), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 2, 2)), ("max_filter", "x", "m", size(2, 2, 2)),
             ("crop", "m", "k"), ("crop", "a", "k"), ("max_pool", "x", "k", size(2, 2, 2)),
             ("conv", "k", "y", size(2, 1, 3))],
        ),
        (4, 3, 5),
    ),
    "two edges between the same nodes": (
        network(
            [("x", "input", 2), ("a", "transfer", 19, {"function": "elu"}), ("b", "sum", 19),
             ("y", "transfer", 2)],
            [("conv", "x", "a", size(3, 3, 3)),
             ("conv", "x", "a", size(2, 2, 2, sparsity=(2, 2, 2))),
             ("max_filter", "a", "b", size(3, 1, 2)), ("max_filter", "a", "b", size(3, 1, 2)),
             ("conv", "b", "y", size(2, 2, 2)), ("conv", "b", "y", size(2, 2, 2)),
             ("conv", "b", "y", size(2, 2, 2))],
        ),
        (3, 4, 5),
    ),
    "concats that cross lanes, one of them twice the same node": (
        network(
            [("x", "input", 2), ("a", "transfer", LANE_CROSSING), ("b", "transfer", 13),
             ("k", "concat", 2 * LANE_CROSSING + 15), ("y", "concat", 2 * LANE_CROSSING + 28)],
            [("conv", "x", "a", size(2, 2, 2)), ("conv", "x", "b", size(2, 2, 2)),
             ("crop", "a", "k"), ("crop", "b", "k"), ("crop", "a", "k"),
             ("max_pool", "x", "k", size(2, 2, 2)),
             ("max_filter", "k", "y", size(1, 2, 1)), ("max_filter", "b", "y", size(1, 2, 1))],
        ),
        (3, 2, 4),
    ),
    "more than two blocks of images": (
        network(
            [("x", "input", 33), ("a", "transfer", 49, {"function": "logistic"}),
             ("y", "transfer", 37, {"function": "softmax"})],
            [("conv", "x", "a", size(2, 1, 2)), ("conv", "a", "y", size(1, 2, 2))],
        ),
        (3, 3, 4),
    ),
    "strides wider than filters": (
        network(
            [("x", "input", 2), ("a", "transfer", 6, {"function": "tanh"}), ("b", "transfer", 7),
             ("y", "transfer", 2, {"bias": False})],
            [("conv", "x", "a", size(2, 1, 2, stride=(3, 2, 2))),
             ("conv", "a", "b", size(1, 2, 3, stride=(2, 3, 1), sparsity=(1, 2, 3))),
             ("conv", "b", "y", size(2, 2, 1, stride=(1, 2, 2)))],
        ),
        (2, 3, 3),
    ),
    "outputs of different size that share a node": (
        network(
            [("x", "input", 1), ("a", "transfer", 5, {"function": "relu"}),
             ("y", "transfer", 2), ("z", "transfer", 3), ("w", "sum", 5)],
            [("conv", "x", "a", size(3, 2, 3)), ("conv", "a", "y", size(2, 2, 2)),
             ("conv", "a", "z", size(4, 1, 3)), ("crop", "a", "w", {"offset": (1, 0, 2)})],
        ),
        {"y": (4, 4, 5), "z": (2, 5, 4), "w": (3, 5, 2)},
    ),
    "outgoing convs on one and on several grids": (
        network(
            [("x", "input", 1), ("a", "transfer", 5, {"function": "tanh"}), ("b", "transfer", 4),
             ("c", "transfer", 4), ("d", "sum", 5), ("y", "transfer", 2)],
            [("conv", "x", "a", size(2, 2, 2)), ("conv", "a", "b", size(3, 3, 3)),
             ("conv", "a", "c", size(1, 3, 1)), ("crop", "a", "d", {"offset": (1, 1, 1)}),
             ("conv", "b", "y", size(3, 1, 3)), ("conv", "c", "y", size(5, 1, 5)),
             ("conv", "d", "y", size(3, 1, 3))],
        ),
        (3, 6, 3),
    ),
}  # fmt: skip


def with_data(name, batch):
    net, output = NETWORKS[name]
    geometry = fit(net, output)
    arrays = [
        make(net, geometry, 4, batch)
        for make in (rn.random_inputs, rn.random_targets, rn.random_weights)
    ]
    return net, output, geometry, rn.random_parameters(net, 4), *arrays


def mixed_plan(net, seed):
    """Another algorithm for every pass of every layer."""
    rng = np.random.default_rng(seed)
    plan = {}
    for edge in net.edges:
        if edge.kind == "conv":
            drawn = rng.choice(["direct", "fft"], 3).tolist()
            drawn = ["direct"] * 3 if max(edge.stride) > 1 else drawn
            plan[edge.name] = dict(zip(("forward", "gradient", "weight"), drawn, strict=True))
    return plan
