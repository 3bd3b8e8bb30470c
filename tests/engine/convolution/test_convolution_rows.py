"""Fully connected layers over a batch, whose samples lie in rows: against float64, and for any threads."""

from collections import Counter
from dataclasses import replace

import pytest
from against_reference import check_network

from znnpy.engine.convolution.direct import passes
from znnpy.engine.emit import emit_update
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part
from znnpy.geometry import fit
from znnpy.network import objectives
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PASSES, LayerPlan, Method, Plan

BATCHES = (2, 5, 28, 56, 60, 61)  # one row, two rows, and one of a prime number of samples


def chain(first, size, stride=1, images=(20, 33, 17), function="relu"):
    """input -> `first` -> a filter over all that is left -> a voxel to a voxel."""
    nodes = [
        Node("input", "input", 1),
        Node(
            "a",
            "transfer" if first.kind == "conv" else "sum",
            images[0] if first.kind == "conv" else 1,
        ),
        Node("b", "transfer", images[1], function=function),
        Node("c", "transfer", images[2], function=function),
        Node("out", "transfer", 12),
    ]
    strides = (stride,) * 3
    edges = [
        first,
        Edge("all", "conv", "a", "b", size=size, stride=strides),
        Edge("one", "conv", "b", "c"),
        Edge("last", "conv", "c", "out", stride=strides),
    ]
    return Network(tuple(nodes), tuple(edges))


def conv(**more):
    return Edge("first", "conv", "input", "a", **more)


@pytest.mark.quick(3)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("function", ["relu", "tanh"])
def test_a_plane_of_many_samples(batch, function):
    network = chain(conv(size=(1, 3, 3)), (1, 4, 3), function=function)
    check_network(network, (1, 1, 1), batch=batch, conv="direct")


@pytest.mark.parametrize("loss", ["softmax", "binomial_cross_entropy"])
def test_other_losses_and_cubes(loss):
    check_network(chain(conv(size=(1, 3, 3)), (2, 3, 4)), (1, 1, 1), loss, batch=30, conv="direct")


def test_strides_say_nothing_where_there_is_one_place():
    check_network(chain(conv(size=(3, 3, 3)), (3, 2, 2), 2), (1, 1, 1), batch=9, conv="direct")


def test_what_is_padded_or_sparse_or_read_by_others_as_well():
    """Not all images lie so that samples are in rows; their gradients need no halo either way."""
    padded = chain(conv(size=(1, 3, 3), padding=((0, 0), (1, 1), (1, 1))), (1, 4, 4))
    beside = Edge("more", "conv", "a", "b", size=(1, 4, 4))
    twice = Network(padded.nodes, (*padded.edges[:2], beside, *padded.edges[2:]))
    sparse = chain(conv(size=(1, 3, 3), sparsens=(1, 2, 2)), (1, 2, 2))
    for network in (padded, twice, sparse):
        check_network(network, (1, 1, 1), batch=8, conv="direct")


@pytest.mark.parametrize("microbatch", [5, 30])
def test_microbatches(microbatch):
    network = chain(conv(size=(1, 3, 3)), (1, 4, 4))
    check_network(network, (1, 1, 1), batch=30, microbatch=microbatch, conv="direct")


def pooled():
    """As LeNet ends: pooling before the filter that sees all."""
    network = chain(conv(size=(1, 3, 3)), (1, 4, 4))
    small = Edge("small", "max_pool", "a", "p", size=(1, 2, 2), stride=(1, 2, 2))
    first, whole, *rest = network.edges
    nodes = (*network.nodes[:2], Node("p", "sum", 20), *network.nodes[2:])
    return Network(nodes, (first, small, replace(whole, source="p"), *rest))


@pytest.mark.parametrize("batch", [7, 8, 56])
def test_pooled_images(batch):
    check_network(pooled(), (1, 1, 1), batch=batch, conv="direct")


def test_rows_of_many_samples(monkeypatch):
    """Where panels of outputs are tasks enough, forward passes have half as many rows."""

    def rows():
        own = [it for it in emitted(pooled(), 56) if it.what.label == "all"]
        return sum(1 + len(it.more) for it in own if it.what.part is Part.DIRECT)

    before = rows()
    monkeypatch.setattr(passes, "MANY_PANELS", 1)
    assert rows() < before
    check_network(pooled(), (1, 1, 1), batch=56, conv="direct")


def emitted(network, batch):
    """Return the tasks of an update by direct convolution."""
    one = LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan({edge.name: one for edge in network.edges if edge.kind == "conv"})
    layout = Layout(network, fit(network, (1, 1, 1)), plan, batch, training=True)
    step = Step()
    build = Build.new(Arena(), layout, 1)
    emit_update(step, build, objectives(network, "square"), Optimizer(), clip_norm=None)
    return step.tasks


@pytest.mark.parametrize(("batch", "copied"), [(7, True), (8, False)])
def test_gradients_that_nothing_is_applied_to_need_no_exchanged_filters(batch, copied):
    copies = {
        task.what.owner for task in emitted(pooled(), batch) if task.what.part is Part.TRANSPOSE
    }
    assert copies == ({"all"} if copied else set()) | {"one", "last"}


def test_filters_are_read_once_for_a_row():
    """A few calls make all samples; of a filter that sees less, each sample is a call but for its weight gradient."""
    batch, found = 56, Counter[str]()
    for task in emitted(pooled(), batch):
        if task.what.part is Part.DIRECT:
            found[task.what.label] += 1 + len(task.more)
    for label, count in found.items():
        each = "first" in label and "weight" not in label
        assert (count % batch == 0) if each else (count < batch), label
