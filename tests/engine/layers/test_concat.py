"""Concats whose parts fill whole blocks: they are written where they are read, and bits stay."""

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network
from znnpy_kernels.simd.lanes import LANES

from znnpy import Model
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import Part, identities

MOVES = {Part.COPY, Part.SPLIT}


def level(skip, below, padding=((1, 1),) * 3, border="zeros", **more):
    """A U-Net's level: a skip that a pool and the concat read, joined with what comes from below."""
    conv = {"size": (3, 3, 3), "padding": padding, "border": border}
    relu, one = {"function": "relu"}, {"size": (1, 1, 1)}
    return network(
        [("input", "input", 2), ("a", "transfer", skip, relu), ("skip", "transfer", skip, relu),
         ("pooled", "sum", skip), ("b", "transfer", below, relu),
         ("k", "concat", skip + below), ("c", "transfer", 5, relu), ("d", "transfer", 3)],
        [("conv", "input", "a", conv), ("conv", "a", "skip", conv | more),
         ("max_filter", "skip", "pooled", {"size": (1, 1, 1)}), ("conv", "pooled", "b", one),
         ("identity", "skip", "k"), ("identity", "b", "k"), ("conv", "k", "c", conv),
         ("conv", "c", "d", one)],
    )  # fmt: skip


def strided(skip, below, border="zeros"):
    """A level whose skip is read among padding, by the layer below, and whose concat is read without."""
    relu, padding = {"function": "relu"}, {"padding": ((1, 1),) * 3}
    return network(
        [("input", "input", 2), ("skip", "transfer", skip, relu), ("b", "transfer", below, relu),
         ("k", "concat", skip + below), ("c", "transfer", 3)],
        [("conv", "input", "skip", {"size": (3, 3, 3), **padding}),
         ("conv", "skip", "b", {"size": (3, 3, 3), "border": border, **padding}),
         ("identity", "skip", "k"), ("identity", "b", "k"), ("conv", "k", "c", {"size": (2, 1, 2)})],
    )  # fmt: skip


def moved(net, **options):
    with Model(net, 5, conv="direct", **options) as model:
        found = identities(model.task_graph)
    return [task for task in found if task.part in MOVES and task.owner not in ("c", "d")]


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_moved_where_parts_fill_blocks(training):
    assert not moved(level(2 * LANES, LANES), training=training)
    assert not moved(level(LANES, 3), training=training), "the last part may end within a block"
    assert moved(level(3, LANES), training=training)


def test_zeros_around_a_part_do_no_harm_where_the_concat_needs_none():
    assert not moved(strided(LANES, LANES), training=False)
    assert moved(strided(LANES, LANES, "reflect"), training=False)


CASES = [
    level(2 * LANES, LANES),
    level(LANES, 5, ((2, 0), (1, 1), (0, 1))),
    level(LANES, LANES, border="reflect"),
    level(LANES, 2 * LANES, padding=((0, 0), (0, 0), (1, 1)), sparsity=(2, 1, 1)),
    level(5, LANES),
    strided(LANES, 5),
    strided(LANES, LANES, "replicate"),
]


def results(net, output, training=True):
    with Model(net, output, conv="direct", threads=2, training=training, loss="square") as model:
        rng = np.random.default_rng(0)
        values = {name: 0.1 * rng.standard_normal(a.shape) for name, a in model.parameters.items()}
        model.set_parameters(values)
        x = rng.standard_normal((1, 2, *model.input_shape))
        y = rng.standard_normal((1, 3, *model.output_shape))
        found = [model.forward(x), model.forward(x)]
        if training:
            for _ in range(2):
                found += [model.result(model.submit(x, y)).loss, *model.parameters.values()]
    return found


@pytest.mark.quick(4)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("net", CASES)
def test_bits_are_those_of_copies(net, training, monkeypatch):
    output = (4, 5, 9)
    found = results(net, output, training)
    monkeypatch.setattr(Layout, "stacked", lambda self, edge: None)
    copied = results(net, output, training)
    assert all(np.array_equal(one, other) for one, other in zip(found, copied, strict=True))


@pytest.mark.quick(2)
@pytest.mark.parametrize("net", CASES)
def test_all_passes(net):
    check_network(net, (4, 5, 9), conv="direct")


def test_a_node_may_be_handed_twice_and_to_two():
    numbers, one = {"size": (2, 2, 2)}, {"size": (1, 1, 1)}
    net = network(
        [("input", "input", 1), ("a", "transfer", LANES, {"function": "relu"}),
         ("b", "transfer", 1), ("k", "concat", 2 * LANES), ("m", "concat", 2 * LANES + 1),
         ("y", "transfer", 3)],
        [("conv", "input", "a", numbers), ("conv", "a", "b", one), ("identity", "a", "k"),
         ("identity", "a", "k"), ("identity", "a", "m"), ("identity", "a", "m"),
         ("identity", "b", "m"), ("conv", "k", "y", numbers), ("conv", "m", "y", numbers)],
    )  # fmt: skip
    check_network(net, (3, 4, 5), conv="direct")


def test_same_bits_for_any_number_of_threads():
    net = level(LANES, LANES)
    bits = [check_network(net, (9, 5, 12), conv="direct", threads=n) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])


@pytest.mark.parametrize("images", [LANES, 5])
def test_what_is_handed_on_may_stand_before_other_edges(images):
    conv, relu = {"size": (3, 3, 3), "padding": ((1, 1),) * 3}, {"function": "relu"}
    net = network(
        [("input", "input", 1), ("a", "transfer", images, relu), ("b", "transfer", LANES, relu),
         ("k", "concat", LANES + images), ("y", "transfer", 3)],
        [("conv", "input", "a", conv), ("identity", "a", "k"), ("conv", "a", "b", conv),
         ("identity", "b", "k"), ("conv", "k", "y", conv)],
    )  # fmt: skip
    check_network(net, (4, 5, 9), conv="direct")
