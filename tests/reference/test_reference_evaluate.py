"""Whole networks: finite differences, dense output by sliding a pooling net, hand-made cases."""

import numpy as np
import pytest
from finite_differences import loss_by_reference
from random_networks import (
    SMOOTH,
    loss_of,
    random_inputs,
    random_masks,
    random_network,
    random_parameters,
    random_targets,
    random_weights,
)

from znnpy.errors import ShapeError
from znnpy.geometry import fit
from znnpy.network import learned
from znnpy.network.types import Edge, Network, Node
from znnpy.reference import forward, gradients


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(14))
def test_gradients_of_random_networks_are_finite_differences(seed):
    network, output_shape = random_network(seed, SMOOTH)
    geometry = fit(network, output_shape)
    parameters = as_doubles(random_parameters(network, seed))
    data = (
        random_inputs(network, geometry, seed, batch=2),
        random_targets(network, geometry, seed, batch=2),
        random_weights(network, geometry, seed, batch=2),
        loss_of(seed),
        random_masks(network, geometry, seed, batch=2),
    )
    total, found = gradients(network, geometry, parameters, *data)
    assert total == loss_by_reference(network, geometry, parameters, *data)
    rng = np.random.default_rng(seed)
    for name in learned(network):
        value = parameters[name]
        direction = rng.standard_normal(value.shape)
        direction *= 1e-6 / np.linalg.norm(direction)
        above, below = (
            loss_by_reference(network, geometry, {**parameters, name: moved}, *data)
            for moved in (value + direction, value - direction)
        )
        expected = np.vdot(found[name], 2 * direction)
        scale = np.linalg.norm(found[name]) * 2e-6
        assert abs(above - below - expected) <= 2e-4 * scale + 1e-13, name


def as_doubles(arrays):
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def sliding_net(kind):
    """conv, maximum, conv, maximum, conv: dense with max_filter, coarse with max_pool."""
    nodes = [Node("input", "input", 2), *(Node(f"n{i}", "transfer", 3, "tanh") for i in range(5))]
    edges = []
    for i, size in enumerate([(2, 3, 1), (2, 2, 2), (3, 2, 2), (3, 3, 3), (2, 2, 2)]):
        source = "input" if i == 0 else f"n{i - 1}"
        if i % 2 == 0:
            edges.append(Edge(f"e{i}", "conv", source, f"n{i}", size=size))
        elif kind == "max_filter":
            edges.append(Edge(f"e{i}", kind, source, f"n{i}", size=size, sparsens=size))
        else:
            edges.append(Edge(f"e{i}", kind, source, f"n{i}", size=size, stride=size))
    return Network(tuple(nodes), tuple(edges))


def test_a_filter_net_is_its_pooling_net_slid_over_the_input():
    dense, coarse = sliding_net("max_filter"), sliding_net("max_pool")
    dense_fit, coarse_fit = fit(dense, (3, 2, 4)), fit(coarse, (1, 1, 1))
    parameters = random_parameters(dense, 0)
    image = random_inputs(dense, dense_fit, 0)["input"]
    got = forward(dense, dense_fit, parameters, {"input": image})["n4"]
    z, y, x = coarse_fit.input_shapes["input"]
    for at in np.ndindex(3, 2, 4):
        window = image[:, :, at[0] : at[0] + z, at[1] : at[1] + y, at[2] : at[2] + x]
        one = forward(coarse, coarse_fit, parameters, {"input": window})["n4"]
        np.testing.assert_allclose(got[0, :, *at], one[0, :, 0, 0, 0], rtol=1e-12, atol=1e-12)


def test_concat_stacks_in_the_order_of_edges_and_sums_add():
    nodes = (
        Node("a", "input", 1),
        Node("b", "input", 2),
        Node("both", "concat", 3),
        Node("twice", "sum", 3),
    )
    edges = (
        Edge("right", "crop", "b", "both"),
        Edge("left", "crop", "a", "both"),
        Edge("one", "crop", "both", "twice"),
        Edge("two", "dropout", "both", "twice", keep=0.5),
    )
    network = Network(nodes, edges)
    geometry = fit(network, (1, 1, 1))
    inputs = {"a": np.full((1, 1, 1, 1, 1), 3.0), "b": np.arange(2.0).reshape(1, 2, 1, 1, 1)}
    got = forward(network, geometry, {}, inputs)
    assert got["both"].ravel().tolist() == [0.0, 1.0, 3.0]
    assert got["twice"].ravel().tolist() == [0.0, 2.0, 6.0]
    masked = forward(network, geometry, {}, inputs, {"two": np.ones((1, 3, 1, 1, 1))})
    assert masked["twice"].ravel().tolist() == [0.0, 3.0, 9.0]


def one_voxel(function, slope=0.01):
    """One input voxel, one 1^3 filter, one transfer node."""
    nodes = (Node("in", "input", 1), Node("out", "transfer", 1, function, slope))
    network = Network(nodes, (Edge("e", "conv", "in", "out"),))
    return network, fit(network, (1, 1, 1))


@pytest.mark.parametrize(
    ("function", "x", "value", "slope"),
    [
        ("linear", -2.0, -2.0, 1.0),
        ("relu", -2.0, 0.0, 0.0),
        ("relu", 0.0, 0.0, 0.0),
        ("relu", 2.0, 2.0, 1.0),
        ("leaky_relu", -2.0, -0.2, 0.1),
        ("elu", -2.0, 0.1 * np.expm1(-2.0), 0.1 * np.exp(-2.0)),
        ("tanh", 0.5, np.tanh(0.5), 1 - np.tanh(0.5) ** 2),
        ("logistic", 0.0, 0.5, 0.25),
        ("forward_logistic", 0.0, 0.5, 1.0),
        ("softmax", 4.0, 1.0, 0.0),
    ],
)
def test_functions_counted_by_hand(function, x, value, slope):
    network, geometry = one_voxel(function, slope=0.1)
    data = {"in": np.full((1, 1, 1, 1, 1), x)}
    parameters = {"e": np.ones((1, 1, 1, 1, 1)), "out": np.zeros(1)}
    got = forward(network, geometry, parameters, data)["out"]
    assert got.item() == pytest.approx(value)
    target = {"out": np.full((1, 1, 1, 1, 1), value - 0.5)}  # so that the loss's gradient is 1
    _, found = gradients(network, geometry, parameters, data, target)
    assert found["out"].item() == pytest.approx(slope)
    assert found["e"].item() == pytest.approx(slope * x)


def test_misshapen_arrays_are_refused_with_what_fits():
    network, geometry = one_voxel("linear")
    good = {"e": np.ones((1, 1, 1, 1, 1)), "out": np.zeros(1)}
    image = np.zeros((1, 1, 1, 1, 1))
    with pytest.raises(ShapeError, match=r"\(batch, 1, 1, 1, 1\) fits"):
        forward(network, geometry, good, {"in": np.zeros((1, 1, 1, 1, 2))})
    with pytest.raises(ShapeError, match="inputs are"):
        forward(network, geometry, good, {"im": image})
    with pytest.raises(ShapeError, match="'out' of shape"):
        forward(network, geometry, {"e": good["e"]}, {"in": image})
    with pytest.raises(ShapeError, match="parameter 'e' has shape"):
        forward(network, geometry, {**good, "e": np.ones(1)}, {"in": image})
