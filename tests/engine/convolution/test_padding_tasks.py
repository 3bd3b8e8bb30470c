"""Padded convolutions by every algorithm in all passes: voxels beyond images, against float64."""

import numpy as np
import pytest
from against_reference import check_network
from odd_networks import network

from znnpy import Model
from znnpy.engine.tasks.task_identity import Part, identities

BORDERS = ("zeros", "replicate", "reflect")
EVEN, UNEVEN, ONE_SIDED = (
    ((1, 1), (1, 1), (1, 1)),
    ((2, 0), (0, 1), (1, 2)),
    ((0, 0), (2, 2), (0, 0)),
)
# By name: images of three nodes in a row, and the method of the convolutions between them.
WAYS = {
    "direct": ((17, 33, 16), "direct", None),
    "direct, planar between": ((17, 3, 18), "direct", None),
    "winograd": ((17, 33, 16), "winograd", None),
    "spectral": ((16, 32, 16), "spectral", [6, 8, 8]),
    "packed": ((10, 17, 5), "spectral", [8, 6, 8]),
    "by columns": ((10, 17, 10), "spectral", [16, 16, 32]),
    "fft": ((5, 17, 3), "fft", None),
}


def chain(images, then=None, **more):
    """An input of two images, then padded convolutions in a row; `then`: numbers of all but the first."""
    names = ["input", "a", "b", "c"]
    nodes = [("input", "input", 2)]
    nodes += [
        (name, "transfer", count, {"function": function})
        for name, count, function in zip(
            names[1:], images, ("relu", "linear", "linear"), strict=True
        )
    ]
    numbers = {"size": (3, 3, 3), **more}
    edges = [("conv", "input", "a", numbers)]
    edges += [("conv", one, other, numbers | (then or {})) for one, other in ("ab", "bc")]
    return network(nodes, edges)


def by(algorithm, tile):
    """Record of a layer with all passes by one method."""
    passes = ("forward", "gradient", "weight")
    tiles = {f"{which}_tile": tile for which in passes if tile}
    return dict.fromkeys(passes, algorithm) | tiles


def plan(net, algorithm, tile):
    """All layers by one method, but those of the input's images where it takes blocks alone."""
    first = "direct" if algorithm == "winograd" else algorithm
    return {
        edge.name: by(first if edge.source == "input" else algorithm, tile) for edge in net.edges
    }


PADDINGS = EVEN, UNEVEN, ONE_SIDED
# Frames are made before any algorithm reads them: all pairs of two of the three, and more by the direct one.
PASSES = [
    (way, BORDERS[(b + n) % 3], PADDINGS[(b + 2 * n + more) % 3])
    for more in range(3)
    for b in range(3)
    for n, way in enumerate(WAYS)
    if not more or way == "direct"
]


@pytest.mark.share(18)
@pytest.mark.quick(4)
@pytest.mark.parametrize(("way", "border", "padding"), PASSES)
def test_all_passes(way, border, padding):
    images, algorithm, tile = WAYS[way]
    net = chain(images, padding=padding, border=border)
    check_network(net, (5, 13, 9), plan=plan(net, algorithm, tile))


@pytest.mark.share(12)
@pytest.mark.quick(2)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("way", WAYS)
def test_all_passes_dilated(way, border):
    images, algorithm, tile = WAYS[way]
    wide = {"sparsity": (1, 2, 3), "padding": ((1, 2), (3, 2), (4, 3)), "border": border}
    net = chain(images, wide)
    check_network(net, (7, 8, 10), plan=plan(net, algorithm, tile))


@pytest.mark.quick(3)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("stride", [(2, 2, 2), (1, 2, 3)])
def test_strides(stride, border):
    net = chain((17, 16, 3), padding=UNEVEN, border=border, stride=stride)
    check_network(net, (3, 3, 4), conv="direct")


def branches(one, other, **more):
    """Two convolutions that see other voxels beyond the same images, and end at one node."""
    numbers = {"size": (3, 3, 3), "padding": EVEN}
    return network(
        [("input", "input", 1), ("a", "transfer", 17), ("b", "transfer", 20, {"function": "relu"}),
         ("c", "transfer", 3)],
        [("conv", "input", "a", numbers), ("conv", "input", "a", numbers | {"border": "reflect"}),
         ("conv", "a", "b", one), ("conv", "a", "b", other), ("conv", "b", "c", numbers)],
    )  # fmt: skip


OTHERS = [
    ({"border": "zeros"}, {"border": "replicate"}),
    ({"border": "reflect"}, {"border": "zeros"}),
    ({"padding": ((2, 0), (1, 1), (0, 2))}, {"padding": ((0, 2), (1, 1), (1, 1))}),
    ({"size": (1, 1, 1), "padding": ((0, 0),) * 3}, {}),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("way", ["direct", "winograd", "packed", "fft"])
@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_convolutions_that_see_other_voxels_beyond_the_same_images(way, one, other):
    if way == "winograd" and "size" in one:
        return
    _, algorithm, tile = WAYS[way]
    numbers = {"size": (3, 3, 3), "padding": EVEN}
    net = branches(numbers | one, numbers | other)
    check_network(net, (5, 6, 7), plan=plan(net, algorithm, tile))


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    ways = [("reflect", "direct"), ("zeros", "direct"), ("zeros", "winograd"), ("reflect", "packed"),
            ("zeros", "packed"), ("replicate", "winograd"), ("replicate", "fft")]  # fmt: skip
    nodes, edges, record = [("input", "input", 2)], [], {}
    for number, (border, way) in enumerate(ways):
        name, before = f"n{number}", nodes[-1][0]
        nodes.append((name, "transfer", 18, {"function": "relu"}))
        numbers = {"size": (3, 3, 3), "padding": UNEVEN, "border": border}
        edges.append(("conv", before, name, numbers))
        record[f"e{number}"] = by(*WAYS[way][1:])
    net = network(nodes, edges)
    bits = [check_network(net, (9, 5, 12), threads=n, plan=record) for n in (1, 3, 8)]
    assert all(other == bits[0] for other in bits[1:])


@pytest.mark.share(12)
@pytest.mark.quick(3)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("way", WAYS)
def test_prediction_alone_makes_the_same_bits(way, border):
    images, algorithm, tile = WAYS[way]
    net = chain(images, padding=UNEVEN, border=border)
    found = []
    for training in (True, False):
        with Model(net, (6, 5, 9), plan=plan(net, algorithm, tile), training=training) as model:
            rng = np.random.default_rng(0)
            values = {n: rng.standard_normal(a.shape) for n, a in model.parameters.items()}
            model.set_parameters(values)
            x = rng.standard_normal((1, 2, *model.input_shape))
            found.append([model.forward(x) for _ in range(2)])
    assert all(np.array_equal(found[0][0], other) for other in [*found[0], *found[1]])


def test_zeros_in_memory_of_their_own_are_filled_by_nobody():
    for training in (True, False):
        with Model(chain((16, 16, 16), padding=EVEN), 5, conv="direct", training=training) as model:
            owners = {it.owner for it in identities(model.task_graph) if it.part is Part.FRAME}
        assert owners
        assert "input" not in owners
