"""A layer alone: its images lie as they do in a network, and its tasks are declared once."""

from dataclasses import replace

import numpy as np
import pytest
from declared_updates import method_of
from znnpy_kernels.compile import compile_all

from znnpy.engine import single_layer, timing
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena, aligned_bytes
from znnpy.engine.tasks.dependencies import connect
from znnpy.plan import PASSES, ConvShape, Method

ONE = (1, 1, 1)
SMALL = ConvShape(2, 3, (3, 3, 3), ONE, ONE, (12, 12, 12), (10, 10, 10), 1)
WIDE = ConvShape(16, 16, (3, 3, 3), ONE, ONE, (30, 30, 30), (28, 28, 28), 4)


@pytest.mark.parametrize(("images", "planar"), [(2, False), (2, True), (20, False)])
@pytest.mark.parametrize("passes", [("forward", "weight"), ("forward",)])
def test_images_are_measured_as_they_lie(images, passes, planar):
    shape = replace(SMALL, inputs=images, outputs=17, passes=passes, planar=planar)
    layout, edge = single_layer.lone(shape, Method("spectral", (8, 8, 8)))
    # Few images between convolutions lie planar, too, where their gradient is made directly.
    few = images == 2 and passes == ("forward",)
    assert (layout.lanes(edge.source) == 1) == (planar or few)


@pytest.mark.parametrize("inputs", [2, 20])
@pytest.mark.parametrize("passes", [PASSES, ("forward",)])
@pytest.mark.parametrize("method", ["direct", "fft", "spectral 8x8x8", "winograd"])
def test_tasks_lie_in_memory_as_if_they_were_declared_there(method, passes, inputs):
    shape, by = replace(SMALL, inputs=inputs, passes=passes), method_of(method)
    lone = single_layer.Lone.of(shape, by)
    assert lone.bytes == single_layer.lone_bytes(shape, by)
    memory = aligned_bytes(lone.bytes)
    compile_all(lone.kernels, 1)
    layout, edge = single_layer.lone(shape, by)
    there = single_layer.declared(Build.new(Arena(memory), layout, 0), edge, shape)
    given = {region.buffer for task in there.tasks for region in task.reads}
    np.testing.assert_array_equal(
        lone.graph(memory).words, connect([there.tasks], given).build().words
    )


def test_tasks_of_a_layer_are_declared_once(monkeypatch):
    method = Method("winograd")
    timing.fits(WIDE, method, 30 << 20)
    monkeypatch.setattr(single_layer, "declared", lambda *_: pytest.fail("declared again"))
    assert timing.fits(WIDE, method, 30 << 20)
