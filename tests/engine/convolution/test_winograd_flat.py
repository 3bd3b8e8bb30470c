"""Winograd's minimal filtering along some axes: filters of one or three taps an axis, in whole networks."""

from importlib import import_module

import numpy as np
import pytest
from against_reference import check_network, errors
from chains import ONE, winograd_chain, winograd_plan

from znnpy import Model
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.single_layer import declared, lone
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.plan import ConvShape, Method, ranges
from znnpy.plan.algorithms import winograd
from znnpy.plan.algorithms.winograd_gradients import range_count, weight_seconds
from znnpy.plan.types import MARCHES
from znnpy.profile.command import flops_by_task
from znnpy.profile.report import CONVOLUTION

SIZES = [(1, 3, 3), (3, 1, 3), (3, 3, 1), (3, 1, 1), (1, 3, 1), (1, 1, 3)]


@pytest.fixture
def staged(monkeypatch):
    """All layers in stages, of groups of about so many tiles; or in slabs."""

    def apply(tiles):
        for user in ("winograd", "winograd.passes"):
            module = import_module(f"znnpy.engine.convolution.{user}")
            monkeypatch.setattr(module, "goes_staged", lambda layout, shape: tiles > 0)
        monkeypatch.setattr(winograd, "GROUP_TILES", tiles)

    return apply


class Drawn:
    """A random chain of layers: odd sizes, dilations, borders and batches."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        size = SIZES[seed % len(SIZES)]
        images = tuple(int(n) for n in rng.choice([1, 3, 8, 16, 17, 33, 50], 3))
        apart = tuple(int(n) for n in rng.choice([1, 1, 2, 3], 3))
        # Up to what the filter reaches: valid and `same` convolutions among them.
        reach = [(k - 1) * d for k, d in zip(size, apart, strict=True)]
        low = [int(rng.integers(n + 1)) for n in reach]
        padding = tuple((n, int(rng.integers(k - n + 1))) for n, k in zip(low, reach, strict=True))
        flat = seed % 3 == 0 and size[0] == 1
        z, y, x = (int(n) for n in rng.integers(1, [8, 26, 34]))
        self.output, self.batch = (1 if flat else z, y, x), int(rng.integers(1, 4))
        self.net = winograd_chain(images, apart, size=size, padding=padding)
        self.tiles = int(rng.choice([0, 1, 9, 64]))
        self.plan = winograd_plan(self.net, march=MARCHES[rng.integers(2)])


@pytest.mark.share(60)
@pytest.mark.quick(12)
@pytest.mark.parametrize("seed", range(90))
def test_values_and_gradients(staged, seed):
    drawn = Drawn(seed)
    staged(drawn.tiles)
    assert near(drawn.net, drawn.output, drawn.plan, drawn.batch)


@pytest.mark.parametrize("width", [29, 30, 31])
def test_rows_that_end_within_a_tile(width):
    # Tiles side by side are read and written without a question, the last of them between zeros.
    net = winograd_chain((8, 9, 5), (1, 1, 1), size=(1, 3, 3), padding=((0, 0), (1, 1), (1, 1)))
    assert near(net, (2, 9, width), winograd_plan(net, march="joined"), 1)


def near(net, output, plan, batch):
    """Whether outputs and gradients are those of the reference.

    A sum so near 0 that rounding decides where a relu bends parts all gradients before it, by any algorithm: another
    draw has none.
    """
    draws = (errors(net, output, plan, batch, seed, threads=2) for seed in range(3))
    return any(max(found.values()) < 3e-5 for found in draws)


@pytest.mark.share(12)
@pytest.mark.quick(3)
@pytest.mark.parametrize("which", ["forward", "gradient", "weight"])
@pytest.mark.parametrize("size", SIZES)
def test_each_pass_alone(size, which):
    net = winograd_chain((17, 12, 5), (2, 1, 2), size=size)
    assert near(net, (7, 9, 6), winograd_plan(net, (which,), "joined"), 2)


@pytest.mark.share(6)
@pytest.mark.quick(2)
@pytest.mark.parametrize("tiles", [0, 9])
@pytest.mark.parametrize("size", SIZES)
def test_bits_do_not_depend_on_threads(staged, size, tiles):
    staged(tiles)
    net = winograd_chain((16, 18, 33), (2, 1, 2), size=size, functions=("relu",) * 3)
    plan = winograd_plan(net, march="joined")
    for output in ((9, 12, 17), (2, 21, 18)):
        found = {
            tuple(check_network(net, output, threads=threads, plan=plan)) for threads in (1, 3)
        }
        assert len(found) == 1


@pytest.mark.share(9)
@pytest.mark.quick(2)
@pytest.mark.parametrize("tiles", [1, 9, 64])
@pytest.mark.parametrize("size", SIZES)
def test_stages_have_the_values_of_slabs(staged, size, tiles):
    net, output = winograd_chain((17, 16, 33), (1, 2, 3), size=size), (5, 18, 13)
    x, found = np.random.default_rng(0).standard_normal((2, 1, 40, 60, 60)), []
    for number in (0, tiles):
        staged(number)
        with Model(net, output, batch=2, threads=1, seed=3, plan=winograd_plan(net)) as model:
            z, y, x_ = model.input_shape
            found.append(model.forward(x[..., :z, :y, :x_].astype(np.float32)))
            parts = {it.part for it in identities(model.task_graph)}
        assert (Part.INVERSE in parts) == (number > 0)
    assert np.array_equal(*found)


# Channels, taps, voxels of the source and of the target, samples.
JOINT = {
    "lines": ConvShape(16, 24, (3, 1, 1), ONE, ONE, (12, 9, 7), (10, 9, 7), 2),
    "long lines": ConvShape(24, 24, (3, 1, 1), ONE, ONE, (34, 64, 64), (32, 64, 64), 1),
    "planes": ConvShape(16, 24, (1, 3, 3), ONE, ONE, (3, 12, 9), (3, 10, 7), 2),
    "many planes": ConvShape(24, 24, (1, 3, 3), ONE, ONE, (32, 66, 66), (32, 64, 64), 1),
}


@pytest.mark.parametrize("name", ["lines", "planes"])
def test_tasks_of_both_gradients_cost_what_both_do(name):
    """By estimates, by which they are ordered."""
    shape = JOINT[name]
    layout, edge = lone(shape, Method("winograd", march="joined"))
    tasks = declared(Build.new(Arena(), layout, 0), edge, shape).tasks
    seconds = sum(it.cost for it in tasks if it.what.part is Part.BOTH)
    both = winograd.winograd_seconds(winograd.backward_shape(shape)) + weight_seconds(shape)
    assert seconds == pytest.approx(both)


@pytest.mark.parametrize("name", ["long lines", "many planes"])
def test_tasks_of_both_gradients_are_few(name):
    """Each leaves filters' gradients behind, which take memory and are added up."""
    shape = JOINT[name]
    layout, edge = lone(shape, Method("winograd", march="joined"))
    tasks = declared(Build.new(Arena(), layout, 0), edge, shape).tasks
    made = sum(it.what.part is Part.BOTH for it in tasks)
    seconds = winograd.winograd_seconds(winograd.backward_shape(shape))
    most = len(ranges(1 << 20, seconds))
    if name == "many planes":
        most = range_count(shape, 1 << 20)
    assert 0.8 * most <= made <= 1.2 * most


@pytest.mark.parametrize("size", SIZES)
def test_all_operations_are_counted_by_part(staged, size):
    """As many in stages as in slabs, where they all belong to one part."""
    totals, net = [], winograd_chain((17, 16, 33), size=size)
    for tiles in (0, 9):
        staged(tiles)
        with Model(net, (9, 18, 7), threads=1, plan=winograd_plan(net)) as model:
            flops, made = flops_by_task(model), set(identities(model.task_graph))
        assert {it for it in made if it.kind in CONVOLUTION} <= set(flops)
        totals.append(sum(flops.values()))
    assert totals[1] == pytest.approx(totals[0])


@pytest.mark.quick(2)
@pytest.mark.parametrize("size", SIZES)
def test_rounding_is_at_most_four_times_that_of_direct(size):
    net = winograd_chain((24, 24, 24), ONE, ("linear",) * 3, size)
    errors_of = [
        errors(net, (12, 12, 12), plan) for plan in (winograd_plan(net), winograd_plan(net, ()))
    ]
    for name in ("forward", "c0", "c1", "c2"):
        assert errors_of[0][name] <= 4 * errors_of[1][name], name
