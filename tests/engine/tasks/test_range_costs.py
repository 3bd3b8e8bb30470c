"""Tasks over ranges of planes are each charged their share: together the cost of the whole, whichever axis is cut."""

from __future__ import annotations

import pytest

from znnpy.engine.convolution.spectral.passes import _emit_zeros as emit_zeros
from znnpy.engine.layers.activation import softmax_backward, softmax_forward
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.memory.tensors import Tensor, new_tensor
from znnpy.engine.tasks.step import Step, combine_tensors
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import fit, voxels
from znnpy.network import load_network
from znnpy.plan import PASSES, Grain, LayerPlan, Method, Plan
from znnpy.plan.cost import MEMORY_RATE

SHAPES = [(64, 20, 32), (2, 500, 40)]
"""Cut along z, and along y."""
WHAT = Identity("out", Pass.FORWARD, Part.SUM)


def charged(step: Step) -> float:
    """Seconds of all tasks, of which there are several for each block."""
    assert len(step.tasks) >= 8
    return sum(task.cost for task in step.tasks)


def tensors(shape: tuple[int, int, int], count: int) -> list[Tensor]:
    """Each of two samples of two blocks."""
    memory, cut = Arena(), 0 if shape[0] > 8 else 1
    lanes = {"lanes": 4, "cut": cut, "frame": ((0, 0), (3, 3), (2, 0))}
    return [
        new_tensor(memory, Name(Use("test"), str(i)), 2, 7, shape, **lanes) for i in range(count)
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_sums(shape: tuple[int, int, int]) -> None:
    step = Step()
    combine_tensors(step, tensors(shape, 3), WHAT, Grain())
    once = 2 * 2 * 4 * voxels(shape) * 12 / MEMORY_RATE
    assert charged(step) == pytest.approx(2 * once)


@pytest.mark.parametrize("shape", SHAPES)
def test_zeros(shape: tuple[int, int, int]) -> None:
    step = Step()
    emit_zeros(step, tensors(shape, 1)[0], WHAT)
    assert charged(step) == pytest.approx(2 * 2 * 4 * voxels(shape) * 4 / MEMORY_RATE)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape: tuple[int, int, int]) -> None:
    layers = [{"conv": {"channels": 40, "size": 1, "function": "softmax"}}]
    network = load_network({"input": 1, "layers": layers})
    direct = LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan({edge.name: direct for edge in network.edges})
    layout = Layout(network, fit(network, shape), plan, 2, training=True)
    build, (node,) = Build.new(Arena(), layout, 0), network.outputs
    tensor = build.maps.activations[node.name]
    floats = 2 * tensor.blocks * tensor.lanes * voxels(shape)
    for emit, each in ((softmax_forward, 16), (softmax_backward, 24)):
        step = Step()
        emit(step, build, node)
        assert charged(step) == pytest.approx(floats * each / MEMORY_RATE)
