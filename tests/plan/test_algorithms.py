"""Every algorithm says of itself what plans ask, by the names that configs and saved plans know."""

from dataclasses import replace
from typing import get_args

import pytest

from znnpy.config.training_section import ConvChoice
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import ALGORITHMS, PASSES, ConvShape, LayerPlan, Method, Plan
from znnpy.plan.algorithms import (
    depthwise,
    spectral,
    winograd,
    winograd_gradients,
    winograd_strided,
    winograd_tiles,
)
from znnpy.plan.cost import MOST_PLANAR, STREAM_RATE
from znnpy.plan.types import ALGORITHM_NAMES, COST_PARTS, MARCHES, SHARED

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
        ((3, 3, 3), (2, 2, 2), {"direct", "spectral", "winograd"}),
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


THIN = replace(SHAPE, size=(3, 1, 1), source=(18, 16, 16))


@pytest.mark.parametrize(
    ("shape", "differ"),
    [
        (SHAPE, True),
        (replace(SHAPE, size=(1, 3, 3), source=(16, 18, 18)), True),
        (THIN, True),
        (replace(THIN, source=(18, 14, 16), padding=((0, 0), (1, 1), (0, 0))), False),
        (replace(SHAPE, size=(3, 3, 1), source=(18, 18, 16)), False),
        (replace(SHAPE, dilation=(2, 1, 1), source=(20, 18, 18)), False),
        # In stages, which there is one of.
        (replace(SHAPE, inputs=256, outputs=256), False),
        # Few channels, between which forward passes are the same.
        (replace(SHAPE, inputs=2, outputs=2, between=True), True),
        (
            replace(SHAPE, inputs=2, outputs=2, between=True, passes=("forward", "weight")),
            not MOST_PLANAR,
        ),
    ],
)
def test_marches_compete_where_they_differ_and_neither_is_known_to_be_faster(shape, differ):
    apart, joined = (Method("winograd", march=it) for it in MARCHES)
    one = [Method("winograd")]
    assert winograd.candidates(shape, march_known=False) == ([apart, joined] if differ else one)
    assert winograd.candidates(shape, march_known=True) == one
    assert winograd.told(shape) == one


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
    ("size", "transposed", "tried"), [(3, False, False), (5, False, True), (3, True, True)]
)
def test_strided_layers_are_not_tried_by_spectra_where_phases_have_winograds_tiles(
    size, transposed, tried
):
    ends = (32, 32, 32), (16, 16, 16)
    sides = ((1, 1),) * 3 if size == 3 else ((2, 2),) * 3
    source, target = reversed(ends) if transposed else ends
    shape = ConvShape(
        64, 64, (size,) * 3, ONE, (2, 2, 2), source, target, 2, padding=sides, transposed=transposed
    )
    assert bool(spectral.patch_methods(shape, 1.0)) == tried
    assert tried or not spectral.candidates(shape)


@pytest.mark.parametrize(
    ("images", "size", "extent", "best"),
    [
        ((32, 64), (1, 3, 3), (1, 56, 112), "winograd"),
        ((64, 128), (3, 3, 3), (16, 24, 32), "winograd"),
        # Few products for each voxel that is transformed, and for each filter.
        ((8, 16), (3, 3, 3), (16, 32, 64), "direct"),
        ((256, 512), (1, 3, 3), (1, 7, 14), "direct"),
        ((320, 320), (3, 3, 3), (2, 4, 4), "direct"),
    ],
)
def test_strided_layers_have_tiles_where_they_were_measured_to_be_faster(
    images, size, extent, best
):
    z, y, x = (2 * n if taps > 1 else n for n, taps in zip(extent, size, strict=True))
    stride = (1 if size[0] == 1 else 2, 2, 2)
    shape = ConvShape(*images, size, ONE, stride, (z, y, x), extent, 1, PASSES[:1])
    seconds = {name: ALGORITHMS[name].patch_seconds(shape, None) for name in ("direct", "winograd")}
    assert min(seconds, key=seconds.__getitem__) == best


@pytest.mark.parametrize(
    ("target", "batch", "together"), [((1, 7, 14), 4, 3), ((1, 7, 14), 2, 2), ((2, 7, 14), 4, 1)]
)
def test_samples_of_one_plane_and_few_tiles_share_strided_filters(target, batch, together):
    source = target[0], 2 * target[1], 2 * target[2]
    shape = ConvShape(256, 512, (1, 3, 3), ONE, (1, 2, 2), source, target, batch, PASSES[:1])
    assert winograd_strided.samples_together(shape) == together
    alone = batch * winograd_strided.strided_seconds(replace(shape, batch=1))
    seconds = winograd_strided.strided_seconds(shape)
    assert seconds < alone if together > 1 else seconds == pytest.approx(alone)


@pytest.mark.parametrize(("source", "batch"), [((1, 7, 14), 1), ((1, 7, 7), 2)])
def test_wide_flat_layers_share_filters_that_are_made_on_the_way(source, batch):
    """Measured with 8 lanes, 512 -> 512 channels on 7 x 14: 2.8 ms of one core, direct 4.7 to 5.1."""
    shape = ConvShape(
        512, 512, (1, 3, 3), ONE, ONE, source, source, batch, padding=((0, 0), (1, 1), (1, 1))
    )
    assert winograd.makes_filters(shape)
    assert winograd.patch_seconds(shape, None) < ALGORITHMS["direct"].patch_seconds(shape, None)


@pytest.mark.parametrize(("extent", "lanes"), [(8, (16, 8, 4)), (12, (16,)), (20, ())])
def test_fewer_lanes_read_transformed_filters_for_fewer_tiles(extent, lanes):
    """Measured, 256 -> 256 images onto 12^3 with 8 lanes: read with their making 24 ms, made on the way 31."""
    shape = padless((256, 256), extent)
    assert tuple(it for it in (16, 8, 4) if winograd.makes_filters(shape, it)) == lanes


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
    layers = -(-extent // winograd_tiles.NEW)
    assert -(-layers // deep) * -(-layers // rows) == groups
    read = 4 * 216 * 512 * 256 / winograd.FAR_RATE
    found = winograd.patch_seconds(shape, None)
    assert found >= groups * read


@pytest.mark.parametrize(
    ("images", "size", "extent", "joint"),
    [
        (16, (3, 3, 3), (64, 64, 64), True),
        (512, (3, 3, 3), (4, 4, 4), True),
        (24, (3, 1, 1), (32, 64, 64), True),
        (32, (1, 3, 3), (16, 128, 128), False),  # few products beside bytes from memory
        (48, (1, 3, 3), (1, 256, 256), True),
        (64, (1, 1, 3), (16, 64, 64), False),
        (128, (1, 1, 3), (8, 32, 32), True),
    ],
)
def test_weight_gradients_go_in_two_stages_but_of_few_channels_in_planes(
    images, size, extent, joint
):
    shape = replace(padless((images, images), extent[0]), size=size, target=extent)
    assert winograd_gradients.is_joint(shape) == joint


@pytest.mark.parametrize(
    ("images", "extent", "batch", "ranges"),
    [
        (320, 8, 1, (1, 1)),
        (320, 8, 3, (1, 1)),  # of 24 tiles
        (128, 8, 8, (2, 1)),  # of 32
        (128, 16, 1, (1, 2)),
        (64, 32, 2, (2, 16)),
        (16, 9, 3, (3, 1)),  # of 27 each
    ],
)
def test_ranges_of_two_stages_have_about_as_many_tiles_as_caches_hold(
    images, extent, batch, ranges
):
    shape = replace(padless((images, images), extent), batch=batch)
    lines = (-(-extent // winograd_tiles.NEW)) ** 2
    assert winograd_gradients.joint_ranges(shape, lines) == ranges


def test_weight_gradients_in_two_stages_pay_for_each_transform_of_sums():
    """And so less for a batch of small samples, which are summed together, than for each of them."""
    one = padless((256, 256), 8)
    costs = [
        winograd.costs(shape, None)["weight"] / shape.batch
        for shape in (one, replace(one, batch=4))
    ]
    assert costs[1] < 0.8 * costs[0]
    assert winograd.costs(one, None)["weight"] == sum(winograd_gradients.joint_seconds(one))


@pytest.mark.parametrize(
    ("images", "extent", "count"),
    [
        (16, (16, 128, 128), 24),
        (32, (16, 256, 256), 113),
        (48, (1, 64, 64), 2),
    ],
)
def test_weight_gradients_are_cut_into_ranges_while_their_sums_cost_little(images, extent, count):
    shape = replace(padless((images, images), 1), size=(1, 3, 3), target=extent)
    lines = extent[0] * -(-extent[1] // winograd_tiles.NEW)
    assert winograd_gradients.range_count(shape, lines) == count


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
