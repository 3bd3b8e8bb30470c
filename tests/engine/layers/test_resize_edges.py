"""Resizing in networks: values and gradients beside float64, the same bits for any number of threads."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network

from znnpy.engine.layers import resizing
from znnpy.geometry import fit_input
from znnpy.layers.edge_kind import Applied
from znnpy.layers.resizing import RESIZE
from znnpy.layers.types import ONCE, Interpolation, Numbers
from znnpy.network.dense_conversion import densest
from znnpy.network.patch_dependence import patch_dependence

MODES = get_args(Interpolation)


def network_of(images, mode, **given):
    """A convolution, a resize, and convolutions that make whole voxels of the input of it."""
    more = dict(given)
    stride = more.pop("stride", (1, 1, 1))
    size = more.pop("size", stride)
    nodes = [
        ("input", "input", 2), ("a", "transfer", images, {"function": "relu"}), ("b", "sum", images),
        ("out", "transfer", 3),
    ]  # fmt: skip
    edges = [
        ("conv", "input", "a", {"size": (1, 2, 2)}),
        ("resize", "a", "b", {"mode": mode, **more}),
        ("conv", "b", "out", {"size": size, "stride": stride}),
    ]
    return network(nodes, edges)


CASES = [
    ({"factor": (1, 3, 3), "divisor": (1, 2, 2), "stride": (1, 3, 3)}, (3, 4, 6)),
    ({"factor": (2, 1, 1), "divisor": (3, 2, 1), "stride": (2, 1, 1)}, (4, 5, 3)),
    ({"more": (0, 1, 1)}, (4, 6, 5)),
    ({"factor": (2, 2, 2), "more": (-1, 0, -1), "size": (1, 2, 1), "stride": (2, 2, 2)}, (2, 3, 4)),
]


@pytest.mark.share(18)
@pytest.mark.quick(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("more", "output"), CASES)
@pytest.mark.parametrize("images", [3, 33])
def test_all_passes(images, mode, more, output):
    check_network(network_of(images, mode, **more), output, batch=2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", MODES)
def test_same_bits_for_any_number_of_threads(mode):
    net = network_of(18, mode, more=(1, 1, 0))
    bits = [check_network(net, (16, 15, 9), threads=n) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("made", [3, 7, 9, 15])
def test_tasks_declare_the_planes_that_they_read(mode, made, monkeypatch):
    """As many as there are planes: those with a share, no others between them missing."""
    old, new = (SimpleNamespace(extent=n) for n in (7, made))
    build = SimpleNamespace(value=lambda name: old, maps=SimpleNamespace())
    build.maps.contributions, build.maps.backward = {"e": new}, {"e": old}
    declared = []
    monkeypatch.setattr(
        resizing, "plane_ranges", lambda tensor, n: [(i, i + 1) for i in range(tensor.extent)]
    )
    monkeypatch.setattr(resizing, "_add", lambda *given: declared.append(given[-1][1]))
    edge = SimpleNamespace(name="e", source="a", mode=mode)
    resizing.forward(None, build, edge)
    resizing.backward(None, build, edge, new)
    numbers = Numbers(factor=(1, 1, made), divisor=(1, 1, 7), mode=mode)
    matrix = RESIZE.forward(np.eye(7)[None, :, None, None], Applied(numbers, ONCE))[0, :, 0, 0]
    ranges = [np.flatnonzero(row) for row in [*matrix.T, *matrix]]
    assert declared == [(row[0], row[-1] + 1) if row.size else (0, 0) for row in ranges]


def test_an_old_voxel_that_none_takes_has_no_gradient():
    check_network(network_of(3, "nearest", divisor=(3, 2, 4)), (2, 3, 2))


def test_what_depends_on_the_patch_and_what_does_not():
    thirds = {"factor": (1, 3, 3), "divisor": (1, 2, 2), "stride": (1, 3, 3)}
    assert patch_dependence(network_of(2, "nearest", **thirds)) == ""
    assert patch_dependence(network_of(2, "linear", **thirds)) == "ends of resize (e1)"
    words = "places between ends of the patch (e1)"
    assert words in patch_dependence(network_of(2, "corners", **thirds))
    assert words in patch_dependence(network_of(2, "nearest", more=(0, 0, -1)))
    assert patch_dependence(network_of(2, "linear", divisor=(1, 2, 2))) == ""


def test_no_network_predicts_every_voxel_of_what_shrinks_without_a_stride():
    net = network_of(2, "linear", divisor=(1, 2, 2), stride=(1, 2, 2))
    assert densest(net) is net


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize("divisor", [1, 2, 3])
@pytest.mark.parametrize("more", [-2, 0, 1, 3])
def test_what_a_voxel_sees_is_what_changes_it(mode, factor, divisor, more):
    edge = Numbers(factor=(1, 1, factor), divisor=(1, 1, divisor), more=(0, 0, more), mode=mode)
    along, size = RESIZE.sizes(edge, ONCE)[2], 12
    made = RESIZE.forward(np.eye(size)[None, :, None, None], Applied(edge, ONCE))[0, :, 0, 0]
    assert made.shape == (size, along.made(size))
    assert list(along.sources(made.shape[1])) == [size]
    for voxel in range(made.shape[1]):
        low, high = along.seen(voxel, voxel)
        assert low <= np.flatnonzero(made[:, voxel]).min()
        assert np.flatnonzero(made[:, voxel]).max() <= high


@pytest.mark.parametrize("mode", MODES[:3])
def test_moved_by_a_period_the_inside_is_the_same(mode):
    edge = Numbers(factor=(1, 1, 3), divisor=(1, 1, 2), mode=mode)
    image = np.random.default_rng(0).standard_normal((1, 1, 1, 1, 20))
    parts = [RESIZE.forward(image[..., low : low + 16], Applied(edge, ONCE)) for low in (0, 4)]
    np.testing.assert_allclose(parts[0][..., 7:23], parts[1][..., 1:17], rtol=1e-14)


def test_sizes_and_distances():
    net = network_of(2, "nearest", factor=(1, 3, 3), divisor=(1, 2, 2), stride=(1, 3, 3))
    geometry = fit_input(net, (5, 13, 25))
    assert geometry.nodes["b"].shape == (5, 18, 36)
    assert geometry.output_shapes["out"] == (5, 6, 12)
    assert geometry.output_stride("out") == (1, 2, 2)
