"""Which algorithm is chosen, and what a saved plan may say."""

import json
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from znnpy_kernels.fft.pruned_lines import MOST_TAPS

from znnpy.errors import PlanError
from znnpy.geometry import fit
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PASSES, ConvShape, LayerPlan, Method, Plan, choose
from znnpy.plan.algorithms.spectral import dense
from znnpy.plan.choose import DIRECT, candidates, estimated_seconds
from znnpy.plan.cost import MOST_PLANAR, PLANAR_INPUTS
from znnpy.plan.joint_choice import cheapest
from znnpy.plan.tiles import (
    _axis_sizes,
    _wanted_seconds,
    best_tiles,
    lattices,
    spectral_bytes,
    tile_count,
)
from znnpy.plan.types import SHARED

ONE = (1, 1, 1)
FFT = Method("fft")


def network(size=3, stride=1, images=8):
    nodes = (Node("input", "input", images), Node("out", "transfer", images))
    edge = Edge("c", "conv", "input", "out", size=(size,) * 3, stride=(stride,) * 3)
    return Network(nodes, (edge,))


def chosen(net, conv, costs=None, shape=(16, 16, 16)):
    def measure(shape):
        assert costs is not None, "measured although the estimates are clear"
        return costs, "measured"

    return choose(net, fit(net, shape), 1, conv, measure).layers["c"]


def costs(direct, fft, shared):
    return {
        DIRECT: dict(zip(PASSES, direct, strict=True)),
        FFT: dict(zip((*PASSES, *SHARED), (*fft, *shared), strict=True)),
    }


def test_what_is_told_is_done():
    assert chosen(network(), "fft").forward == "fft"
    assert chosen(network(), "direct").weight == "direct"
    assert chosen(network(stride=2), "fft").forward == "direct"


def test_small_filters_are_not_even_measured():
    assert chosen(network(size=1), "auto").uses("fft") is False


def test_huge_spectra_are_not_tried():
    # Spectra of whole images and filters would take far more than those of tiles.
    shape = ConvShape(40, 40, (9, 9, 9), ONE, ONE, (80, 80, 80), (72, 72, 72), 1)
    assert FFT not in candidates(shape)
    assert any(method.tile for method in candidates(shape))
    assert candidates(replace(shape, inputs=2000, outputs=2000)) == [Method("direct")]


def test_fft_is_not_tried_with_more_taps_than_it_takes():
    taps = (1, 1, MOST_TAPS + 1)
    shape = ConvShape(20, 20, taps, ONE, ONE, (1, 90, 90 + MOST_TAPS), (1, 90, 90), 1)
    assert FFT not in candidates(shape)
    assert FFT in candidates(replace(shape, size=(1, 1, MOST_TAPS)))


def test_shared_spectra_count_once():
    layer = cheapest(costs((5, 5, 5), (1, 1, 1), (3, 3, 3)))
    assert (layer.forward, layer.gradient, layer.weight) == ("fft", "fft", "fft")
    layer = cheapest(costs((5, 5, 5), (0.5, 1, 6), (2, 2, 9)))
    assert (layer.forward, layer.gradient, layer.weight) == ("fft", "direct", "direct")


@pytest.mark.parametrize("seed", range(5))
def test_the_cheapest_is_the_least_of_all(seed):
    rng = np.random.default_rng(seed)
    given = costs(rng.random(3), rng.random(3) / 2, rng.random(3) / 2)
    layer = cheapest(given)

    def total(forward, gradient, weight):
        steps = zip((forward, gradient, weight), PASSES, strict=True)
        sum_ = sum(given[how][step] for how, step in steps)
        sum_ += given[FFT]["images"] * (FFT in (forward, weight))
        sum_ += given[FFT]["filters"] * (FFT in (forward, gradient))
        return sum_ + given[FFT]["gradients"] * (FFT in (gradient, weight))

    least = min(total(*how) for how in product((DIRECT, FFT), repeat=3))
    assert total(*map(layer.method, PASSES)) == pytest.approx(least)


def tiled(tile, images, forward, gradient, weight):
    parts = {"forward": forward, "gradient": gradient, "weight": weight, "images": images}
    return {Method("spectral", tile): parts}


def test_spectra_of_tiles_are_shared_by_passes_with_the_same_tile_alone():
    small, large = (8, 8, 8), (16, 16, 16)
    given = tiled(small, 4, 1, 3, 3) | tiled(large, 4, 3, 1, 1)
    layer = cheapest(given)
    assert layer.forward_tile == layer.weight_tile
    assert layer.gradient_tile == large
    given = tiled(small, 1, 1, 3, 9) | tiled(large, 1, 9, 1, 1)
    layer = cheapest(given)
    assert (layer.forward_tile, layer.gradient_tile, layer.weight_tile) == (small, large, large)


def test_data_gradients_into_inputs_do_not_count():
    given = costs((5, 9, 5), (5, 0.1, 3), (1, 1, 1))
    assert cheapest(given).weight == "fft"
    layer = chosen(network(size=5), "auto", given)
    assert (layer.forward, layer.weight) == ("direct", "direct")


def test_tiles_serve_the_filter():
    assert 6 <= min(best_tiles(shape_of((3, 3, 3)), 1)[0]) <= 16
    assert best_tiles(shape_of((1, 3, 3)), 1)[0][0] == 1
    assert all(size >= 17 for size in best_tiles(shape_of((17, 17, 17)), 1)[0])
    assert best_tiles(shape_of((33, 3, 3)), 1) == []
    assert best_tiles(shape_of((1, 1, 1)), 1) == []
    larger, smaller = (prod(best_tiles(shape_of((k, k, k)), 1)[0]) for k in (7, 3))
    assert larger > smaller


@pytest.mark.parametrize("passes", [PASSES, ("forward",), ("gradient",)])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 10), (10, 10), (64, 20)])
@pytest.mark.parametrize("most", [1e7, np.inf])
def test_no_better_tile_is_passed_over(inputs, outputs, passes, most):
    """Of all combinations of sizes, most of which are left out by what they take at least."""
    rng = np.random.default_rng(inputs)
    for _ in range(4):
        target, dilation = (tuple(map(int, rng.integers(1, top, 3))) for top in (60, 5))
        source = tuple(size + 4 * apart for size, apart in zip(target, dilation, strict=True))
        shape = replace(
            shape_of((5, 3, 3)), inputs=inputs, outputs=outputs, passes=passes, dilation=dilation,
            source=source, target=target, planar=inputs == 1 and "gradient" not in passes,
        )  # fmt: skip
        tiles = product(*(_axis_sizes(shape, axis) for axis in range(3)))
        own = [it for it in tiles if spectral_bytes(shape, it) <= most]
        ranked = sorted(own, key=lambda it: (_wanted_seconds(shape, it), it))
        wanted = {tuple(sorted(it)): it for it in reversed(ranked)}
        best = sorted(wanted.values(), key=ranked.index)
        assert best_tiles(shape, 6, most) == best[:6]


def test_tiles_far_from_the_best_are_not_measured():
    """Between many images the spectra of their filters for large tiles take gigabytes."""
    shape = replace(shape_of((3, 3, 3)), inputs=512, outputs=256, source=(8,) * 3, target=(8,) * 3)
    tiles = [method.tile for method in candidates(shape) if method.algorithm == "spectral"]
    assert tiles[0] == (6, 6, 6)
    assert (10, 10, 10) not in tiles
    assert (10, 10, 10) in best_tiles(shape, 9)


def shape_of(size):
    nodes = (Node("input", "input", 32), Node("out", "transfer", 32))
    net = Network(nodes, (Edge("c", "conv", "input", "out", size=size),))
    return dense(ConvShape.of(net.edges[0], net, fit(net, (48, 48, 48)), 1))


def test_tiles_of_dilated_layers_cover_every_lattice():
    # Lattices of 3, 3 and 2 points, four new points a tile.
    assert lattices(8, 3) == [3, 3, 2]
    assert tile_count((8, 1, 1), (3, 1, 1), (2, 1, 1)) == 5
    assert lattices(2, 4) == [1, 1]


def test_spectral_is_told_or_falls_back():
    layer = chosen(network(), "spectral")
    assert (layer.forward, layer.gradient, layer.weight) == ("spectral",) * 3
    assert layer.forward_tile
    assert chosen(network(size=1), "spectral").forward == "direct"
    assert chosen(network(size=35), "spectral").forward == "direct"
    assert chosen(network(stride=2), "spectral").forward == "spectral"
    assert chosen(network(size=2, stride=2), "spectral").forward == "direct"  # one tap a phase


@pytest.mark.parametrize(
    ("conv", "size", "stride", "words"),
    [
        ("winograd", 5, 1, "5x5x5 filters; direct and spectral and fft do"),
        ("winograd", 3, 3, "strides; direct does"),
        ("spectral", 2, 2, "2x2x2 filters with stride 2x2x2, of which each voxel meets one tap at most; direct does"),
        ("spectral", 1, 1, "1x1x1 filters with stride 1x1x1, of which each voxel meets one tap at most; "
                           "direct and fft do"),
        ("spectral", 35, 1, "35x35x35 filters with stride 1x1x1, whose taps no tile of 32 points holds; "
                            "direct and fft do"),
        ("fft", 3, 2, "strides; direct and winograd and spectral do"),
        ("fft", 2, 2, "strides; direct does"),
    ],
)  # fmt: skip
def test_layers_that_are_left_to_others_say_what_is_not_taken_and_who_takes_it(
    conv, size, stride, words
):
    layer = chosen(network(size=size, stride=stride), conv)
    assert layer.reason == f"{conv} takes no {words}"
    assert {layer.method(which) for which in PASSES} == {DIRECT}


def test_winograd_is_told_and_leaves_planar_inputs_to_others():
    layer = chosen(network(images=32), "winograd")
    assert {layer.method(which).algorithm for which in PASSES} == {"winograd"}
    nodes = (Node("input", "input", 1), Node("out", "transfer", 32))
    layer = chosen(Network(nodes, (Edge("c", "conv", "input", "out", size=(3,) * 3),)), "winograd")
    assert layer.reason == "winograd takes no inputs of one channel; direct and spectral and fft do"


def test_tiles_are_read_back_and_checked():
    tile = (8, 12, 16)
    plan = Plan({"c": LayerPlan("spectral", "direct", "fft", "because", forward_tile=tile)})
    record = json.loads(json.dumps(plan.to_record()))
    assert Plan.from_record(record, network()) == plan
    for bad in (None, [8, 8], [8, 8, 9], "888", [8, 8, True]):
        with pytest.raises(PlanError, match="in the forward pass of 'c'"):
            Plan.from_record({"c": record["c"] | {"forward_tile": bad}}, network())
    with pytest.raises(PlanError, match="in the gradient pass of 'c'"):
        Plan.from_record({"c": record["c"] | {"gradient_tile": [8, 8, 8]}}, network())
    with pytest.raises(PlanError, match="unknown entries"):
        Plan.from_record({"c": record["c"] | {"tile": 8}}, network())


def test_records_are_read_back_and_checked():
    plan = Plan({"c": LayerPlan("fft", "direct", "fft", "because")})
    assert Plan.from_record(plan.to_record(), network()) == plan
    with pytest.raises(PlanError, match=r"layers \['d'\], the network has \['c'\]"):
        Plan.from_record({"d": plan.to_record()["c"]}, network())
    with pytest.raises(PlanError, match="'c': a true stride runs by direct and spectral only"):
        Plan.from_record(plan.to_record(), network(stride=2))
    record = plan.to_record()
    record["c"]["weight"] = "gauss"
    with pytest.raises(PlanError, match="'gauss' in the weight pass of 'c'"):
        Plan.from_record(record, network())


@pytest.mark.parametrize(
    ("size", "images", "measured"), [(2, 32, False), (5, 32, True), (7, 32, True), (5, 4, False)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_strided_layers_are_measured_where_tiles_may_win(size, images, measured, transposed):
    small, large = (16, 16, 16), (32, 32, 32)
    ends = (small, large) if transposed else (large, small)
    taps, stride = (size, size, size), (2, 2, 2)
    shape = ConvShape(images, images, taps, (1, 1, 1), stride, *ends, 1, transposed=transposed)
    found = candidates(shape)
    assert found[0] == Method("direct")
    assert (len(found) > 1) == measured
    assert all(method.algorithm == "spectral" for method in found[1:])


def in_a_row(images, size=(3, 3, 3), stride=(1, 1, 1)):
    """Two convolutions, the first of an input, and their shapes in a forward pass alone."""
    nodes = Node("input", "input", images), Node("a", "transfer", images), Node("b", "transfer", 32)
    edges = (
        Edge("first", "conv", "input", "a", size=size, stride=stride),
        Edge("second", "conv", "a", "b", size=size),
    )
    net = Network(nodes, edges)
    geometry = fit(net, (8, 8, 8))
    return [ConvShape.of(edge, net, geometry, 1, training=False) for edge in edges]


def tried(shape):
    """The algorithms that are worth measuring for a layer."""
    return {method.algorithm for method in candidates(shape)}


def test_only_images_of_inputs_lie_planar_in_forward_passes_alone():
    first, second = in_a_row(PLANAR_INPUTS)
    assert (first.planar, second.planar) == (True, False)
    assert not any(shape.planar for shape in in_a_row(PLANAR_INPUTS + 1))
    # Few channels may lie planar at both ends; then lanes go over tiles.
    assert (first.between, second.between) == (True, False)
    assert ("winograd" in tried(first)) == (MOST_PLANAR >= PLANAR_INPUTS)
    assert "winograd" not in tried(replace(first, between=False))
    assert "winograd" in tried(second)
    assert (dense(first).planar, dense(second).planar) == (True, False)  # lanes go over tiles


@pytest.mark.parametrize(
    ("weight", "wanted"), [(6, ("direct", "direct")), (4.5, ("winograd", "winograd"))]
)
def test_passes_between_planar_channels_are_chosen_together(weight, wanted):
    """Each alone would be quickest by another; then channels had lanes, as neither was measured."""
    given = {
        DIRECT: {"forward": 5, "gradient": 9, "weight": 1},
        Method("winograd"): {"forward": 1, "gradient": 9, "weight": weight},
    }
    layer = chosen(network(images=MOST_PLANAR or 4), "auto", given)
    mixed = ("winograd", "direct")
    assert (layer.forward, layer.weight) == (wanted if MOST_PLANAR else mixed)
    layer = chosen(network(images=16), "auto", given)
    assert (layer.forward, layer.weight) == mixed


@pytest.mark.skipif(not MOST_PLANAR, reason="vectors of four floats")
def test_a_head_of_one_tap_takes_the_chain_before_it_to_blocks():
    names = ("input", "a", "b", "head")
    nodes = [Node("input", "input", 3), *(Node(name, "transfer", 4) for name in names[1:])]
    for taps, between in ((3, True), (1, False)):
        sizes = (3, 3, 3), (3, 3, 3), (taps, taps, taps)
        edges = tuple(
            Edge(f"e{n}", "conv", names[n], names[n + 1], size=size) for n, size in enumerate(sizes)
        )
        net = Network(tuple(nodes), edges)
        geometry = fit(net, (8, 8, 8))
        shapes = [ConvShape.of(edge, net, geometry, 1) for edge in edges]
        assert [shape.between for shape in shapes] == [between] * 3


@pytest.mark.parametrize("size", [(1, 3, 3), (3, 1, 3), (3, 3, 1), (3, 1, 1), (1, 1, 3)])
def test_flat_filters_are_tried_by_minimal_filtering(size):
    """With many channels it is the least by estimate, too."""
    _, shape = in_a_row(64, size=size)
    assert "winograd" in tried(shape)
    direct, found = (estimated_seconds(shape, Method(name)) for name in ("direct", "winograd"))
    assert found < direct


@pytest.mark.skipif(not MOST_PLANAR, reason="vectors of four floats")
def test_an_input_that_not_only_convolutions_read_lies_in_blocks():
    nodes = Node("input", "input", 3), Node("a", "transfer", 8), Node("b", "sum", 3)
    conv = Edge("conv", "conv", "input", "a", size=(3, 3, 3))
    other = Edge("other", "avg_pool", "input", "b", size=(3, 3, 3))
    for edges in ((conv,), (conv, other)):
        net = Network(nodes[: len(edges) + 1], edges)
        sizes = {node.name: (8, 8, 8) for node in net.outputs}
        shape = ConvShape.of(conv, net, fit(net, sizes), 1)
        assert shape.passes == ("forward", "weight")
        assert shape.planar == (len(edges) == 1)
        assert shape.between == (len(edges) == 1)
        assert ("winograd" in tried(shape)) == (MOST_PLANAR >= 8 or not shape.planar)


@pytest.mark.parametrize(
    ("images", "stride", "few"),
    [(PLANAR_INPUTS, 1, True), (9, 1, False), (2, 2, True), (3, 2, False), (2, (1, 2, 2), True)],
)
def test_phases_of_few_planar_images_lie_in_one_vector(images, stride, few):
    stride = stride if isinstance(stride, tuple) else (stride,) * 3
    shape = in_a_row(images, (5, 5, 5), stride)[0]
    like = dense(shape)
    assert like.planar == few
    whole = images if few or max(stride) == 1 else 16
    assert like.inputs == prod(stride) * whole
    assert dense(replace(shape, planar=False)).planar is False
