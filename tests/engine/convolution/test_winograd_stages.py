"""Winograd's minimal filtering in stages: the values of whole slabs of tiles, bit by bit."""

from importlib import import_module

import pytest
from against_reference import drawn_case, errors
from chains import ONE, winograd_chain, winograd_plan

from znnpy import Execution, Model
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.plan.algorithms import winograd
from znnpy.profile.command import flops_by_task
from znnpy.profile.report import CONVOLUTION

# Thin volumes are cut along y, where lattices share planes; others along z, where rows of tiles do.
LAYERS = [
    ((3, 5, 2), ONE, (1, 1, 1), 1),
    ((17, 16, 33), ONE, (7, 19, 11), 2),
    ((10, 12, 3), (2, 3, 2), (11, 26, 13), 1),
    ((5, 20, 4), (1, 2, 3), (3, 33, 9), 1),
    ((33, 40, 18), ONE, (17, 30, 6), 1),
]


@pytest.fixture(params=[(1, True), (1, False), (9, True), (9, False), (64, True)])
def stages(request, monkeypatch):
    """All layers in stages, of groups of about so many tiles; with filters made on the way, or read."""
    tiles, made = request.param

    def apply(staged=True):
        emitters = "znnpy.engine.convolution.winograd"
        for user in ("", ".passes"):
            monkeypatch.setattr(
                import_module(emitters + user), "goes_staged", lambda layout, shape: staged
            )
        for user in ("", ".stages", ".filters"):
            module = import_module(emitters + user)
            monkeypatch.setattr(module, "on_the_way", lambda layout, shape: staged and made)
        monkeypatch.setattr(winograd, "GROUP_TILES", tiles)

    return apply


@pytest.mark.share(12)
@pytest.mark.quick(5)
@pytest.mark.parametrize(("images", "sparsity", "output", "batch"), LAYERS)
def test_values_and_gradients(stages, images, sparsity, output, batch):
    stages()
    net = winograd_chain(images, sparsity)
    assert max(errors(net, output, winograd_plan(net), batch).values()) < 3e-5


def bits(net, output, batch, threads=1):
    """Of outputs and gradients, by name."""
    with Model(
        net,
        output,
        batch=batch,
        threads=threads,
        execution=Execution(steal_seed=threads),
        loss="square",
        plan=winograd_plan(net),
    ) as model:
        parameters, x, target, _, _ = drawn_case(net, output, "square", batch, 0)
        model.set_parameters(parameters)
        found = {"forward": model.forward(x)} | model.loss_and_gradients(x, target)[1]
        return {name: array.tobytes() for name, array in found.items()}, parts_of(model)


def parts_of(model):
    """Of the forward pass, which is a quarter of an update's tasks."""
    return {it.part for it in identities(model._engine._graphs.executor("forward").graph)}


@pytest.mark.share(12)
@pytest.mark.quick(3)
@pytest.mark.parametrize(("images", "sparsity", "output", "batch"), LAYERS)
def test_bits_are_those_of_slabs(stages, images, sparsity, output, batch):
    """But for gradients of biases, which are sums over tasks."""
    net = winograd_chain(images, sparsity)
    stages(staged=False)
    expected, _ = bits(net, output, batch)
    stages()
    found, parts = bits(net, output, batch)
    biases = {node.name for node in net.nodes}
    assert {name for name in found if found[name] != expected[name]} <= biases
    assert {Part.TILES, Part.WINOGRAD, Part.INVERSE} <= parts


@pytest.mark.share(8)
@pytest.mark.quick(2)
@pytest.mark.parametrize(("images", "sparsity", "output", "batch"), LAYERS[1:])
def test_bits_do_not_depend_on_threads(stages, images, sparsity, output, batch):
    stages()
    net = winograd_chain(images, sparsity)
    assert bits(net, output, batch, threads=3)[0] == bits(net, output, batch)[0]


def test_all_operations_are_counted_by_part(stages):
    """As many as in slabs, where they all belong to one part."""
    totals, net = [], winograd_chain((17, 16, 33))
    for staged in (False, True):
        stages(staged=staged)
        with Model(net, (9, 18, 7), threads=1, plan=winograd_plan(net)) as model:
            flops, made = flops_by_task(model), set(identities(model.task_graph))
        assert {it for it in made if it.kind in CONVOLUTION} <= set(flops)
        totals.append(sum(flops.values()))
    assert totals[1] == pytest.approx(totals[0])
