"""What is measured of a layer: the passes that are needed, on images of bounded size."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from declared_updates import method_of
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine import autotune, single_layer, timing
from znnpy.engine.tasks.task_identity import identities
from znnpy.plan import PASSES, ConvShape, Method
from znnpy.plan.choose import candidates, estimated, estimated_seconds

ONE = (1, 1, 1)
SMALL = ConvShape(2, 3, (3, 3, 3), ONE, ONE, (12, 12, 12), (10, 10, 10), 1)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("method", "passes", "planar"),
    [
        (method, passes, planar)
        for method in ("direct", "fft", "spectral 8x8x8", "winograd")
        for passes in (PASSES, ("forward", "weight"), ("forward",))
        for planar in (False, True)
        if not planar or (method != "winograd" and passes != PASSES)
    ],
)
def test_every_wanted_pass_and_no_other_is_measured(method, passes, planar):
    shape = replace(SMALL, passes=passes, planar=planar)
    (costs,) = timing.timed(shape, [method_of(method)]).values()
    assert set(costs) & set(PASSES) == set(passes)
    assert min(costs.values()) > 0


@pytest.mark.quick(3)
@pytest.mark.parametrize("border", ["zeros", "reflect"])
@pytest.mark.parametrize("method", ["direct", "fft", "spectral 8x8x8", "winograd"])
def test_padded_layers_are_measured_with_their_padding(method, border):
    padding = ((1, 1), (2, 0), (0, 1))
    shape = replace(SMALL, padding=padding, border=border, source=(10, 10, 11))
    layout, edge = single_layer.lone(shape, method_of(method))
    assert (layout.shape("source"), layout.padding(edge)) == (shape.source, padding)
    (costs,) = timing.timed(shape, [method_of(method)]).values()
    assert min(costs.values()) > 0
    assert autotune._key(shape) != autotune._key(replace(shape, border="replicate"))


def test_large_layers_are_measured_on_smaller_images():
    large = ConvShape(80, 80, (3, 3, 3), (2, 2, 2), ONE, (104, 84, 84), (100, 80, 80), 1)
    smaller = timing.smaller(large, Method("direct"))
    assert estimated_seconds(smaller, Method("direct")) < 2 * timing.MOST_SECONDS
    assert (smaller.size, smaller.dilation) == (large.size, large.dilation)
    taken = [a - b for a, b in zip(large.target, smaller.target, strict=True)]
    assert [a - b for a, b in zip(large.source, smaller.source, strict=True)] == taken


def test_of_large_images_samples_are_left_out_first(monkeypatch):
    flat = ConvShape(64, 64, (1, 3, 3), ONE, ONE, (1, 96, 96), (1, 96, 96), 12)
    monkeypatch.setattr(timing, "MOST_SECONDS", estimated_seconds(flat, Method("winograd")) / 5)
    few = timing.smaller(flat, Method("winograd"))
    assert (few.places, few.batch) == (flat.places, 1)
    wide = replace(flat, inputs=512, outputs=512, source=(1, 32, 32), target=(1, 32, 32))
    small = timing.smaller(wide, Method("winograd"))
    assert (small.places, small.batch) == ((1, timing.SMALLEST, timing.SMALLEST), 3)


def test_few_voxels_that_share_filters_stay_together():
    whole = ConvShape(4096, 4096, ONE, ONE, ONE, ONE, ONE, 256)
    assert timing.smaller(whole, Method("direct")) == whole
    deep = replace(whole, batch=1, source=(512, 1, 1), target=(512, 1, 1))
    assert timing.smaller(deep, Method("direct")) == deep


def test_tiles_of_smaller_images_are_as_full(monkeypatch):
    monkeypatch.setattr(timing, "MOST_SECONDS", 0.05)
    method = Method("spectral", (1, 18, 18))
    for extent, full in ((96, 1.0), (88, 11 / 12)):
        shape = ConvShape(
            256, 256, (1, 3, 3), ONE, ONE, (1, extent, extent), (1, extent, extent), 3
        )
        less = timing.smaller(shape, method)
        assert less.places[1] < extent
        for part in less.places[1:]:
            assert part / (16 * -(-part // 16)) == pytest.approx(full, abs=0.02)


@pytest.mark.parametrize(
    ("method", "ratio"),
    [("direct", 4 * 4), ("winograd", 4 * 4), ("spectral 6x10x10", 4 * 4)],
)
def test_work_on_filters_does_not_grow_with_images(method, ratio):
    less = ConvShape(
        16, 16, (3, 3, 3), ONE, ONE, (8, 16, 16), (8, 16, 16), 1, padding=((1, 1),) * 3
    )
    whole = replace(less, source=(8, 32, 32), target=(8, 32, 32), batch=4)
    method = method_of(method)
    lone = single_layer.Lone.of(less, method)
    memory = timing.Workbench().of(lone.bytes)
    trial = timing.Trial(whole, less, method, lone, memory, np.zeros(1, np.float32))
    tasks = identities(trial._executor.graph)
    of_filters = [timing._is_of_filters(task) for task in tasks]
    counted = np.concatenate(list(trial._tasks.values()))
    assert {
        (of, by)
        for of, by in zip(np.take(of_filters, counted), trial._scales[counted], strict=True)
    } == {(False, ratio), (True, 1.0)}
    assert all(seconds.sum() > 0 for seconds in trial.look().values())


def test_measuring_takes_memory_for_one_method_at_a_time():
    shape = ConvShape(2, 3, (1, 1, 2), (1, 1, 1), (1, 1, 1), (4, 4, 5), (4, 4, 4), 1)
    methods = [Method("direct"), *(Method("spectral", (1, 1, n)) for n in (6, 8, 10))]
    tracemalloc.start()
    timing.timed(shape, methods)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * timing.FLUSHED_BYTES


def test_memory_is_made_once():
    bench = timing.Workbench()
    first = bench.of(1 << 16)
    first[:] = 1
    again = bench.of(1 << 20)
    assert again.ctypes.data == first.ctypes.data
    assert np.count_nonzero(again) == len(first)


def test_other_layers_of_a_kind_tell_what_direct_takes_at_least():
    bench, direct = timing.Workbench(), Method("direct")
    less = replace(SMALL, batch=3)
    parts = {part: 2.0 * it for part, it in estimated(SMALL, direct).items()}
    assert bench.least(less, direct) is None
    bench.note(SMALL, {direct: parts, Method("winograd"): parts})
    bench.note(SMALL, {direct: parts | {"forward": 9.0 * parts["forward"]}})
    assert bench.least(less, direct) == pytest.approx(
        {part: 2.0 * it for part, it in estimated(less, direct).items()}
    )
    assert bench.least(less, Method("winograd")) is None
    assert bench.least(replace(less, size=(1, 3, 3)), direct) is None
    wide = replace(SMALL, inputs=3 * LANES, outputs=5 * LANES)
    bench.note(wide, {direct: estimated(wide, direct)})
    assert bench.least(replace(wide, inputs=9 * LANES), direct) is not None
    # Layers of few channels take other shares of their estimates: up to three times as much.
    for few in (2 * LANES, LANES):
        assert bench.least(replace(wide, inputs=few), direct) is None
        assert bench.least(replace(wide, outputs=few), direct) is None


def test_small_layers_are_measured_as_they_are():
    assert timing.smaller(SMALL, Method("direct")) == SMALL


def test_what_is_fast_is_measured_as_it_is_though_another_method_takes_long():
    two = (2, 2, 2)
    images = min(10, LANES + 2)  # with vectors of four floats as many would take long by any method
    shape = ConvShape(images, images, (7, 7, 7), two, ONE, (74, 74, 74), (62, 62, 62), 1)
    assert timing.smaller(shape, Method("spectral", (22, 22, 22))) == shape
    assert timing.smaller(shape, Method("direct")) != shape


def test_methods_differ_by_more_than_the_order_of_a_tile():
    shape = ConvShape(40, 40, (5, 5, 5), ONE, ONE, (50, 50, 50), (46, 46, 46), 1)
    tiles = [tuple(sorted(method.tile)) for method in candidates(shape) if method.tile]
    assert len(set(tiles)) == len(tiles) > 1


UP, TWO, PADDED = (4, 4, 4), (2, 2, 2), ((1, 1),) * 3
STRIDED = [
    ConvShape(16, 16, (5, 5, 5), ONE, TWO, (14, 14, 14), (6, 6, 6), 1, padding=PADDED),
    ConvShape(
        1, 16, (5, 5, 5), ONE, TWO, (15, 15, 15), (6, 6, 6), 1, ("forward", "weight"), planar=True
    ),
    ConvShape(16, 16, UP, ONE, TWO, (6, 6, 6), (13, 12, 12), 1, padding=PADDED, transposed=True),
]


@pytest.mark.parametrize("shape", STRIDED)
def test_strided_and_transposed_layers_are_measured_by_both_algorithms(shape):
    methods = [Method("direct"), Method("spectral", (8, 8, 8))]
    costs = timing.timed(shape, methods)
    for method in methods:
        assert all(costs[method][which] > 0 for which in shape.passes)


def test_smaller_images_keep_their_stride():
    strided = ConvShape(64, 64, (7, 7, 7), ONE, TWO, (200, 69, 69), (97, 32, 32), 1)
    back = replace(strided, source=strided.target, target=strided.source, transposed=True)
    for shape in (strided, back):
        smaller = timing.smaller(shape, Method("direct"))
        assert smaller.places < shape.places
        large, before = (
            min(it.source, it.target, key=lambda n: -max(n)) for it in (smaller, shape)
        )
        assert before[0] - large[0] == 2 * (shape.places[0] - smaller.places[0])


# So many images that they are measured as they are where memory does not bound them.
WIDE = ConvShape(
    min(16, 2 * LANES), min(16, 2 * LANES), (3, 3, 3), ONE, ONE, (30, 30, 30), (28, 28, 28), 4
)


def taken(monkeypatch, max_memory):
    """Bytes that measuring a layer takes within a limit, without and with what flushes, and its images and costs."""
    sizes, flushed, shapes = [], [], {}

    def trial(whole, shape, method, lone, memory, others):
        shapes[method] = shape
        flushed.append(others.nbytes)
        return Stopwatch(timing._scales(whole, shape, method))

    monkeypatch.setattr(
        timing, "_reserved", lambda size: sizes.append(size) or np.zeros(64, np.uint8)
    )
    monkeypatch.setattr(timing, "Trial", trial)
    methods = [Method("direct"), Method("winograd"), Method("spectral", (8, 8, 8))]
    costs = timing.timed(WIDE, methods, max_memory)
    assert list(costs) == methods
    # Which is measured first, estimates say.
    return max(sizes), max(sizes) + max(flushed), [shapes[it] for it in methods], costs


class Stopwatch:
    is_long = False

    def __init__(self, scales):
        self.scales = scales

    def look(self):
        return {which: np.array([7.0 * self.scales[which]]) for which in PASSES}


def test_measuring_takes_no_more_memory_than_allowed(monkeypatch):
    most, _, whole, _ = taken(monkeypatch, None)
    assert whole == [WIDE] * 3
    for limit in (1.5 * most, most, 0.5 * most):
        bytes_, all_, shapes, costs = taken(monkeypatch, int(limit))
        assert bytes_ < all_ <= limit
        assert bytes_ <= max(limit / 2, limit - timing.FLUSHED_BYTES)
        for shape, parts in zip(shapes, costs.values(), strict=True):
            less = shape != WIDE
            assert (parts["forward"] > 7.0) == less
    assert min(shape.batch for shape in shapes) == 1


def test_what_leaves_little_to_flush_caches_with_is_measured_as_well(monkeypatch):
    methods = [Method("direct"), Method("winograd"), Method("spectral", (8, 8, 8))]
    least = max(single_layer.lone_bytes(timing.smaller(WIDE, it, 1), it) for it in methods)
    bytes_, all_, *_ = taken(monkeypatch, least + 4096)
    assert (bytes_, all_) == (least, least + 4096)


def test_half_of_little_memory_is_for_images():
    direct = Method("direct")
    some = timing.smaller(WIDE, direct, 2 * timing.FLUSHED_BYTES)
    held = single_layer.lone_bytes(some, direct)
    assert some.batch > 1
    assert held < timing.FLUSHED_BYTES
    assert timing.smaller(WIDE, direct, 2 * held) == some
