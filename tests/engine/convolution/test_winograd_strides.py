"""Strided layers by Winograd's minimal filtering, in whole networks."""

import numpy as np
import pytest
from against_reference import check_network, errors
from chains import PASSES
from hypothesis import given, settings
from hypothesis import strategies as st

from znnpy import Execution, Model
from znnpy.engine.step_tasks import declare_update
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.errors import PlanError
from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Network, Node
from znnpy.plan.algorithms import winograd_gradients
from znnpy.profile.command import flops_by_task

CUBE, FLAT = ((3, 3, 3), (2, 2, 2)), ((1, 3, 3), (1, 2, 2))
AROUND = {CUBE: ((1, 1),) * 3, FLAT: ((0, 0), (1, 1), (1, 1))}


def strided(channels, form, padding, border="zeros", groups=1):
    """A first layer, one with a stride, and one behind it."""
    first, second, last = channels
    size, stride = form
    nodes = (
        Node("input", "input", 1),
        Node("a", "transfer", first, "relu"),
        Node("b", "transfer", second, "leaky_relu", slope=0.2),
        Node("out", "transfer", last, "linear"),
    )
    edges = (
        Edge("c0", "conv", "input", "a", size=(1, 3, 3)),
        Edge("c1", "conv", "a", "b", size=size, stride=stride, padding=padding, border=border, groups=groups),
        Edge("c2", "conv", "b", "out", size=(1, 1, 1)),
    )  # fmt: skip
    return Network(nodes, edges)


def planned(**passes):
    """The strided layer by winograd, but for passes that are named."""
    direct = dict.fromkeys(PASSES, "direct")
    return {"c0": direct, "c1": dict.fromkeys(PASSES, "winograd") | passes, "c2": direct}


@settings(max_examples=6)
@given(
    channels=st.tuples(*[st.sampled_from([1, 3, 8, 17, 33, 40])] * 2, st.just(5)),
    form=st.sampled_from([CUBE, FLAT]),
    border=st.sampled_from([None, "zeros", "reflect"]),
    output=st.tuples(st.integers(1, 6), st.integers(2, 9), st.integers(2, 30)),
    batch=st.integers(1, 2),
)
def test_values_and_gradients(channels, form, border, output, batch):
    padding = AROUND[form] if border else BARE
    net = strided(channels, form, padding, border or "zeros")
    draws = (errors(net, output, planned(), batch, seed, threads=2) for seed in range(3))
    assert any(max(found.values()) < 3e-5 for found in draws)


@pytest.mark.parametrize("threads", [1, 40])
def test_samples_of_few_tiles_are_as_they_are_alone(threads):
    """They read filters together, as planes of one."""
    net, output, batch = strided((9, 40, 5), FLAT, AROUND[FLAT]), (1, 7, 9), 7
    found = {}
    for count in (1, batch):
        with Model(
            net, output, batch=count, threads=threads, plan=planned(), training=False, seed=0
        ) as model:
            shape = -1, count, 1, *model.input_shape
            parts = np.random.default_rng(0).random((batch, *shape[2:]), np.float32).reshape(shape)
            found[count] = np.concatenate([np.array(model.forward(part)) for part in parts])
    assert (found[1] == found[batch]).all()


@pytest.mark.parametrize("form", [CUBE, FLAT])
def test_same_bits_for_any_number_of_threads(form):
    net = strided((9, 40, 5), form, AROUND[form])
    bits = [check_network(net, (5, 9, 6), plan=planned(), threads=n) for n in (1, 2, 40)]
    assert bits[0] == bits[1] == bits[2]


def test_bands_of_groups():
    net = strided((32, 64, 5), FLAT, AROUND[FLAT], groups=2)
    assert max(errors(net, (2, 6, 9), planned(), 1, 0, threads=1).values()) < 3e-5


def test_sums_with_another_edge():
    """The second of two edges into a node adds to what lies there, before bias and function."""
    size, stride = FLAT
    numbers = {"size": size, "stride": stride, "padding": AROUND[FLAT]}
    nodes = (
        Node("input", "input", 1),
        Node("a", "transfer", 9, "relu"),
        Node("b", "transfer", 9, "relu"),
    )
    edges = (
        Edge("c0", "conv", "input", "a", size=(1, 3, 3)),
        Edge("c1", "conv", "a", "b", **numbers),
        Edge("c2", "conv", "a", "b", **numbers),
    )  # fmt: skip
    own = dict.fromkeys(PASSES, "winograd")
    plan = {"c0": dict.fromkeys(PASSES, "direct"), "c1": own, "c2": own}
    assert max(errors(Network(nodes, edges), (2, 6, 9), plan, 1, 0, threads=1).values()) < 3e-5


def test_all_operations_are_counted():
    net = strided((9, 20, 5), CUBE, BARE)
    with Model(net, (4, 5, 6), threads=1, plan=planned()) as model:
        own = {what for what in identities(model.task_graph) if what.owner == "c1"}
        flops = flops_by_task(model)
    tiled = {what.serves.name for what in own if what.part is Part.WINOGRAD}
    assert tiled == {"FORWARD", "BACKWARD", "WEIGHT"}
    counted = {Part.WINOGRAD, Part.TILES, Part.FILTER_POINTS}
    assert {what for what in own if what.part in counted} <= set(flops)
    assert all(flops.values())


def test_dilated_filters_with_a_stride_are_refused():
    net = strided((9, 9, 5), FLAT, BARE)
    edges = [
        net.edges[0],
        Edge("c1", "conv", "a", "b", size=FLAT[0], stride=FLAT[1], sparsity=(1, 2, 2)),
        net.edges[2],
    ]
    with pytest.raises(PlanError, match="dilated filters with a stride"):
        Model(Network(net.nodes, tuple(edges)), (2, 5, 6), threads=1, plan=planned())


def planes(regions, tensor):
    """Planes of a tensor's blocks, its frame left out, that regions of its buffer reach."""
    rows = tensor.rows - sum(tensor.beyond[1 - tensor.cut])
    each = tensor.extent - sum(tensor.beyond[tensor.cut])
    own = [it for it in regions if it.buffer == tensor.buffer]
    return {row // rows % each for it in own for row in range(it.low, min(it.high, tensor.units))}


@pytest.mark.parametrize("padding", [BARE, AROUND[CUBE]])
def test_tasks_of_gradients_say_which_planes_they_read(padding, monkeypatch):
    monkeypatch.setattr(winograd_gradients, "STRIDED_TILES", {2: 2, 3: 2})
    net, before = strided((9, 20, 5), CUBE, padding), padding[0][0]
    many = Execution(cut_for=64)
    with Model(net, (30, 5, 6), threads=1, plan=planned(), execution=many) as model:
        build = model._engine._build
        tasks = declare_update(build, model._engine.settings, 0, None)
        back, source, given = (
            build.back(net.edges[1]),
            build.seen(net.edges[1]),
            build.maps.gradients["b"],
        )
    met = {
        v: {(v + before - k) // 2 for k in range(3) if (v + before - k) % 2 == 0} for v in range(70)
    }
    whole = set(range(given.extent))
    made = [it for it in tasks if it.kernel.name == "winograd_strided_back"]
    for task in made:
        needed = set().union(*(met[v] for v in planes(task.writes, back))) & whole
        assert needed <= planes(task.reads, given)
    # Points of the source and of the gradient follow each other, range by range.
    points = [
        [it for it in tasks if it.kernel.name == f"winograd_strided_{of}_points"]
        for of in ("source", "gradient")
    ]
    for one, other in zip(*points, strict=True):
        seen = planes(other.reads, given)
        inside = source.extent - 2 * before
        needed = {2 * m + k - before for m in seen for k in range(3)} & set(range(inside))
        assert needed <= planes(one.reads, source)
    assert min(map(len, [made, *points])) > 1
