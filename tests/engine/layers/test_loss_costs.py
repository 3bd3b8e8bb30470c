"""What losses and their functions are estimated to take grows with the samples."""

from __future__ import annotations

import pytest

from znnpy.engine.emit import emit_gradients
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part, Pass
from znnpy.geometry import fit
from znnpy.network import load_network, objectives
from znnpy.plan import PASSES, LayerPlan, Method, Plan

SIZE = (6, 6, 6)


def seconds(loss: str, function: str, batch: int) -> tuple[float, float]:
    """Of the loss's own tasks, and of the output's function."""
    network = load_network(
        {"input": 1, "layers": [{"conv": {"channels": 3, "size": 1, "function": function}}]}
    )
    direct = LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan({edge.name: direct for edge in network.edges})
    step = Step()
    build = Build.new(Arena(), Layout(network, fit(network, SIZE), plan, batch, training=True), 0)
    emit_gradients(step, build, objectives(network, loss))
    own = [it for it in step.tasks if it.what.part is Part.LOSS]
    node = network.outputs[0].name
    functions = [it for it in step.tasks if (it.what.owner, it.what.part) == (node, Part.FUNCTION)]
    assert all(it.what.serves is Pass.LOSS for it in own)
    return sum(it.cost for it in own), sum(it.cost for it in functions)


@pytest.mark.parametrize(
    ("loss", "function"),
    [
        ("square", "linear"),
        ("binomial_cross_entropy", "logistic"),
        ("square", "softmax"),
        ("dice", "logistic"),
        ("ce_dice", "softmax"),
    ],
)
def test_four_samples_take_four_times_as_long(loss: str, function: str) -> None:
    one, four = seconds(loss, function, 1), seconds(loss, function, 4)
    assert one[0] > 0
    assert four == pytest.approx([4 * it for it in one])
