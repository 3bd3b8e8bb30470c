"""Product nodes, mean and pad edges: values and gradients beside float64, which finite differences check."""

from __future__ import annotations

import numpy as np
import pytest
from against_reference import check_network
from finite_differences import loss_by_reference
from odd_networks import network, size

from znnpy import load_network, reference
from znnpy.errors import NetworkError
from znnpy.geometry import fit
from znnpy.network import parameter_shapes
from znnpy.network.patch_dependence import patch_dependence

K3 = size(3, 3, 3, padding=((1, 1),) * 3)


def gated(channels: int = 18, factors: int = 2, kind: str = "identity", **more: object):
    """Convolutions of one node multiplied with each other and with the node itself."""
    nodes = [("input", "input", 2), ("a", "transfer", channels, {"function": "tanh"})]
    edges = [("conv", "input", "a", K3), (kind, "a", "p", more)]
    for index in range(factors - 1):
        nodes.append((f"g{index}", "transfer", channels, {"function": "logistic"}))
        edges += [("conv", "a", f"g{index}", K3), (kind, f"g{index}", "p", more)]
    nodes += [("p", "product", channels), ("out", "transfer", 3)]
    return network(nodes, [*edges, ("conv", "p", "out", size(1, 2, 2))])


def excited(channels: int = 19):
    """Squeeze and excitation: means through two layers, and a gate by them."""
    return network(
        [("input", "input", 1), ("a", "transfer", channels, {"function": "elu"}),
         ("m", "sum", channels), ("h", "transfer", 3, {"function": "relu"}),
         ("g", "transfer", channels, {"function": "logistic"}), ("p", "product", channels),
         ("out", "transfer", 2)],
        [("conv", "input", "a", K3), ("mean", "a", "m"), ("conv", "m", "h", size(1, 1, 1)),
         ("conv", "h", "g", size(1, 1, 1)), ("identity", "a", "p"), ("identity", "g", "p"),
         ("conv", "p", "out", K3)],
    )  # fmt: skip


def padded(padding: tuple[tuple[int, int], ...], channels: int = 17, border: str = "zeros"):
    """A pad edge from a node and one from the input, with different numbers of voxels on each side."""
    return network(
        [("input", "input", 1), ("a", "transfer", channels, {"function": "tanh"}),
         ("b", "sum", channels), ("i", "sum", 1), ("c", "concat", channels + 1),
         ("out", "transfer", 2)],
        [("conv", "input", "a", K3), ("pad", "a", "b", {"padding": padding, "border": border}),
         ("pad", "input", "i", {"padding": padding, "border": border}), ("identity", "b", "c"),
         ("identity", "i", "c"), ("conv", "c", "out", size(2, 1, 2))],
    )  # fmt: skip


@pytest.mark.parametrize("factors", [1, 2, 3])
@pytest.mark.parametrize("kind", ["identity", "crop"])
def test_products(factors, kind):
    check_network(gated(factors=factors, kind=kind), (4, 5, 6))


def test_a_square_is_a_product():
    nodes = [("input", "input", 1), ("a", "transfer", 5), ("p", "product", 5), ("out", "sum", 2)]
    edges = [("conv", "input", "a", K3), ("identity", "a", "p"), ("identity", "a", "p")]
    check_network(network(nodes, [*edges, ("conv", "p", "out", K3)]), (4, 5, 6))


def test_a_product_with_the_input_and_one_at_the_end():
    nodes = [("input", "input", 3), ("a", "transfer", 3, {"function": "logistic"})]
    edges = [("conv", "input", "a", K3), ("identity", "input", "p"), ("identity", "a", "p")]
    check_network(network([*nodes, ("p", "product", 3)], edges), (4, 5, 6))


@pytest.mark.parametrize("output", [(4, 5, 6), (1, 9, 7), (1, 1, 2)])
def test_squeeze_and_excitation(output):
    check_network(excited(), output)


@pytest.mark.parametrize("border", ["zeros", "replicate", "reflect"])
@pytest.mark.parametrize(
    "padding", [((0, 0), (1, 0), (0, 2)), ((2, 1), (0, 0), (1, 1)), ((0, 0), (0, 0), (0, 0))]
)
def test_padding_of_each_side(padding, border):
    check_network(padded(padding, border=border), (6, 5, 6))


@pytest.mark.parametrize("border", ["replicate", "reflect"])
def test_padding_in_many_ranges(border):
    bits = [
        check_network(padded(((3, 2), (2, 0), (1, 1)), 33, border), (14, 9, 10), threads=threads)
        for threads in (1, 3)
    ]
    assert bits[0] == bits[1]


@pytest.mark.parametrize(
    "net",
    [
        gated(2, 3),
        excited(2),
        padded(((1, 0), (0, 1), (0, 0)), 2),
        padded(((1, 0), (0, 1), (0, 1)), 2, "reflect"),
    ],
    ids=["product", "mean", "pad", "mirrored"],
)
def test_gradients_of_the_reference_are_finite_differences(net):
    geometry, rng = fit(net, (2, 3, 2)), np.random.default_rng(0)
    parameters = {name: rng.standard_normal(shape) for name, shape in parameter_shapes(net).items()}
    x = {"input": rng.standard_normal((1, net.inputs[0].channels, *geometry.input_shapes["input"]))}
    last = net.outputs[0]
    target = {last.name: rng.standard_normal((1, last.channels, 2, 3, 2))}

    def loss(found):
        return loss_by_reference(net, geometry, found, x, target)

    gradients = reference.gradients(net, geometry, parameters, x, target, loss="square")[1]
    for name, gradient in gradients.items():
        for place in rng.permutation(gradient.size)[:6]:
            step = np.zeros(gradient.size)
            step[place] = 1e-6
            ends = [
                loss(parameters | {name: parameters[name] + sign * step.reshape(gradient.shape)})
                for sign in (1, -1)
            ]
            assert gradient.flat[place] == pytest.approx(
                (ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-5
            )


@pytest.mark.parametrize("net", [gated(), excited(), padded(((0, 1), (1, 0), (2, 0)))])
def test_same_bits_for_any_number_of_threads(net):
    bits = [check_network(net, (9, 8, 7), threads=n) for n in (1, 2, 3)]
    assert all(other == bits[0] for other in bits[1:])


def test_values_that_depend_on_the_patch_are_told():
    assert "means of the patch (e1)" in patch_dependence(excited())
    assert "padding (" in patch_dependence(padded(((0, 0), (0, 0), (0, 1))))


def test_a_convolution_does_not_enter_a_product():
    nodes = {"input": {"kind": "input", "channels": 1}, "p": {"kind": "product", "channels": 2}}
    edges = {"c": {"kind": "conv", "from": "input", "to": "p", "size": 1}}
    with pytest.raises(NetworkError, match="cannot enter the product node 'p'; put a sum node"):
        load_network({"nodes": nodes, "edges": edges})


def test_padding_same_is_refused():
    edges = {"c": {"kind": "pad", "from": "input", "to": "p", "padding": "same"}}
    nodes = {"input": {"kind": "input", "channels": 1}, "p": {"kind": "sum", "channels": 1}}
    with pytest.raises(NetworkError, match="padding same means nothing here"):
        load_network({"nodes": nodes, "edges": edges})
