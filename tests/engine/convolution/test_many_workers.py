"""Passes that are cut further where workers are many: the same bits, and few workers have the tasks that they had."""

from importlib import import_module

import numpy as np
import pytest
import random_networks as rn
from chains import winograd_chain, winograd_plan
from znnpy_kernels.simd.lanes import LANES

from znnpy import Execution, Model
from znnpy.engine.convolution.direct import passes as direct_passes
from znnpy.engine.convolution.spectral import few_source, filter_gradients, filters, transforms
from znnpy.engine.convolution.winograd import passes as winograd_passes
from znnpy.engine.memory.tensors import ROW_SAMPLES, Row
from znnpy.engine.tasks.task_identity import Part, Pass, identities
from znnpy.geometry import fit
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import Grain
from znnpy.plan.partition import FEWEST, light_ranges

WORKERS = (1, 64)
SPECTRAL = [
    # Packed and blocked channels, tiles that overlap along all axes, in one layer of tiles along z and in several.
    ((10, 18, 5), (12, 12, 12), (16, 20, 18), 1),
    ((16, 33, 32), (10, 8, 12), (12, 11, 21), 2),
    ((17, 10, 20), (20, 18, 18), (14, 30, 31), 1),
    # Vectors with neighbouring tiles of two turns along z, whose planes one task must write where they overlap.
    ((3, 5, 3), (6, 6, 6), (9, 6, 7), 1),
    # Thin volumes are cut along y, flat tiles have no columns.
    ((10, 18, 16), (6, 12, 12), (3, 24, 24), 1),
]


def gradients(net, output, batch, workers, plan):
    """Loss, gradients and outputs of graphs for so many workers, and the tasks of the forward one."""
    with Model(
        net, output, batch, threads=2, loss="square", plan=plan,
        execution=Execution(cut_for=workers),
    ) as model:  # fmt: skip
        model.set_parameters(rn.random_parameters(net, 1))
        geometry = fit(net, output)
        x = rn.random_inputs(net, geometry, 0, batch)
        target = rn.random_targets(net, geometry, 0, batch)
        loss, found = model.loss_and_gradients(x, target)
        outputs = model.forward(x)
        # Tasks of an update would have to be declared for that, four times as many.
        forward = model._engine._graphs.executor("forward").graph
        return [np.float64(loss), *found.values(), np.asarray(outputs)], forward.size


@pytest.fixture
def short(monkeypatch):
    """Tasks as short as can be, as many as workers ask for."""
    grain = classmethod(lambda cls, work, workers: cls(1e-7, 1e-7, max(FEWEST, workers)))
    monkeypatch.setattr(Grain, "of", grain)


def spied(monkeypatch, module, name, seen):
    """Note what a function of a module returns."""
    own = getattr(module, name)

    def noted(*given, **named):
        seen.append(own(*given, **named))
        return seen[-1]

    monkeypatch.setattr(module, name, noted)


def spectral_plan(net, tile):
    passes = ("forward", "gradient", "weight")
    own = dict.fromkeys(passes, "spectral") | dict.fromkeys((f"{it}_tile" for it in passes), tile)
    return {edge.name: own | {"reason": ""} for edge in net.edges if edge.kind == "conv"}


@pytest.mark.quick(2)
@pytest.mark.lanes
@pytest.mark.parametrize(("images", "tile", "output", "batch"), SPECTRAL)
def test_tiles_by_planes_and_columns(images, tile, output, batch, short, monkeypatch):
    net, parts, first = winograd_chain(images), [], {}
    spied(monkeypatch, transforms, "plane_parts", parts)
    for workers in WORKERS:
        parts.clear()
        found, _ = gradients(net, output, batch, workers, spectral_plan(net, tile))
        first = first or found
        for mine, other in zip(found, first, strict=True):
            np.testing.assert_array_equal(mine, other)
        cut = max(parts) > 1
        # By many workers alone; never where regions tell no planes apart.
        assert not cut or workers > FEWEST
        assert cut or workers < 64 or output[0] < 8


@pytest.mark.lanes
def test_few_channels_by_planes_and_columns(short, monkeypatch):
    net, planes, expected = winograd_chain((12, 16, 5)), [], None
    spied(monkeypatch, few_source, "_emit_lane_planes", planes)
    for workers in WORKERS:
        planes.clear()
        found, _ = gradients(net, (12, 9, 10), 2, workers, spectral_plan(net, (10, 8, 8)))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert bool(planes) == (workers > FEWEST)


@pytest.mark.quick(1)
@pytest.mark.lanes
@pytest.mark.parametrize("images", [(33, 40, 50), (17, 66, 18)])
def test_staged_columns_by_outputs_and_rows(images, short, monkeypatch):
    for user in ("winograd", "winograd.passes"):
        module = import_module(f"znnpy.engine.convolution.{user}")
        monkeypatch.setattr(module, "goes_staged", lambda layout, shape: True)
    net, sizes, expected = winograd_chain(images), {}, None
    for workers in (3, *WORKERS):
        found, sizes[workers] = gradients(net, (9, 12, 10), 1, workers, winograd_plan(net))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
    monkeypatch.setattr(Grain, "rounds", lambda *_: 1)
    uncut = {
        workers: gradients(net, (9, 12, 10), 1, workers, winograd_plan(net))[1]
        for workers in (3, 64)
    }
    assert sizes[3] == uncut[3]
    assert sizes[64] > uncut[64]


@pytest.mark.lanes
def test_gradients_of_large_filters_by_planes_and_columns(short, monkeypatch):
    """Of more taps than `FEW`, in the gradient of one vector of filters and of several."""
    net = winograd_chain((10, 18, 3), size=(5, 3, 7))
    parts, expected = [], None
    spied(monkeypatch, filter_gradients, "plane_parts", parts)
    for workers in WORKERS:
        parts.clear()
        found, _ = gradients(net, (9, 8, 9), 1, workers, spectral_plan(net, (10, 8, 12)))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert max(parts) <= 1 if workers <= FEWEST else max(parts) > 1


@pytest.mark.lanes
@pytest.mark.parametrize("exchanged", [False, True])
def test_few_large_filters_by_planes_and_columns(exchanged, short, monkeypatch):
    """Those of first layers; conjugate, or exchanged for the data gradient, which has tiles of its own."""
    net = winograd_chain((2, 3, 2), size=(5, 3, 7))
    plan = spectral_plan(net, (10, 8, 12))
    if exchanged:
        plan = {name: it | {"gradient_tile": (8, 6, 10)} for name, it in plan.items()}
    made, expected, planes = [], None, filters._emit_columns_to

    def noted(which, place):
        made.append(not which.exchanged)
        planes(which, place)

    monkeypatch.setattr(filters, "_emit_columns_to", noted)
    for workers in WORKERS:
        made.clear()
        found, _ = gradients(net, (9, 8, 9), 1, workers, plan)
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert set(made) == (
            ({True, False} if exchanged else {True}) if workers > FEWEST else set()
        )


@pytest.mark.lanes
@pytest.mark.parametrize("batch", [64, 30])
def test_rows_of_fewer_samples_in_fully_connected_layers(batch, short, monkeypatch):
    """Forward, and back to a pooled node, whose gradient has no bias that rows would add up."""
    images = Node("input", "input", 1), Node("a", "transfer", 18, "relu"), Node("p", "transfer", 18)
    rest = Node("b", "transfer", 40, "relu"), Node("out", "transfer", 3)
    edges = (
        Edge("c1", "conv", "input", "a", size=(1, 3, 3)),
        Edge("p1", "max_pool", "a", "p", size=(1, 2, 2)),
        Edge("c2", "conv", "p", "b", size=(1, 4, 4)),
        Edge("c3", "conv", "b", "out"),
    )
    net, rows, expected = Network(images + rest, edges), [], None
    passes = dict.fromkeys(("forward", "gradient", "weight"), "direct")
    plan = {it.name: passes | {"reason": ""} for it in edges if it.kind == "conv"}
    spied(monkeypatch, direct_passes, "in_a_row", rows)
    for workers in WORKERS:
        rows.clear()
        found, _ = gradients(net, (1, 1, 1), batch, workers, plan)
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        samples = {row.each for _, *both in rows for row in both if isinstance(row, Row)}
        # Panels of output channels may be enough for some workers.
        assert workers > FEWEST or min(samples) >= ROW_SAMPLES
        assert workers < 64 or min(samples) < ROW_SAMPLES


@pytest.mark.lanes
@pytest.mark.parametrize("sparsity", [(1, 1, 1), (1, 2, 1)])
def test_marches_of_single_rows_where_there_are_fewer_than_workers(sparsity, short, monkeypatch):
    """Only where nothing is summed: a gradient that leaves sums for a bias has the same leaves for all."""
    net, made, expected = winograd_chain((16, 18, 20), sparsity), [], None
    own = winograd_passes._cuts
    monkeypatch.setattr(winograd_passes, "spreads", lambda *_, **__: False)

    def noted(*given, by_rows):
        found = list(own(*given, by_rows=by_rows))
        # Rows of each lattice.
        rows = min(len(task.rows) for task in found) // given[2][1]
        made.append((given[5] is light_ranges, rows))
        return found

    monkeypatch.setattr(winograd_passes, "_cuts", noted)
    for workers in WORKERS:
        made.clear()
        found, _ = gradients(net, (8, 24, 12), 1, workers, winograd_plan(net))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        summed = {rows for sums, rows in made if sums}
        others = min(rows for sums, rows in made if not sums)
        assert min(summed) >= 2
        assert others == 1 if workers == 64 else others >= 2 or workers > FEWEST


@pytest.mark.quick(1)
@pytest.mark.lanes
@pytest.mark.parametrize(
    ("images", "sparsity", "output", "batch"),
    [
        ((16, 33, 20), (1, 1, 1), (8, 24, 12), 1),
        ((16, 18, 20), (2, 2, 1), (9, 10, 12), 2),
        # Thin volumes are cut along y.
        ((20, 17, 16), (1, 1, 1), (3, 24, 12), 1),
    ],
)
def test_stages_where_marches_are_fewer_than_workers(images, sparsity, output, batch, short):
    """Only where nothing is summed; few workers march, as many do where there is a row of tiles for each."""
    net, expected = winograd_chain(images, sparsity), None
    for workers in WORKERS:
        found, _ = gradients(net, output, batch, workers, winograd_plan(net))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        staged = stages(net, output, batch, workers, winograd_plan(net))
        # Gradients leave sums for biases behind.
        forward = {(edge.name, Pass.FORWARD) for edge in net.edges[1:]}
        assert staged == (forward if workers == 64 else staged & forward)
        assert not staged or workers > FEWEST


def test_gradients_without_sums_for_biases_in_stages(short):
    """Of a node that two layers read, whose gradient of the function is made where these meet."""
    images = Node("input", "input", 1), Node("a", "transfer", 16, "relu")
    rest = Node("b", "transfer", 16, "relu"), Node("out", "transfer", 16)
    edges = (
        Edge("c0", "conv", "input", "a", size=(3, 3, 3)),
        Edge("c1", "conv", "a", "b", size=(3, 3, 3), padding=((1, 1),) * 3),
        Edge("c2", "conv", "b", "out", size=(3, 3, 3), padding=((1, 1),) * 3),
        Edge("skip", "identity", "a", "out"),
    )
    net, expected = Network(images + rest, edges), None
    for workers in WORKERS:
        found, _ = gradients(net, (8, 24, 12), 1, workers, winograd_plan(net))
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)
    staged = stages(net, (8, 24, 12), 1, 64, winograd_plan(net))
    assert staged == {("c1", Pass.FORWARD), ("c2", Pass.FORWARD), ("c1", Pass.BACKWARD)}


def test_as_many_marches_as_workers_stay(short):
    net = winograd_chain((16, 18, 20))
    assert stages(net, (16, 32, 12), 1, 64, winograd_plan(net))
    assert not stages(net, (62, 14, 12), 1, 64, winograd_plan(net))


def stages(net, output, batch, workers, plan):
    """The passes of edges that go in stages for so many workers."""
    with Model(
        net, output, batch, threads=1, loss="square", plan=plan,
        execution=Execution(cut_for=workers),
    ) as model:  # fmt: skip
        found = identities(model.task_graph_for(workers))
        return {(it.owner, it.serves) for it in found if it.part is Part.INVERSE}


def test_pooled_planes_of_predictions_are_cut_where_windows_share_none(short):
    tasks = {}
    for stride in (1, 2):
        nodes = Node("input", "input", 1), Node("a", "transfer", 16), Node("p", "transfer", 16)
        edges = (
            Edge("c", "conv", "input", "a", size=(1, 1, 1)),
            Edge("m", "max_pool", "a", "p", size=(2, 2, 2), stride=(stride,) * 3),
        )
        net = Network(nodes, edges)
        with Model(net, (12, 8, 8), training=False, execution=Execution(cut_for=64)) as model:
            tasks[stride] = model.task_graph.names.count("m")
    # Of each block of channels every plane, of 12, or two of overlapping windows'.
    assert tasks[2] == 6 * tasks[1] >= 12


def test_direct_planes_that_are_a_few_more_than_workers_are_cut_by_rows(short):
    images = min(16, 2 * LANES)  # of one panel
    nodes = Node("input", "input", 1), Node("a", "transfer", images)
    net = Network(nodes, (Edge("c", "conv", "input", "a", size=(1, 3, 3)),))
    tasks = {}
    plan = {"c": dict.fromkeys(("forward", "gradient", "weight"), "direct") | {"reason": ""}}
    for planes, workers in ((18, 4), (16, 16), (18, 16)):
        with Model(
            net, (planes, 16, 16), training=False, plan=plan, execution=Execution(cut_for=workers)
        ) as model:
            tasks[planes, workers] = model.task_graph_for(workers).names.count("c")
    assert tasks == {(18, 4): 18, (16, 16): 16, (18, 16): 72}
