"""Task graphs with estimated costs and no memory, to simulate networks larger than this machine can hold."""

from __future__ import annotations

from collections.abc import Mapping

from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory_planning import declared_graph, planned_memory
from znnpy.engine.step_tasks import Settings
from znnpy.geometry import fit
from znnpy.graph import TaskGraph
from znnpy.network import objectives
from znnpy.network.types import Network, Triple
from znnpy.plan import Choice, ConvShape, Costs, candidates, choose
from znnpy.plan.choose import ESTIMATED, estimated_costs


def estimated_graph(
    network: Network,
    output_shape: Triple | Mapping[str, Triple],
    conv: Choice = "auto",
    workers: int = 1,
) -> TaskGraph:
    """Return the graph of an even and an odd update as `Model` would run them, with estimated costs; not to be run.

    With `conv: auto` algorithms are chosen by estimate as well: nothing is measured. More `workers` plan more memory,
    so that fewer tasks wait for buffers; the tasks are the same.
    """
    geometry = fit(network, output_shape)
    plan = choose(network, geometry, 1, conv, _costs)
    layout = Layout(network, geometry, plan, 1, training=True, workers=workers)
    # Any loss and optimiser will do: their tasks are a small share of an update.
    settings = Settings(objectives(network, "square"), Optimizer(), None, 1)
    return declared_graph(planned_memory(layout, settings, keep=True), settings)


def _costs(shape: ConvShape) -> tuple[Costs, str]:
    return estimated_costs(shape, candidates(shape)), ESTIMATED
