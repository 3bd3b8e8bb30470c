"""What tasks say they are agrees with what they touch, and their labels tell them apart."""

from functools import cache

import pytest
from declared_tasks import buffer
from declared_updates import chain, update_of

from znnpy.engine.estimate import estimated_graph
from znnpy.engine.tasks.buffer_sharing import gate
from znnpy.engine.tasks.dependencies import connect
from znnpy.engine.tasks.task_identity import GATE, Identity, Kind, Part, Pass, identities
from znnpy.graph import GraphBuilder, Named
from znnpy.network import load_network

METHODS = [
    ("direct",),
    ("fft",),
    ("spectral 8x8x8",),
    ("winograd",),
    ("direct", "fft", "direct"),
    ("direct", "direct", "fft"),
    ("fft", "direct", "direct"),
    ("direct", "winograd", "direct"),
    ("spectral 8x8x8", "spectral 8x10x8", "spectral 6x6x6"),
]
NETS = {
    "many images": chain(12, 20, 18),
    "few channels": chain(1, 18, 3),
    "paths that meet": {
        "nodes": {
            "in": {"kind": "input", "channels": 9},
            "a": {"kind": "transfer", "channels": 9, "function": "tanh"},
            "b": {"kind": "transfer", "channels": 10, "function": "relu"},
            "both": {"kind": "concat", "channels": 19},
            "out": {"kind": "transfer", "channels": 2},
        },
        "edges": {
            "in-a": {"kind": "conv", "from": "in", "to": "a", "size": 3},
            "a-b": {"kind": "conv", "from": "a", "to": "b", "size": 3},
            "crop": {"kind": "crop", "from": "a", "to": "both", "offset": 1},
            "drop": {"kind": "dropout", "from": "b", "to": "both", "keep": 0.5},
            "both-out": {"kind": "conv", "from": "both", "to": "out", "size": 3},
            "b-out": {"kind": "conv", "from": "b", "to": "out", "size": 3},
        },
    },
}


@pytest.fixture(params=METHODS, ids=" ".join)
def methods(request):
    return request.param


@cache
def updated(name, methods):
    return update_of(NETS[name], *methods)


@pytest.fixture(params=NETS)
def tasks(request, methods):
    return updated(request.param, methods)


def readers(tasks, made):
    """Passes of the tasks that read what one of them has made."""
    return {
        task.what.serves
        for task in tasks
        for read in task.reads
        if any(read.key == written.key and read.overlaps(written) for written in made.writes)
    }


DERIVED = {
    Part.FILTER_SPECTRA,
    Part.DENSE_FILTERS,
    Part.FILTER_TILES,
    Part.FILTER_POINTS,
    Part.TRANSPOSE,
}


@pytest.mark.slow
def test_what_is_made_of_filters_belongs_to_the_first_pass_that_reads_it(tasks):
    order = list(Pass)
    for task in tasks:
        if task.what.part in DERIVED:
            assert task.what.serves == min(readers(tasks, task), key=order.index), task.what.label


@pytest.mark.quick(9)
def test_transforms_belong_to_a_pass_that_reads_them(tasks):
    shared = {Part.IMAGE_SPECTRA, Part.OUTPUT_SPECTRA, Part.KEPT_TILES, Part.OUTPUT_TILES}
    for task in tasks:
        if task.what.part in shared:
            assert task.what.serves in readers(tasks, task), task.what.label


@pytest.mark.quick(9)
def test_labels_tell_tasks_apart(tasks):
    known = {task.what for task in tasks}
    assert len({what.label for what in known}) == len(known)


@pytest.mark.quick(9)
def test_parts_of_one_pass_say_so(tasks):
    for task in tasks:
        assert task.what.part.only in (None, task.what.serves)


@pytest.mark.quick(9)
def test_updates_and_losses_have_kinds_of_their_own(tasks):
    own = {Pass.UPDATE: Kind.UPDATE, Pass.LOSS: Kind.LOSS, Pass.ORDER: Kind.GATE}
    for task in tasks:
        assert (task.what.kind in own.values()) == (task.what.serves in own)
        assert own.get(task.what.serves, task.what.kind) == task.what.kind


@pytest.mark.parametrize(
    ("what", "label"),
    [
        (Identity("conv1", Pass.FORWARD, Part.DIRECT), "conv1"),
        (Identity("conv1", Pass.BACKWARD, Part.WINOGRAD), "conv1 backward"),
        (Identity("conv1", Pass.WEIGHT, Part.DIRECT), "conv1 weight gradient"),
        (Identity("conv1", Pass.FORWARD, Part.FILTER_TILES), "conv1 filter tiles"),
        (Identity("conv1", Pass.BACKWARD, Part.FILTER_POINTS), "conv1 backward filter points"),
        (Identity("conv1", Pass.WEIGHT, Part.PRODUCTS), "conv1 weight gradient products"),
        (Identity("layer1", Pass.WEIGHT, Part.BIAS), "layer1 bias gradient"),
        (Identity("layer1", Pass.LOSS, Part.LOSS), "layer1 loss"),
        (Identity(None, Pass.UPDATE, Part.CLIP), "clip"),
        (GATE, "gate"),
    ],
)
def test_labels_are_words(what, label):
    assert what.label == label


def test_graphs_keep_what_their_tasks_are_barriers_included():
    declared = update_of(chain(2, 9, 9), "direct")
    declared.append(gate([buffer("x").region().key], declared[-1].stage))
    found = identities(connect([declared]).build("layers"))
    assert found[: len(declared)] == [task.what for task in declared]
    assert {what.part for what in found[len(declared) :]} == {Part.BARRIER}
    assert all(what.waits == (what.part in (Part.GATE, Part.BARRIER)) for what in found)


def test_tasks_of_an_even_and_an_odd_update_are_the_same():
    graph = estimated_graph(load_network(chain(2, 9, 9)), (8, 8, 8), conv="direct")
    found = list(zip(identities(graph), graph.step.tolist(), strict=True))
    even, odd = ([what for what, step in found if step == parity] for parity in (0, 1))
    assert even == odd


def test_tasks_of_something_else_are_refused():
    builder = GraphBuilder()
    builder.task(0, [], Named("turn"), cost=1.0, phase=0)
    with pytest.raises(TypeError, match="'turn' is of no network"):
        identities(builder.build())
