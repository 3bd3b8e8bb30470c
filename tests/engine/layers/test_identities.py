"""Identities: no copies where other edges make what is summed; values and gradients beside float64."""

from itertools import pairwise

import pytest
from against_reference import check_network
from odd_networks import network, size

from znnpy import Model

K3 = size(3, 3, 3, padding=((1, 1),) * 3)


def block(edges, kind="transfer", images=18, **more):
    """A convolution to node a, these edges from it to node b, and a convolution behind."""
    nodes = [("input", "input", 2), ("a", "transfer", 18, {"function": "relu"})]
    nodes += [("b", kind, images, more), ("out", "transfer", 3)]
    lines = [("conv", "input", "a", size(1, 1, 1))]
    lines += [(edge, "a", "b", K3 if edge == "conv" else {}) for edge in edges]
    return network(nodes, [*lines, ("conv", "b", "out", size(1, 2, 2))])


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ["transfer", "sum"])
@pytest.mark.parametrize(
    "edges",
    [
        ("conv", "identity"),
        ("identity", "conv"),
        ("identity",),
        ("identity", "identity"),
        ("identity", "conv", "identity", "conv", "conv", "identity"),
    ],
)
def test_sums(edges, kind):
    more = {"function": "tanh"} if kind == "transfer" else {}
    check_network(block(edges, kind, **more), (4, 5, 6))


@pytest.mark.parametrize("function", ["gelu", "leaky_relu"])
def test_sums_that_the_way_back_needs_again(function):
    check_network(block(("identity", "conv"), function=function, slope=0.2), (4, 5, 6))


@pytest.mark.parametrize(("kind", "images"), [("concat", 36), ("max", 18)])
def test_other_nodes(kind, images):
    check_network(block(("identity", "identity"), kind, images), (4, 5, 6))


def test_from_an_input():
    nodes = [("input", "input", 18), ("b", "transfer", 18), ("out", "transfer", 2)]
    edges = [("conv", "input", "b", K3), ("identity", "input", "b"), ("conv", "b", "out", K3)]
    check_network(network(nodes, edges), (4, 5, 6))


def residuals(function="relu"):
    """Three residual blocks in a row: images pass on what was passed on before."""
    names = ["a", "b", "c", "d"]
    nodes = [("input", "input", 1)]
    nodes += [(name, "transfer", 17, {"function": function}) for name in names]
    nodes += [("m", "transfer", 17, {"function": "relu"}), ("out", "transfer", 2)]
    edges = [("conv", "input", "a", size(3, 3, 3))]
    for source, target in pairwise(names):
        edges += [("identity", source, target), ("conv", source, target, K3)]
    edges += [("conv", "d", "m", K3), ("identity", "a", "m"), ("conv", "m", "out", size(1, 1, 1))]
    return network(nodes, edges)


@pytest.mark.quick(1)
@pytest.mark.parametrize("function", ["linear", "elu"])
def test_residual_blocks_in_a_row(function):
    check_network(residuals(function), (5, 6, 7))


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    bits = [check_network(residuals(), (9, 8, 7), threads=n) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])


@pytest.mark.quick(1)
@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_copied(training):
    with Model(residuals(), (8, 8, 8), training=training, threads=1) as model:
        kinds = dict(zip(model.task_graph.names, model.task_graph.kinds, strict=True))
        identities = {edge.name for edge in model.network.edges if edge.kind == "identity"}
        assert identities
        assert not [name for name in kinds if name.split()[0] in identities]
