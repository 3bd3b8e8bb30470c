"""Buffers that are dropped after the forward pass and made again: same bits in less memory."""

from dataclasses import replace

import numpy as np
import pytest
import random_networks as rn
from declared_tasks import buffer, declared
from model_settings import model_of

from znnpy import load_network
from znnpy.engine.memory_planning import planned_memory
from znnpy.engine.tasks.buffer_sharing import lifetimes
from znnpy.engine.tasks.dependencies import Accesses
from znnpy.engine.tasks.rematerialization import Saved, Sparing, repeated
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import fit


def loss(reads=(), writes=()):
    return replace(declared("", reads, writes), what=Identity("loss", Pass.LOSS, Part.LOSS))


CHAIN = [
    declared("1", ["x"], ["a"]),
    declared("2", ["a"], ["b"]),
    declared("3", ["b"], ["c"]),
    loss(["c"], ["dc"]),
    declared("-3", ["b", "dc"], ["db"]),
    declared("-2", ["a", "db"], ["da"]),
    declared("-1", ["x", "da"], ["dx"]),
]
STAGED = [declared("0", [], ["x"])]


def names(*wanted):
    return [buffer(name).name for name in wanted]


def order(tasks):
    return [task.what.owner for task in tasks]


def test_what_is_dropped_is_made_again_just_before_it_is_needed():
    made = repeated([*STAGED, *CHAIN], names("a", "b"))
    assert order(made) == ["0", "1", "2", "3", "loss", "1", "2", "-3", "-2", "-1"]
    assert [task.anew for task in made if task.anew] == [(buffer("a"),), (buffer("b"),)]
    lives = lifetimes(made, names("a", "b", "x"))
    assert [tuple(map(tuple, life.spans)) for life in lives.values()] == [
        ((0, 9),), ((1, 2), (5, 8)), ((2, 3), (6, 7))
    ]  # fmt: skip
    Accesses.of([made]).refuse_unwritten()


def test_what_nobody_needs_any_more_is_made_again_too():
    step = [*STAGED, *CHAIN[:5]]
    assert order(repeated(step, names("b"))) == [*"0123", "loss", *"012", "-3"]


def test_what_is_changed_in_place_is_made_again_from_the_start():
    step = [
        declared("sum", [], ["a"]),
        declared("function", ["a"], ["a", "b"]),
        *CHAIN[2:4],
        declared("back", ["b", "dc"], ["db"]),
    ]
    repeats = ["sum", "function"]
    assert order(repeated(step, names("b"))) == [*repeats, "3", "loss", *repeats, "back"]


def test_what_is_made_in_turns_is_made_again_together():
    """As images that lie in those of a node behind them, beside others that are made of them."""
    step = [
        declared("skip", ["x"], [buffer("joined").region(0, 1)]),
        declared("down", [buffer("joined").region(0, 1)], ["low"]),
        declared("up", ["low"], [buffer("joined").region(1, 2)]),
        declared("3", ["joined"], ["c"]),
        loss(["c"], ["dc"]),
        declared("back", ["joined", "dc"], ["dlow"]),
        declared("lower", ["x", "low", "dlow"]),
    ]
    names_of = order(repeated([*STAGED, *step], names("joined", "low")))
    repeats = ["skip", "down", "up"]
    assert names_of == ["0", *repeats, "3", "loss", *repeats, "back", "lower"]


def test_cheap_bytes_go_first():
    step = [replace(task, cost=float(n == 2)) for n, task in enumerate([*STAGED, *CHAIN])]
    sizes = dict.fromkeys(names("a", "b", "c"), 1000)
    sparing = Sparing(sizes, step, len(step))
    assert sparing.to(3000) == Saved([])
    assert list(sparing.to(2000).names) == names("a")


def test_who_asks_for_ever_less_room_is_told_the_same_as_who_asks_once():
    step = [replace(task, cost=1.0 + n % 3) for n, task in enumerate([*STAGED, *CHAIN])]
    sizes = {name: 1000 * n for n, name in enumerate(names("a", "b", "c", "x"), 1)}
    asked = Sparing(sizes, step, len(step))
    for room in range(sum(sizes.values()), 0, -500):
        assert asked.to(room) == Sparing(sizes, step, len(step)).to(room)


UNET = {
    "widths": [4, 16], "down": [[1, 2, 2]], "convs": 2, "padding": "same", "pool": "max", "up": "linear",
    "function": "elu", "size": [1, 3, 3], "outputs": 2,
}  # fmt: skip
CONV = {"conv": {"channels": 5, "size": 2, "function": "relu"}}
NETS = {
    "chain": {"layers": [CONV, {"max_filter": 2}, CONV, {"dropout": 0.6}, CONV, {"conv": {"channels": 2, "size": 2}}]},
    "joined": {"unet": {**UNET, "join": "concat"}},
    "residual": {"unet": {**UNET, "join": "sum", "norm": "batch", "block": "residual"}},
    "instance": {"unet": {**UNET, "norm": "instance", "function": "gelu", "pool": "strided", "up": "transposed"}},
}  # fmt: skip


def updates(network, output, **options):
    """All that three updates, and passes between them, find; and the model."""
    geometry = fit(network, output)
    with model_of(network, output, batch=2, seed=3, loss="square", **options) as model:
        model.set_parameters(rn.random_parameters(network, 4))
        found = []
        for update in range(3):
            x = rn.random_inputs(network, geometry, update, 2)
            target = rn.random_targets(network, geometry, update, 2)
            found.append(np.array(model.step(x, target, learning_rate=0.01)))
            values = model.forward(x)
            found += values.values() if isinstance(values, dict) else [values]
            found += model.loss_and_gradients(x, target)[1].values()
        return [*found, *model.parameters.values()], model


def check(network, output, conv, threads):
    """That an update in as little memory as it gets has the bits of one in plenty; how it is planned."""
    wanted, model = updates(network, output, conv=conv, threads=1)
    layout, settings = model._layout, replace(model._settings, max_memory=1)
    least = planned_memory(replace(layout, workers=threads), settings)
    found, _ = updates(network, output, conv=conv, threads=threads, max_memory=least.bytes)
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)
    return least


@pytest.mark.share(8)
@pytest.mark.quick(1)
@pytest.mark.parametrize("conv", ["direct", "spectral", "fft"])
@pytest.mark.parametrize("name", NETS)
def test_updates_in_less_memory_have_the_same_bits(name, conv):
    network = load_network(NETS[name])
    output = (2, 8, 8) if "unet" in NETS[name] else 4
    least = check(network, output, conv, threads=2)
    assert least.again > 0
    assert least.bytes < least.kept


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_networks_in_less_memory_have_the_same_bits(seed):
    check(*rn.random_network(seed), "direct", threads=3)
