"""Every algorithm says of itself what plans ask, by the names that configs and saved plans know."""

from dataclasses import replace
from typing import get_args

import pytest

from znnpy.config.training_section import ConvChoice
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, LayerPlan, Plan
from znnpy.plan.algorithms import depthwise, winograd
from znnpy.plan.cost import STREAM_RATE
from znnpy.plan.types import ALGORITHM_NAMES, COST_PARTS, SHARED

ONE = (1, 1, 1)
SHAPE = ConvShape(16, 16, (3, 3, 3), ONE, ONE, (18, 18, 18), (16, 16, 16), 1)


def test_the_registry_has_every_name():
    assert set(ALGORITHMS) == set(ALGORITHM_NAMES)
    assert set(get_args(ConvChoice)) - {"auto"} <= set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_methods_bear_the_name_and_their_parts_are_known(name):
    algorithm = ALGORITHMS[name]
    assert bool(algorithm.refusal(SHAPE.size, SHAPE.stride)) == algorithm.traits.depthwise
    methods = [
        *algorithm.told(SHAPE),
        *algorithm.candidates(SHAPE),
        *algorithm.patch_methods(SHAPE, 1.0),
    ]
    assert methods
    for method in methods:
        assert method.algorithm == name
        assert bool(method.tile) == bool(algorithm.traits.tile_sizes)
        costs = algorithm.costs(SHAPE, method.tile)
        assert set(PASSES) <= set(costs) <= set(COST_PARTS)
        assert algorithm.traits.shares_spectra or not set(SHARED) & set(costs)
        assert algorithm.patch_seconds(SHAPE, method.tile) > 0


@pytest.mark.parametrize(
    ("size", "stride", "takers"),
    [
        ((3, 3, 3), ONE, {"direct", "fft", "spectral", "winograd"}),
        ((1, 3, 3), ONE, {"direct", "fft", "spectral", "winograd"}),
        ((1, 1, 1), ONE, {"direct", "fft", "spectral"}),
        ((1, 3, 5), ONE, {"direct", "fft", "spectral"}),
        ((3, 3, 3), (1, 2, 2), {"direct", "spectral"}),
    ],
)
def test_saved_plans_name_what_cannot_run(size, stride, takers):
    nodes = (Node("input", "input", 8), Node("out", "transfer", 8))
    network = Network(nodes, (Edge("c", "conv", "input", "out", size=size, stride=stride),))
    for name, algorithm in ALGORITHMS.items():
        tile = (8, 8, 8) if algorithm.traits.tile_sizes else None
        layer = LayerPlan("direct", "direct", name, weight_tile=tile)
        record = Plan({"c": layer}).to_record()
        if name in takers:
            assert Plan.from_record(record, network).layers["c"] == layer
        else:
            with pytest.raises(PlanError, match=f"'c': {algorithm.refusal(size, stride)}"):
                Plan.from_record(record, network)


def padless(images, extent):
    """A layer of 3^3 filters between so many images."""
    inputs, outputs = images
    ends = (extent + 2,) * 3, (extent,) * 3
    return ConvShape(inputs, outputs, (3, 3, 3), ONE, ONE, *ends, 1)


@pytest.mark.parametrize(("images", "extent"), [((512, 512), 4), ((512, 256), 8)])
def test_wide_layers_of_few_voxels_do_not_read_transformed_filters(images, extent):
    """Measured, 512 -> 512 images onto 4^3: direct takes half as long again as winograd's forward pass."""
    shape = padless(images, extent)
    assert winograd.makes_filters(shape)
    seconds = {name: ALGORITHMS[name].patch_seconds(shape, None) for name in ("direct", "winograd")}
    assert min(seconds, key=seconds.__getitem__) == "winograd"


@pytest.mark.parametrize(
    ("images", "extent", "staged"),
    [(36, 64, False), (48, 20, True), (64, 16, True), (64, 64, False), (128, 16, True)],
)
def test_stages_are_for_filters_that_few_tiles_along_x_share(images, extent, staged):
    assert winograd.is_staged(padless((images, images), extent)) == staged


@pytest.mark.parametrize(("extent", "groups"), [(20, 1), (24, 2), (60, 30)])
def test_each_group_of_tiles_reads_filters_that_no_cache_holds(extent, groups):
    shape = padless((512, 256), extent)
    deep, rows = winograd.group_tiles(shape)
    layers = -(-extent // winograd.NEW)
    assert -(-layers // deep) * -(-layers // rows) == groups
    read = 4 * 216 * 512 * 256 / winograd.FAR_RATE
    found = winograd.patch_seconds(shape, None)
    assert found >= groups * read


def test_weight_gradients_in_panels_pay_for_transforms_that_each_makes():
    narrow, wide = (padless((images, images), 16) for images in (16, 128))
    costs = [winograd.costs(shape, None)["weight"] for shape in (narrow, wide)]
    alone = [winograd.weight_seconds(shape) for shape in (narrow, wide)]
    assert costs[0] < 1.2 * alone[0]
    assert costs[1] > 1.5 * alone[1]


@pytest.mark.parametrize(
    ("images", "extent", "count"),
    [
        (16, 64, 36),  # one panel: ranges alone make tasks, and their sums cost little
        (64, 32, 4),
        (128, 32, 3),
        (300, 15, 1),  # panels are tasks enough
        (256, 8, 1),
    ],
)
def test_weight_gradients_are_cut_into_ranges_while_their_sums_cost_little(images, extent, count):
    shape = padless((images, images), extent)
    lines = (-(-extent // winograd.NEW)) ** 2
    assert winograd.range_count(shape, lines) == count


def test_a_depthwise_pass_is_bound_by_its_operations_or_by_its_images():
    """20 images are two vectors of 16; by operations with many taps, by memory with one."""
    from_, to = (1, 20, 20), (1, 16, 16)
    shape = ConvShape(20, 20, (1, 5, 5), ONE, ONE, from_, to, 3, groups=20)
    images, least = 3 * 32, depthwise.patch_seconds(replace(shape, size=ONE), None)
    assert depthwise.patch_seconds(shape, None) == 2 * images * 25 * 256 / depthwise.RATE
    assert least == 4 * images * (400 + 256) / STREAM_RATE
    assert depthwise.costs(shape, None) == dict.fromkeys(
        PASSES, depthwise.patch_seconds(shape, None)
    )
