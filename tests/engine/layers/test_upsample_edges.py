"""Upsampling in networks: values and gradients beside float64, the same bits for any number of threads."""

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network

from znnpy.layers.edge_kind import Applied
from znnpy.layers.types import ONCE, Numbers
from znnpy.layers.upsampling import UPSAMPLE

MODES = ("nearest", "linear", "corners")


def pyramid(images, factor, mode, *, concat=False):
    """A strided convolution, upsampling, and a convolution; or beside what was there before."""
    last = images + 5 if concat else images
    nodes = [
        ("input", "input", 2), ("a", "transfer", 5, {"function": "relu"}), ("b", "transfer", images),
        ("c", "concat" if concat else "sum", last), ("out", "transfer", 3),
    ]  # fmt: skip
    edges = [
        ("conv", "input", "a", {"size": (1, 1, 1)}),
        ("conv", "a", "b", {"size": factor, "stride": factor}),
        ("upsample", "b", "c", {"factor": factor, "mode": mode}),
        *([("identity", "a", "c")] if concat else []),
        ("conv", "c", "out", {"size": (1, 2, 2)}),
    ]
    return network(nodes, edges)


@pytest.mark.share(14)
@pytest.mark.quick(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("images", [3, 33])
@pytest.mark.parametrize(
    ("factor", "output"),
    [
        ((1, 2, 2), (9, 7, 5)),
        ((2, 2, 2), (4, 3, 5)),
        ((3, 1, 4), (6, 4, 7)),
        ((1, 5, 1), (2, 19, 3)),
    ],
)
def test_all_passes(factor, output, images, mode):
    check_network(pyramid(images, factor, mode), output, batch=2)


@pytest.mark.parametrize("mode", MODES)
def test_beside_what_was_there_before(mode):
    check_network(pyramid(17, (2, 2, 2), mode, concat=True), (2, 3, 5))


def test_from_an_input():
    nodes = [("input", "input", 3), ("a", "sum", 3), ("out", "transfer", 2)]
    up = {"factor": (2, 2, 2), "mode": "linear"}
    edges = [
        ("upsample", "input", "a", up),
        ("conv", "a", "out", {"size": (2, 2, 2), "stride": (2, 2, 2)}),
    ]
    check_network(network(nodes, edges), (4, 3, 5))


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", MODES)
def test_same_bits_for_any_number_of_threads(mode):
    bits = [check_network(pyramid(18, (2, 2, 2), mode), (16, 15, 9), threads=n) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_what_a_voxel_sees_is_what_changes_it(mode, factor):
    edge = Numbers(factor=(1, 1, factor), mode=mode)
    along, size = UPSAMPLE.sizes(edge, ONCE)[2], 7
    made = UPSAMPLE.forward(np.eye(size)[None, :, None, None], Applied(edge, ONCE))[0, :, 0, 0]
    assert made.shape == (size, along.made(size))
    for voxel in range(made.shape[1]):
        low, high = along.seen(voxel, voxel)
        assert low <= np.flatnonzero(made[:, voxel]).min()
        assert np.flatnonzero(made[:, voxel]).max() <= high
