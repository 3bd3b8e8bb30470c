"""Taps that meet no data have gradients of exactly 0 by every algorithm, and no optimiser moves them."""

import numpy as np
import pytest
from model_settings import model_of
from odd_networks import network

from znnpy import Model, Optimizer
from znnpy.engine.convolution.passes import CONV_EMITTERS

# By name: images of the padded layer's source and target, the method of its passes.
WAYS = {
    "direct": (17, 18, "direct", None),
    "winograd": (17, 18, "winograd", None),
    "spectral": (16, 32, "spectral", [6, 8, 8]),
    "spectral, few channels": (2, 17, "spectral", [8, 8, 8]),
    "packed": (10, 5, "spectral", [8, 6, 8]),
    "by columns": (10, 5, "spectral", [16, 16, 32]),
    "fft": (5, 17, "fft", None),
}
# Filters that reach beyond all of small images; Winograd's do so on one side alone.
REACHING = {way: {"size": (5, 5, 5), "padding": "same"} for way in WAYS}
REACHING["winograd"] = {"size": (3, 3, 3), "padding": ((2, 0), (0, 2), (1, 1))}
LONG, FLAT, SMALL = (1, 2, 9), (5, 1, 3), (2, 2, 2)
OUTPUTS = 2


def layer(source, target, kind="conv", apart=(1, 1, 1), **numbers):
    """A chain of three layers, of which the padded one is in the middle."""
    nodes = [
        ("input", "input", 2),
        ("a", "transfer", source, {"function": "linear"}),
        ("b", "transfer", target, {"function": "linear"}),
        ("c", "transfer", OUTPUTS, {"function": "linear"}),
    ]
    edges = [
        ("conv", "input", "a", {"size": apart, "stride": apart}),
        (kind, "a", "b", numbers),
        ("conv", "b", "c", {"size": (1, 1, 1)}),
    ]
    return network(nodes, edges)


def plan(net, algorithm, tile):
    """The padded layer's passes by one method, the others by direct convolution."""
    passes = ("forward", "gradient", "weight")
    tiles = {f"{which}_tile": tile for which in passes if tile}
    found = {edge.name: dict.fromkeys(passes, "direct") for edge in net.edges}
    return found | {"e1": dict.fromkeys(passes, algorithm) | tiles}


def data(model):
    rng = np.random.default_rng(3)
    shape = model.batch, OUTPUTS, *model.output_shape
    x = rng.standard_normal((model.batch, 2, *model.input_shape)).astype(np.float32)
    return x, rng.random(shape).astype(np.float32)


def gradients(net, output, **options):
    with model_of(net, output, 2, seed=5, loss="square", **options) as model:
        return model.loss_and_gradients(*data(model))[1]["e1"]


def check(net, output, algorithm, tile):
    """The padded layer's gradient beside float64's; gives how many of it are 0."""
    wanted = gradients(net, output, precision="float64")
    found = gradients(net, output, threads=2, plan=plan(net, algorithm, tile))
    np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())
    nothing = wanted == 0
    assert not found[nothing].any()
    return nothing.sum()


def test_every_algorithm_is_here():
    assert {way[2] for way in WAYS.values()} | {"depthwise"} == CONV_EMITTERS.keys()


@pytest.mark.parametrize("output", [LONG, FLAT, SMALL])
@pytest.mark.parametrize("way", WAYS)
def test_taps_that_meet_padding_alone(way, output):
    source, target, *method = WAYS[way]
    assert check(layer(source, target, **REACHING[way]), output, *method)


@pytest.mark.share(14)
@pytest.mark.quick(3)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "winograd"])
@pytest.mark.parametrize(
    ("output", "numbers"),
    [
        ((1, 2, 3), {"size": (2, 5, 7), "padding": "same"}),
        ((3, 3, 2), {"size": (3, 3, 3), "sparsity": (1, 3, 2), "padding": "same"}),
        ((2, 4, 3), {"size": (3, 5, 1), "padding": ((0, 2), (4, 3), (0, 0))}),
        (
            (4, 2, 5),
            {"size": (3, 3, 3), "sparsity": (3, 2, 1), "padding": ((4, 4), (0, 3), (2, 0))},
        ),
    ],
)
def test_of_any_size_dilation_and_padding(way, output, numbers):
    source, target, *method = WAYS[way]
    assert check(layer(source, target, **numbers), output, *method)


@pytest.mark.parametrize("algorithm", ["direct", "spectral"])
@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
def test_of_layers_with_strides(algorithm, kind):
    numbers = {"size": (3, 4, 5), "stride": (1, 2, 2), "padding": ((1, 1), (2, 2), (4, 4))}
    apart = (1, 2, 2) if kind == "conv_transpose" else (1, 1, 1)
    tile = [8, 8, 8] if algorithm == "spectral" else None
    net = layer(17, 18, kind, apart, **numbers)
    assert check(net, (1, 2, 3), algorithm, tile)


@pytest.mark.parametrize("border", ["replicate", "reflect"])
def test_voxels_beyond_the_border_that_are_no_zeros_are_met(border):
    net = layer(5, 17, border=border, **REACHING["fft"])
    assert gradients(net, (3, 3, 4), plan=plan(net, "fft", None)).all()


@pytest.mark.parametrize("way", WAYS)
def test_images_that_are_0_have_gradients_of_0(way):
    """Filters of an image that is 0 everywhere, and those of one that nobody looks at."""
    source, target, *method = WAYS[way]
    net = layer(source, target, **REACHING[way])
    with Model(net, (6, 5, 6), 2, seed=5, loss="square", plan=plan(net, *method)) as model:
        values = model.parameters
        values["e0"][1] = 0
        values["e2"][:, 0] = 0
        model.set_parameters(values)
        found = model.loss_and_gradients(*data(model))[1]["e1"]
    assert not found[:, 1].any()
    assert not found[0].any()
    assert np.delete(found[1:], 1, 1).all()


@pytest.mark.parametrize("way", WAYS)
def test_adam_moves_no_tap_that_meets_nothing(way):
    source, target, *method = WAYS[way]
    net, moved = layer(source, target, **REACHING[way]), {}
    for threads, chosen in ((2, method), (1, method), (1, ("direct", None))):
        with Model(net, SMALL, 2, threads=threads, seed=5, loss="square",
                   optimizer=Optimizer("adam"), plan=plan(net, *chosen)) as model:  # fmt: skip
            before = model.parameters["e1"].copy()
            for _ in range(5):
                model.step(*data(model), learning_rate=0.01)
            moved[threads, chosen[0]] = model.parameters["e1"] - before
    one, two = moved[1, method[0]], moved[2, method[0]]
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one == 0, moved[1, "direct"] == 0)
    np.testing.assert_allclose(one, moved[1, "direct"], atol=1e-3)
