"""What tasks read was written by somebody: refused where it was not, and true of all networks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import random_networks as rn
from declared_tasks import buffer, declared
from loss_cases import cases, named
from pydantic import TypeAdapter

from znnpy import load_network
from znnpy.engine import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Filled
from znnpy.engine.step_tasks import Settings, all_steps, declare_all, declare_gradients
from znnpy.engine.tasks.dependencies import Accesses, connect
from znnpy.geometry import fit
from znnpy.graph import GraphError
from znnpy.learning.losses import AnyLoss
from znnpy.network import logits_network, objectives
from znnpy.plan import ALGORITHMS, LayerPlan, Method, Plan
from znnpy.plan.cost import convolutions, is_depthwise

A, FILTERS, GIVEN = buffer("a"), buffer("w", Filled.EARLIER), buffer("x", Filled.OUTSIDE)
NETWORKS = {
    "few channels, and many": (
        [
            {"conv": {"channels": 3, "size": 3, "function": "tanh"}},
            {"conv": {"channels": 33, "size": 3, "function": "leaky_relu"}},
            {"max_filter": [1, 2, 2]},
            {"conv": {"channels": 17, "size": 3, "function": "relu"}},
            {"conv": {"channels": 2, "size": 3, "repeat": 3}},
        ],
        (5, 9, 11),
    ),
    "true strides": (
        [
            {"conv": {"channels": 8, "size": 4, "stride": 2, "function": "relu"}},
            {"max_pool": {"size": 2, "stride": 2}},
            {"dropout": 0.5},
            {"conv": {"channels": 6, "size": 3}},
        ],
        (3, 4, 6),
    ),
}


def refused(steps, match, given=()):
    with pytest.raises(GraphError, match=match):
        connect(steps, given)


def test_a_read_that_nothing_writes():
    refused([[declared("task", reads="a")]], "task reads memory of a, which no task of its step")


def test_a_read_of_more_than_was_written():
    tasks = [
        declared("first", writes=[A.region(0, 3)]),
        declared("second", writes=[A.region(4, 6)]),
    ]
    connect([[*tasks, declared("last", reads=[A.region(4, 6)])]])
    refused([[*tasks, declared("last", reads=[A.region(2, 5)])]], "memory of a 2 to 5")
    refused([[*tasks, declared("last", reads=[A.region()])]], "last reads memory of a, which")
    between = declared("between", writes=[A.region(3, 4)])
    connect([[*tasks, between, declared("last", reads=[A.region()])]])


def test_a_read_before_the_write():
    tasks = [declared("early", reads="a"), declared("late", writes="a")]
    refused([tasks], "early reads")
    refused([tasks, tasks], "early reads")


def test_another_section():
    tasks = [
        declared("one", writes=[A.region(section=1)]),
        declared("two", reads=[A.region(section=2)]),
    ]
    refused([tasks], "section 2")


def test_what_a_task_writes_itself_is_not_there_before():
    refused([[declared("in place", reads="a", writes="a")]], "in place reads")


def test_what_is_given_or_comes_from_outside():
    connect([[declared("task", reads="a")]], [A])
    connect([[declared("task", reads=[GIVEN.region()])]])


def test_filters_must_be_made_again_where_steps_follow_each_other():
    reader, maker = (
        declared("reader", reads=[FILTERS.region()]),
        declared("m", writes=[FILTERS.region()]),
    )
    connect([[reader]])
    connect([[reader, maker], [reader, maker]])
    refused([[reader], [reader]], "which no task of any step has written")


METHODS = [
    Method(name, tile)
    for name, algorithm in ALGORITHMS.items()
    for tile in (((8, 8, 8), (8, 16, 16)) if algorithm.traits.tile_sizes else (None,))
]


def planned(network, method=METHODS[0]):
    """A method for every pass that takes it."""
    inputs = {node.name for node in network.inputs}
    algorithm, layers = ALGORITHMS[method.algorithm], {}
    for edge in convolutions(network):
        takes = not algorithm.refusal(edge.size, edge.stride)
        takes &= edge.kind == "conv" or algorithm.traits.transposes
        if method.algorithm == "winograd" and edge.source in inputs:
            takes = False
        here = method if takes else Method("direct")
        # As plans have it: each channel by a filter of its own is packed otherwise.
        here = Method("depthwise") if is_depthwise(edge, network) else here
        layers[edge.name] = LayerPlan.of(here, here, here)
    return Plan(layers)


def check(network, output, plan, loss, clip_norm=None):
    """Every graph of a network, declared without memory."""
    geometry, settings = (
        fit(network, output),
        Settings(objectives(network, loss), Optimizer(), clip_norm, 1),
    )
    single = Layout(network, geometry, plan, 2, training=True, workers=2)
    several = replace(single, numbers=range(3), microbatches=3, replicas=2)
    for layout in (single, several, replace(single, training=False)):
        build = Build.new(Arena(), layout, 1)
        declared = declare_all(build, settings)
        if layout.training:
            declared["gradients"] = [declare_gradients(build, settings)]
        for name, steps in declared.items():
            Accesses.of(all_steps(build, steps, name)).refuse_unwritten()


@pytest.fixture(autouse=True)
def no_ffts_are_planned(monkeypatch):
    """Planning measures for seconds what is not run here."""
    plan = SimpleNamespace(address=0)
    for name in ("spectra.plan_forward", "spectra.plan_inverse", "filters.plan_filter"):
        monkeypatch.setattr(f"znnpy.engine.convolution.fft.{name}", lambda *args: plan)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_all_that_tasks_of_a_network_read_is_written(name, method):
    layers, output = NETWORKS[name]
    network = load_network({"layers": layers})
    check(network, output, planned(network, method), "softmax", 1.0)


@pytest.mark.quick(5)
@pytest.mark.parametrize(("loss", "function"), cases(), ids=named)
def test_all_that_tasks_of_a_loss_read_is_written(loss, function):
    layers = [
        {"conv": {"channels": 3, "size": 1}},
        {"conv": {"channels": 3, "size": 1, "function": function}},
    ]
    network = load_network({"layers": layers})
    keys = TypeAdapter(AnyLoss).validate_python(loss)
    check(logits_network(network, keys), (4, 4, 4), planned(network), keys)


@pytest.mark.share(40)
@pytest.mark.quick(2)
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_all_that_tasks_of_random_networks_read_is_written(seed, method):
    network, output = rn.random_network(seed)
    check(network, output, planned(network, method), rn.loss_of(seed))


def unnoticed(network, output, plan):
    """Tasks that may be left out of all steps, and nobody reads what was not written."""
    layout = Layout(network, fit(network, output), plan, 1, training=True)
    build = Build.new(Arena(), layout, 1)
    settings = Settings(objectives(network, "square"), Optimizer(), 1.0, 1)
    steps = all_steps(build, declare_all(build, settings)["update"], "update")
    found = set()
    for what in {task.what for task in steps[0]}:
        try:
            Accesses.of(
                [[task for task in step if task.what != what] for step in steps]
            ).refuse_unwritten()
        except GraphError:
            continue
        found.add(what.label)
    return found


def test_tasks_that_are_left_out_are_noticed():
    """But for the last one, and those that change in place what is read after them, or what lies round it."""
    network, output = load_network({"layers": NETWORKS["true strides"][0]}), (3, 4, 6)
    in_place = {"conv1 weight gradient sum", "output backward frame"}
    assert unnoticed(network, output, planned(network)) == {*in_place, "output loss sum"}
