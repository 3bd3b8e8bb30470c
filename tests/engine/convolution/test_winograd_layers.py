"""Forward passes by Winograd's minimal filtering in whole networks against the float64 reference."""

import numpy as np
import pytest

from znnpy import Model, reference
from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.network import parameter_shapes
from znnpy.network.types import Edge, Network, Node

K3, ONE = (3, 3, 3), (1, 1, 1)
DIRECT = {"forward": "direct", "gradient": "direct", "weight": "direct", "reason": ""}


def network(images=(3, 17, 5), sparsity=ONE, size=K3):
    """Two convolutions that meet a third one's images in a sum, and a max-filter between them."""
    nodes = (
        Node("input", "input", 1),
        Node("a", "transfer", images[0], function="relu"),
        Node("b", "transfer", images[1], function="leaky_relu", slope=0.1),
        Node("m", "sum", images[1]),
        Node("out", "transfer", images[2], function="tanh"),
    )
    edges = (
        Edge("c1", "conv", "input", "a", size=K3),
        Edge("c2", "conv", "a", "b", size=size, sparsity=sparsity),
        Edge("p", "max_filter", "b", "m", size=(2, 2, 2)),
        Edge("c3", "conv", "m", "out", size=K3, sparsity=sparsity),
        Edge("c4", "conv", "m", "out", size=K3, sparsity=sparsity),
    )
    return Network(nodes, edges)


def plan(net, by):
    found = {e.name: dict(DIRECT) for e in net.edges if e.kind == "conv"}
    return found | {name: DIRECT | {"forward": "winograd"} for name in by}


def operands(net, output, batch):
    geometry, rng = fit(net, output), np.random.default_rng(0)
    parameters = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in parameter_shapes(net).items()
    }
    x = rng.standard_normal((batch, 1, *geometry.input_shapes["input"])).astype(np.float32)
    return geometry, parameters, x


@pytest.mark.quick(4)
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize(
    ("output", "sparsity", "batch"),
    [((5, 6, 7), ONE, 2), ((13, 10, 9), (2, 1, 4), 1), ((2, 33, 18), (1, 3, 2), 1)],
)
def test_equals_the_reference(output, sparsity, batch, threads):
    net = network(sparsity=sparsity)
    geometry, parameters, x = operands(net, output, batch)
    expected = reference.forward(net, geometry, parameters, {"input": x})["out"]
    given = {"batch": batch, "threads": threads, "training": False}
    with Model(net, output, plan=plan(net, ("c2", "c3", "c4")), **given) as model:
        model.set_parameters(parameters)
        model.forward(-3 * x)  # what a buffer held before must not matter
        found = model.forward(x)
        assert np.array_equal(model.forward(x), found)
    assert np.abs(found - expected).max() < 2e-5


@pytest.mark.parametrize("images", [12, 64])
def test_rounding_of_a_layer_is_at_most_four_times_that_of_direct(images):
    nodes = [Node(name, kind, images) for name, kind in (("input", "input"), ("a", "sum"))]
    edges = Edge("lift", "crop", "input", "a"), Edge("c", "conv", "a", "out", size=K3)
    net, output = Network((*nodes, Node("out", "sum", images)), edges), (12, 12, 12)
    geometry, rng = fit(net, output), np.random.default_rng(0)
    filters = {"c": rng.standard_normal((images, images, *K3)).astype(np.float32)}
    x = rng.standard_normal((1, images, *geometry.input_shapes["input"])).astype(np.float32)
    expected = reference.forward(net, geometry, filters, {"input": x})["out"]
    errors = []
    for by in ((), ("c",)):
        with Model(net, output, plan=plan(net, by), threads=0, training=False) as model:
            model.set_parameters(filters)
            errors.append(np.sqrt(np.mean((model.forward(x) - expected) ** 2)))
    assert errors[1] <= 4 * errors[0]


def test_bits_do_not_depend_on_threads():
    net, output = network(images=(12, 33, 3), sparsity=(2, 2, 2)), (21, 22, 23)
    _, parameters, x = operands(net, output, 1)
    found = []
    for threads in (0, 1, 2, 5):
        given = {"threads": threads, "training": False}
        with Model(net, output, plan=plan(net, ("c2", "c3", "c4")), **given) as model:
            model.set_parameters(parameters)
            found.append(model.forward(x))
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_training_may_use_it_forward():
    net, output = network(images=(3, 4, 2)), (4, 5, 6)
    _, parameters, x = operands(net, output, 1)
    target = np.zeros((1, 2, *output), np.float32)
    losses = []
    for by in ((), ("c2", "c3", "c4")):
        with Model(net, output, plan=plan(net, by), loss="square", threads=2) as model:
            model.set_parameters(parameters)
            losses.append([model.step(x, target) for _ in range(3)])
    first, second = (np.array([float(loss) for loss in run]) for run in losses)
    assert np.abs(first - second).max() < 1e-4 * np.abs(first).max()


def test_an_input_of_few_channels_is_packed_for_many():
    net, output = network(), (4, 4, 4)
    _, parameters, x = operands(net, output, 1)
    found = []
    for change in ({}, {"c1": DIRECT | {"forward": "winograd"}}):
        with Model(net, output, plan=plan(net, ()) | change, training=False) as model:
            model.set_parameters(parameters)
            found.append(model.predict(x))
    assert np.abs(found[0] - found[1]).max() < 1e-5 * np.abs(found[0]).max()


def test_refuses_what_it_cannot_do():
    other = network(size=(3, 2, 3))
    with pytest.raises(PlanError, match="three taps along some axes and one along others"):
        Model(other, (4, 4, 4), plan=plan(other, ("c2",)), training=False)
