"""First layers behind which maxima are taken: filters learn from the voxels that won, beside float64."""

from dataclasses import replace

import numpy as np
import pytest
from against_reference import check_network, errors

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
from znnpy.plan import PASSES, LayerPlan, Method, Plan
from znnpy.plan.partition import LEAF_SECONDS

FLAT = (1, 2, 2)


def pooled(channels=1, function="linear", outputs=19, pool=None, **first):
    """input -> 5 x 5 -> maxima -> a layer."""
    nodes = (
        Node("input", "input", channels),
        Node("a", "transfer", outputs, function),
        Node("p", "sum", outputs),
        Node("out", "transfer", 3),
    )
    edges = (
        Edge("first", "conv", "input", "a", **{"size": (1, 5, 5), **first}),
        Edge(
            name="pool",
            source="a",
            target="p",
            **{"kind": "max_pool", "size": FLAT, "stride": FLAT, **(pool or {})},
        ),
        Edge("last", "conv", "p", "out", size=(1, 3, 3)),
    )
    return Network(nodes, edges)


OVERLAPPING = {"size": (1, 3, 3), "padding": ((0, 0), (1, 0), (0, 1))}
APART = {"size": (1, 3, 3), "stride": (1, 3, 3)}
"""Windows with which few taps fill enough of vectors of any width."""
PADDED = {"padding": ((0, 0), (2, 2), (2, 2))}


@pytest.mark.quick(2)
@pytest.mark.parametrize("function", ["linear", "relu"])
@pytest.mark.parametrize(
    ("channels", "batch", "shape"), [(1, 3, (1, 4, 5)), (3, 2, (1, 6, 4)), (2, 1, (3, 5, 5))]
)
def test_beside_the_oracle(channels, batch, shape, function):
    check_network(pooled(channels, function), shape, batch=batch, conv="direct")
    overlapping = pooled(channels, function, pool=OVERLAPPING, **PADDED)
    check_network(overlapping, shape, batch=batch, conv="direct")


def test_slabs_of_samples_and_of_rows():
    """Sums of many leaves: images so many, and so large, that one task does not take them all."""
    for shape, batch in (((1, 20, 20), 12), ((1, 130, 140), 1)):
        found = errors(
            pooled(outputs=8, pool=APART, size=(1, 4, 4)), shape, "direct", batch=batch, threads=2
        )
        assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize("pool", [{}, {"kind": "avg_pool"}])
def test_sums_of_few_numbers_have_tasks_as_short_as_leaves(pool):
    """From winners and row by row, of many images and of large ones."""
    for shape, batch in (((1, 12, 12), 100), ((1, 150, 150), 1)):
        tasks = declared(pooled(2, "relu", 32, pool, **PADDED), shape, batch)
        own = Identity("first", Pass.WEIGHT, Part.DIRECT)
        costs = [task.cost for task in tasks if task.what == own]
        assert 0.0 < max(costs) < 2 * LEAF_SECONDS


@pytest.mark.parametrize("microbatch", [2, 3])
def test_microbatches(microbatch):
    network = pooled(pool=APART, size=(1, 4, 4))
    check_network(network, (1, 4, 5), batch=6, microbatch=microbatch, conv="direct")


def kernels(network, shape=(1, 4, 5), algorithm="direct"):
    """Return what the tasks of an update run, by kernel's name, and the memory that buffers share."""
    arena = Arena()
    tasks = declared(network, shape, 2, algorithm, arena)
    return {task.kernel.name for task in tasks if task.kernel}, {str(name) for name in arena.shared}


def declared(network, shape, batch, algorithm="direct", arena=None):
    """Return the tasks of an update, in an arena."""
    ways = {
        edge.name: LayerPlan.of(*[Method(algorithm if edge.name == "first" else "direct")] * 3)
        for edge in network.edges
        if edge.kind == "conv"
    }
    assert len(PASSES) == 3
    layout = Layout(network, fit(network, shape), Plan(ways), batch, training=True)
    step, build = Step(), Build.new(arena or Arena(), layout, 1)
    emit_update(step, build, objectives(network, "square"), Optimizer(), clip_norm=None)
    return step.tasks


def test_no_gradient_of_the_layer_itself_is_made():
    found, buffers = kernels(pooled(pool=APART, size=(1, 4, 4)))
    assert "maxima_gradient" in found
    assert "max_pool_backward" not in found
    assert "gradients of a" not in buffers
    assert "gradients of p" in buffers


def test_what_needs_the_gradient_itself():
    network = pooled(pool=APART, size=(1, 4, 4))
    first, pool, last = network.edges
    twice = Network(network.nodes, (*network.edges, replace(pool, name="again", target="p")))
    summed = Network(network.nodes, (*network.edges, replace(first, name="beside")))
    before = Network(
        (network.nodes[0], Node("b", "transfer", 1), *network.nodes[1:]),
        (Edge("begin", "conv", "input", "b"), replace(first, source="b"), pool, last),
    )
    for other in (
        twice,
        summed,
        before,
        pooled(function="tanh", pool=APART, size=(1, 4, 4)),
        pooled(stride=FLAT, pool=APART, size=(1, 4, 4)),
        pooled(pool={"size": FLAT, "stride": (1, 1, 1)}),
        pooled(size=(2, 4, 4), pool=APART),
        pooled(size=(1, 4, 4), pool=APART | {"stride": (2, 3, 3)}),
        pooled(pool={"size": (1, 1, 2), "stride": (1, 1, 2)}),
    ):
        assert "maxima_gradient" not in kernels(other)[0]


def test_bits_do_not_depend_on_threads():
    network, rng = pooled(3, "relu", pool=APART, size=(1, 4, 4)), np.random.default_rng(0)
    results = []
    for threads in (1, 3, 8):
        with Model(
            network, (1, 9, 8), batch=7, threads=threads, conv="direct", loss="square", seed=1
        ) as model:
            if not results:
                image = rng.standard_normal((7, 3, *model.input_shape)).astype(np.float32)
                target = rng.standard_normal((7, 3, 1, 9, 8)).astype(np.float32)
            for _ in range(3):
                model.step(image, target, learning_rate=0.01)
            results.append({name: a.tobytes() for name, a in model.parameters.items()})
    assert all(found == results[0] for found in results)
