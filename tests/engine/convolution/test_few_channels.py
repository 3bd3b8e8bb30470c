"""Networks with few channels among many: planar nodes, and bias and transfer inside convolutions."""

import numpy as np
import pytest
from against_reference import check_network
from znnpy_kernels.simd.lanes import LANES

from znnpy import Model
from znnpy.engine.emit import emit_update
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import fit
from znnpy.network import objectives
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import LayerPlan, Method, Plan
from znnpy.plan.algorithms.direct import direct_seconds, few_back_seconds
from znnpy.plan.partition import LEAF_SECONDS

K3, ONE = (3, 3, 3), (1, 1, 1)


def chain(images, functions, bias=True, sparsity=ONE):
    """input -> crop -> n0, then a convolution to each further node."""
    nodes = [Node("input", "input", images[0])]
    for index, (count, function) in enumerate(zip(images, functions, strict=True)):
        nodes.append(Node(f"n{index}", "transfer", count, function=function, bias=bias, slope=0.1))
    edges = [Edge("cut", "crop", "input", "n0", offset=(1, 0, 2))]
    edges += [
        Edge(
            f"c{i}",
            "conv",
            f"n{i - 1}",
            f"n{i}",
            size=(3, 2, 3) if i % 2 else K3,
            sparsity=sparsity,
        )
        for i in range(1, len(images))
    ]
    return Network(tuple(nodes), tuple(edges))


def plan(network, choose):
    """A plan record: `choose` gives the algorithms of each conv edge, forward, gradient, weight."""
    record = {}
    for edge in network.edges:
        if edge.kind == "conv":
            methods = choose(edge.name)
            record[edge.name] = {"reason": ""}
            for name, method in zip(("forward", "gradient", "weight"), methods, strict=True):
                record[edge.name][name] = method
                if method == "spectral":
                    record[edge.name][f"{name}_tile"] = [8, 8, 8]
    return record


LINEAR = ("linear",) * 4


IMAGES = (1, 17, 2, 20), (8, 40, 20, 3), (3, 10, 8, 33)
FUNCTIONS = LINEAR, ("relu",) * 4, ("leaky_relu", "tanh", "relu", "elu")
LOSSES = "square", "binomial_cross_entropy", "softmax"


@pytest.mark.quick(2)
@pytest.mark.parametrize(  # all pairs of two of the three
    ("images", "functions", "loss"),
    [
        (IMAGES[a], FUNCTIONS[(a + b) % 3], LOSSES[(2 * a + b) % 3])
        for b in range(3)
        for a in range(3)
    ],
)
def test_direct(images, functions, loss):
    check_network(chain(images, functions), (5, 4, 19), loss, conv="direct")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sparsity", [ONE, (1, 2, 3)])
def test_sparse_filters_with_and_without_bias(sparsity, bias):
    network = chain((2, 12, 3, 12), ("relu", "leaky_relu", "relu", "linear"), bias, sparsity)
    check_network(network, (4, 5, 9), conv="direct")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "methods",
    [
        ("direct", "direct", "spectral"),
        ("direct", "spectral", "direct"),
        ("spectral", "direct", "direct"),
        ("spectral", "direct", "spectral"),
        ("spectral", "spectral", "spectral"),
        ("fft", "direct", "direct"),
        ("direct", "direct", "fft"),
        ("fft", "fft", "direct"),
    ],
)
def test_any_mixture_of_algorithms(methods):
    network = chain((2, 18, 3, 20), ("relu", "linear", "leaky_relu", "linear"))
    check_network(network, (6, 5, 9), plan=plan(network, lambda _: methods))


def test_same_bits_for_any_number_of_threads():
    network = chain((1, 17, 3, 20), ("linear", "relu", "leaky_relu", "linear"))
    bits = [check_network(network, (9, 8, 19), conv="direct", threads=n) for n in (0, 1, 4)]
    assert bits[0] == bits[1] == bits[2]


def test_prediction_alone():
    network = chain((1, 17, 3), ("linear", "relu", "linear"))
    x = np.random.default_rng(0).standard_normal((1, 1, 12, 12, 12)).astype(np.float32)
    found = []
    for training in (True, False):
        shape = tuple(n - reach for n, reach in zip((12, 12, 12), (6, 3, 8), strict=True))
        with Model(network, shape, threads=1, conv="direct", training=training, seed=3) as model:
            found.append(model.forward(x))
    np.testing.assert_array_equal(*found)


def test_few_images_between_many_are_planar():
    network = chain((1, 17, 3, 20, 9), ("linear",) * 5)
    with Model(network, (4, 4, 4), conv="direct", threads=0) as model:
        layout = Layout(network, model.geometry, model.plan, 1, True)
    lanes = {node.name: layout.lanes(node.name) for node in network.nodes}
    planar = {name for name, count in lanes.items() if count == 1}
    assert planar == {"input", "n0", "n2"}


def test_data_gradients_by_few_images_have_tasks_as_short_as_leaves():
    """Of each panel, also one of a single block, which takes more than half of what two take."""
    sparsity, output = (2, 2, 2), (12, 12, 12)
    network = chain((1, 3 * LANES, 3), ("relu", "relu", "linear"), sparsity=sparsity)
    ways = {it.name: LayerPlan.of(*[Method("direct")] * 3) for it in network.edges}
    layout = Layout(network, fit(network, output), Plan(ways), 1, training=True)
    step, build = Step(), Build.new(Arena(), layout, 1)
    emit_update(step, build, objectives(network, "square"), Optimizer(), clip_norm=None)
    own = Identity("c2", Pass.BACKWARD, Part.DIRECT)
    costs = [task.cost for task in step.tasks if task.what == own]
    shape = layout.conv_shape(network.edges[-1])
    assert sum(costs) == pytest.approx(few_back_seconds(shape))
    assert few_back_seconds(shape) > direct_seconds(shape, "gradient")
    assert 0.0 < max(costs) < 2 * LEAF_SECONDS
