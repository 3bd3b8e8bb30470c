"""Strided and transposed convolutions in spectral tiles: every pass beside float64, the same bits for any threads.

`ZNNPY_DRAWS=200` draws so many of each.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network
from znnpy_kernels.simd.lanes import LANES

from znnpy import Model
from znnpy.engine.convolution.spectral.buffers import is_few
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.geometry import fit
from znnpy.plan import PASSES, ConvShape, choose
from znnpy.plan.algorithms.spectral import dense
from znnpy.plan.cost import LANES_COUNTED

DRAWS = int(os.environ.get("ZNNPY_DRAWS", "12"))
FUNCTIONS = ("relu", "leaky_relu", "tanh", "linear")
BORDERS = ("zeros", "replicate", "reflect")
IMAGES = (1, 2, 3, 5, 16, 17, 33)


def triple(rng, low, high):
    return tuple(int(n) for n in rng.integers(low, high + 1, 3))


def strided(rng):
    """Filters of 1 to 7 taps, strides and dilations, half of them with some padding."""
    size, stride, sparsity = triple(rng, 1, 7), triple(rng, 1, 3), triple(rng, 1, 2)
    numbers = {"size": size, "stride": stride, "sparsity": sparsity}
    if rng.random() < 0.5:
        reach = [(n - 1) * d for n, d in zip(size, sparsity, strict=True)]
        most = [1 + min(2, far) for far in reach]
        numbers["padding"] = tuple(tuple(int(n) for n in rng.integers(0, m, 2)) for m in most)
        border = str(rng.choice(BORDERS))
        if any(map(any, numbers["padding"])):
            numbers["border"] = border
    return numbers


def node(rng, name, kind, images):
    function = str(rng.choice(FUNCTIONS))
    more = {"function": function, "slope": 0.1, "bias": bool(rng.random() < 0.8)}
    return name, kind, images, more


def drawn(rng):
    """Two convolutions in a row, the first from an input."""
    images = [int(n) for n in rng.choice(IMAGES, 3)]
    kinds = zip(("input", "a", "out"), ("input", "transfer", "transfer"), images, strict=True)
    nodes = [node(rng, *each) for each in kinds]
    edges = [("conv", "input", "a", strided(rng)), ("conv", "a", "out", strided(rng))]
    return network(nodes, edges), triple(rng, 4, 7)


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_all_passes_of_drawn_layers(seed):
    check_network(*drawn(np.random.default_rng(seed)), conv="spectral", threads=1)


def grown(rng):
    """A strided convolution and a transposed one by which images grow again."""
    images = [int(n) for n in rng.choice(IMAGES, 3)]
    kinds = zip(("input", "a", "out"), ("input", "transfer", "transfer"), images, strict=True)
    nodes = [node(rng, *each) for each in kinds]
    size, stride, sparsity = triple(rng, 1, 7), triple(rng, 1, 3), triple(rng, 1, 2)
    padding = tuple(
        (int(rng.integers(0, 1 + min(2, reach))), int(rng.integers(0, 1 + min(2, reach))))
        for reach in ((n - 1) * d // 2 for n, d in zip(size, sparsity, strict=True))
    )
    more = tuple(int(rng.integers(0, n)) for n in stride)
    numbers = {
        "size": size, "stride": stride, "sparsity": sparsity, "padding": padding,
        "output_padding": more,
    }  # fmt: skip
    edges = [
        ("conv", "input", "a", {"size": (1, 2, 1), "stride": stride}),
        ("conv_transpose", "a", "out", numbers),
    ]
    shape = tuple(
        (n - 1) * s + (k - 1) * d + 1 - sum(sides) + add
        for n, s, k, d, sides, add in zip(
            triple(rng, 3, 6), stride, size, sparsity, padding, more, strict=True
        )
    )
    return network(nodes, edges), shape


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_all_passes_of_drawn_transposed_layers(seed):
    check_network(*grown(np.random.default_rng(seed)), conv="spectral", threads=1)


LAYERS = [
    ("conv", "input", "a", {"size": (5, 5, 5), "stride": (2, 2, 2), "padding": ((2, 2),) * 3}),
    ("conv", "a", "b", {"size": (5, 4, 3), "stride": (2, 2, 2), "padding": ((2, 2), (1, 1), (1, 1))}),
    ("conv_transpose", "b", "c", {"size": (4, 4, 4), "stride": (2, 2, 2), "padding": ((1, 1),) * 3}),
    ("conv_transpose", "c", "out", {"size": (5, 5, 5), "stride": (2, 2, 2), "padding": ((2, 2),) * 3,
                                    "output_padding": (1, 1, 1)}),
]  # fmt: skip


@pytest.fixture(name="hourglass")
def _hourglass():
    nodes = [("input", "input", 2)]
    nodes += [(name, "transfer", 18, {"function": "relu"}) for name in ("a", "b", "c", "out")]
    return network(nodes, LAYERS), (16, 16, 16)  # tiles of 8 have seams along each axis


@pytest.mark.slow
@pytest.mark.parametrize("threads", [(1, 3), (1, 2, 8)])
def test_same_bits_for_any_number_of_threads(hourglass, threads):
    first, *others = (check_network(*hourglass, conv="spectral", threads=n) for n in threads)
    assert all(other == first for other in others)


def test_no_pass_runs_directly(hourglass):
    with Model(*hourglass, threads=1, conv="spectral") as model:
        parts = {what.part for what in identities(model.task_graph)}
    assert Part.DIRECT not in parts


@pytest.mark.quick(1)
@pytest.mark.parametrize("gradient_tile", [(8, 8, 8), (6, 8, 10)])
@pytest.mark.parametrize(
    "passes", [("forward",), ("gradient",), ("weight",), ("forward", "gradient"), PASSES]
)
def test_any_pass_may_be_spectral(hourglass, passes, gradient_tile):
    tiles = {"forward": (8, 8, 8), "gradient": gradient_tile, "weight": (8, 8, 8)}
    layer = dict.fromkeys(PASSES, "direct") | dict.fromkeys(passes, "spectral")
    layer |= {f"{which}_tile": tiles[which] for which in passes}
    plan = {edge.name: layer for edge in hourglass[0].edges}
    check_network(*hourglass, plan=plan, threads=1)


def test_predictions_are_those_of_training(hourglass):
    net, shape = hourglass
    with Model(net, shape, threads=1, conv="spectral") as model:
        x = np.random.default_rng(1).standard_normal((1, 2, *model.input_shape)).astype(np.float32)
        wanted, parameters = model.forward(x), model.parameters
    with Model(net, shape, threads=1, conv="spectral", training=False) as model:
        model.set_parameters(parameters)
        np.testing.assert_allclose(model.forward(x), wanted, atol=1e-5 * np.abs(wanted).max())


def test_filters_that_are_kept_for_all_microbatches(hourglass):
    check_network(*hourglass, conv="spectral", microbatch=1, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("images", [(17, 20), (20, 17)])
def test_transposed_layers_of_one_phase_in_large_tiles(images):
    """Tiles that leave the cache, images that are packed: what goes column by column where filters go along."""
    first, last = images
    nodes = [("input", "input", 1), ("a", "transfer", first), ("out", "transfer", last)]
    edges = [
        ("conv", "input", "a", {"size": (1, 1, 2)}),
        ("conv_transpose", "a", "out", {"size": (3, 3, 3)}),
    ]
    layer = dict.fromkeys(PASSES, "spectral") | {f"{which}_tile": (22, 22, 22) for which in PASSES}
    net = network(nodes, edges)
    plan = {
        edge.name: layer if edge.kind == "conv_transpose" else dict.fromkeys(PASSES, "direct")
        for edge in net.edges
    }
    check_network(net, (24, 23, 22), plan=plan, threads=1)


def test_strided_layers_that_see_as_many_taps_of_different_sizes():
    """3 and 4 taps with a stride of 2 are 2 taps a phase; of an odd number of voxels they make different numbers."""
    nodes = [
        ("input", "input", 1),
        ("a", "transfer", 9),
        ("b", "transfer", 9),
        ("out", "transfer", 2),
    ]
    padding = {"stride": (2, 2, 2), "padding": ((1, 1),) * 3}
    edges = [
        ("conv", "input", "a", {"size": (3, 3, 3)} | padding),
        ("conv", "input", "b", {"size": (4, 4, 4)} | padding),
        ("conv", "a", "out", {"size": (3, 3, 3)}),
        ("conv", "b", "out", {"size": (2, 2, 2)}),
    ]
    layer = dict.fromkeys(PASSES, "spectral") | {f"{which}_tile": (6, 6, 6) for which in PASSES}
    net = network(nodes, edges)
    plan = {edge.name: layer for edge in net.edges}
    check_network(net, (9, 9, 9), plan=plan, threads=1)


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (1, 2, 2), (1, 1, 2)])
@pytest.mark.parametrize("images", [2, 4, 6, 8, 16])
def test_plans_and_tasks_agree_on_where_lanes_go_over_tiles(images, stride):
    """Of vectors that are wider or narrower than those that plans count with, so many more or fewer images."""
    images = max(1, images * LANES // LANES_COUNTED)
    nodes = [("input", "input", images, {}), ("out", "transfer", 16, {})]
    net = network(nodes, [("conv", "input", "out", {"size": (5, 5, 5), "stride": stride})])
    geometry = fit(net, (4, 4, 4))
    plan = choose(net, geometry, 1, "spectral", lambda _: {})
    (edge,), layout = net.edges, Layout(net, geometry, plan, 1, training=True)
    shape = ConvShape.of(edge, net, geometry, 1)
    shape = replace(shape, inputs=images * LANES_COUNTED // LANES)
    assert is_few(Build.new(Arena(), layout, 0), edge) == dense(shape).planar
