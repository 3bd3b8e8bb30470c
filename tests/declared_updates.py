"""Updates of small networks as they are declared: nothing is compiled, no memory is taken."""

from __future__ import annotations

from typing import Any

from znnpy.engine.emit import emit_update
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.dependencies import Declared
from znnpy.engine.tasks.step import Step
from znnpy.geometry import fit
from znnpy.network import load_network, objectives
from znnpy.plan import PASSES, LayerPlan, Method, Plan
from znnpy.plan.types import ALGORITHM_NAMES

SIZE = (10, 10, 10)


def chain(*images: int) -> dict[str, Any]:
    """A net of convolutions of 3 x 3 x 3 with so many images, the input's first."""
    layers = [{"conv": {"channels": count, "size": 3, "function": "relu"}} for count in images[1:]]
    return {"input": images[0], "layers": layers}


def method_of(name: str) -> Method:
    """The method of this name, as `spectral 8x8x8`."""
    algorithm, _, sizes = name.partition(" ")
    known = ALGORITHM_NAMES[ALGORITHM_NAMES.index(algorithm)]
    z, y, x = map(int, sizes.split("x")) if sizes else (0, 0, 0)
    return Method(known, (z, y, x) if sizes else None)


def update_of(config: Any, *methods: str) -> list[Declared]:
    """The tasks of one update whose convolutions run by these methods, one a pass or one for all.

    Those that Winograd's cannot take, from images that lie planar, run directly.
    """
    network = load_network(config)
    by_pass = [method_of(name) for name in (methods * len(PASSES))[: len(PASSES)]]
    layers = LayerPlan.of(*by_pass), LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan(
        {
            edge.name: layers["winograd" in methods and network.node(edge.source).kind == "input"]
            for edge in network.edges
            if edge.kind == "conv"
        }
    )
    layout = Layout(network, fit(network, SIZE), plan, 1, training=True)
    step = Step()
    losses = objectives(network, "square")
    emit_update(step, Build.new(Arena(), layout, 1), losses, Optimizer(), clip_norm=1.0)
    return step.tasks
