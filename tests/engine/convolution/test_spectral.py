"""Tiled spectral convolution in whole networks against the float64 reference."""

import numpy as np
import pytest
from against_reference import errors
from chains import ONE, two_layers
from znnpy_kernels.spectral.filter_tiles import filter_tiles

from znnpy import Model
from znnpy.engine.tasks.task_identity import Part, Pass, identities
from znnpy.network.types import Edge, Network, Node

CASES = [
    ((1, 10, 16), (3, 3, 3), ONE, (9, 8, 7), 1),
    ((3, 16, 33), (3, 3, 3), ONE, (7, 7, 7), 2),
    ((2, 40, 10), (3, 3, 3), (2, 2, 2), (5, 6, 7), 1),
    ((1, 5, 6), (3, 3, 3), (4, 4, 4), (3, 5, 6), 2),
    ((1, 10, 3), (5, 5, 5), ONE, (9, 10, 11), 1),
    ((1, 4, 2), (7, 7, 7), ONE, (8, 4, 11), 1),
    ((2, 17, 3), (1, 3, 3), ONE, (5, 20, 21), 2),
    ((1, 6, 2), (1, 11, 11), ONE, (1, 30, 31), 1),
]


@pytest.mark.quick(4)
@pytest.mark.parametrize(("channels", "size", "sparsity", "output", "batch"), CASES)
def test_layers(channels, size, sparsity, output, batch):
    found = errors(two_layers(channels, size, sparsity), output, "spectral", batch)
    assert max(found.values()) < 2e-5, found


@pytest.mark.parametrize(
    "back", [(6, 6, 6), (8, 6, 6)], ids=["shared filters", "exchanged filters"]
)
@pytest.mark.parametrize("cut_for", [1, 5, 64])
def test_filters_of_wide_layers_in_tasks_of_any_length(back, cut_for):
    # Panels of two vectors and of one; a last block of few channels: tasks begin and end within pieces.
    network = two_layers((3, 40, 88), (3, 3, 3))
    names = ("forward_tile", "gradient_tile", "weight_tile")
    plan = dict.fromkeys(("forward", "gradient", "weight"), "spectral")
    plan |= dict(zip(names, [(6, 6, 6), back, (6, 6, 6)], strict=True))
    plan = {edge.name: plan for edge in network.edges}
    found = errors(network, (5, 6, 7), plan, cut_for=cut_for)
    assert max(found.values()) < 2e-5, found


PACKED = [
    (1, (3, 3, 3), ONE, (9, 8, 17), (8, 8, 8), (8, 8, 8)),
    (1, (3, 3, 3), (2, 1, 2), (9, 8, 11), (6, 8, 6), (8, 6, 8)),
    (2, (5, 5, 5), ONE, (9, 20, 11), (10, 10, 10), (10, 10, 10)),
    (3, (1, 3, 3), ONE, (2, 20, 21), (1, 8, 8), (1, 8, 8)),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("images", "size", "sparsity", "output", "ahead", "back"), PACKED)
def test_few_images_with_lanes_over_tiles(images, size, sparsity, output, ahead, back):
    edge = Edge("c", "conv", "input", "out", size=size, sparsity=sparsity)
    out = Node("out", "transfer", 18, function="linear")
    network = Network((Node("input", "input", images), out), (edge,))
    layer = dict.fromkeys(("forward", "weight"), "spectral") | {"gradient": "direct"}
    plan = {"c": layer | {"forward_tile": ahead, "weight_tile": back}}
    found = [errors(network, output, plan, batch=2, threads=threads) for threads in (0, 3)]
    assert max(found[0].values()) < 2e-5, found
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "size", "sparsity", "output", "tiles"),
    [
        ((1, 10, 20), (3, 3, 3), (2, 1, 2), (7, 13, 9), [(8, 8, 6)] * 3),
        ((20, 3, 24), (3, 3, 3), (2, 1, 2), (7, 13, 9), [(8, 8, 6)] * 3),
        ((1, 10, 20), (5, 5, 5), (1, 2, 1), (20, 9, 21), [(16, 24, 24)] * 3),
        ((2, 5, 3), (3, 3, 3), ONE, (21, 9, 21), [(20, 20, 24), (24, 20, 20), (24, 20, 20)]),
    ],
)
def test_packed_tiles_do_not_depend_on_threads(channels, size, sparsity, output, tiles):
    network = two_layers(channels, size, sparsity)
    plan = dict.fromkeys(("forward", "gradient", "weight"), "spectral")
    names = ("forward_tile", "gradient_tile", "weight_tile")
    plan |= dict(zip(names, tiles, strict=True))
    plan = {edge.name: plan for edge in network.edges}
    found = [errors(network, output, plan, batch=2, threads=threads) for threads in (0, 3)]
    assert max(found[0].values()) < 2e-5, found
    assert found[0] == found[1]


@pytest.mark.slow
def test_rounding_is_at_most_four_times_that_of_direct():
    network = two_layers((8, 32, 32), (3, 3, 3))
    spectral = errors(network, (12, 12, 12), "spectral")
    direct = errors(network, (12, 12, 12), "direct")
    for name, error in spectral.items():
        assert error <= 4 * direct[name], (name, error, direct[name])


@pytest.mark.quick(2)
@pytest.mark.parametrize("kept", [1 << 30, 0])
@pytest.mark.parametrize("back", [(8, 8, 8), (8, 10, 6)])
def test_data_gradients_share_filters_where_tiles_are_equal(back, kept, monkeypatch):
    monkeypatch.setattr("znnpy.engine.convolution.spectral.filters.FILTERS_KEPT_BYTES", kept)
    monkeypatch.setattr("znnpy.plan.tiles.KEPT_BYTES", kept)
    network = two_layers((2, 18, 35), (3, 3, 3))
    tile = {"forward_tile": (8, 8, 8), "gradient_tile": back, "weight_tile": (8, 8, 8)}
    layer = dict.fromkeys(("forward", "gradient", "weight"), "spectral") | tile
    plan = {"c1": layer, "c2": layer}
    assert max(errors(network, (9, 8, 7), plan, batch=2).values()) < 2e-5
    # With so many workers each leaf is a task of its own.
    with Model(network, (9, 8, 7), threads=16, plan=plan) as model:
        graph = model.task_graph
        made = [
            (what.serves, graph.arguments(task)[filter_tiles.fields.index("conjugate")])
            for task, what in enumerate(identities(graph))
            if what.owner == "c2" and what.part is Part.FILTER_TILES
        ]
    again = {(Pass.BACKWARD, 1)} if kept == 0 else set()
    exchanged = {(Pass.BACKWARD, 0)}
    assert set(made) == {(Pass.FORWARD, 1)} | (again if back == (8, 8, 8) else exchanged)


def trained(threads):
    network = two_layers((2, 18, 5), (3, 3, 3), (2, 2, 2))
    rng = np.random.default_rng(5)
    with Model(network, (11, 12, 13), batch=2, seed=1, threads=threads, conv="spectral") as model:
        for _ in range(6):
            x = rng.standard_normal((2, 2, *model.input_shape)).astype(np.float32)
            target = rng.random((2, 5, 11, 12, 13)).astype(np.float32)
            model.step(x, target, learning_rate=0.1)
        return model.parameters


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    wanted = trained(0)
    for threads in (1, 2, 8):
        for name, values in trained(threads).items():
            np.testing.assert_array_equal(values, wanted[name])
