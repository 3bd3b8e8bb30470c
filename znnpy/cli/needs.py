"""What an update needs: counted from its tasks, or at least, where these would be very many."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from znnpy.config.models import Config
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.images import Layout
from znnpy.engine.memory.limits import TooLargeError, least_bytes
from znnpy.engine.planning import MemoryPlan, estimated_work, planned_within
from znnpy.engine.steps import Settings
from znnpy.geometry import Geometry
from znnpy.network import Network, training_losses
from znnpy.plan import Plan
from znnpy.plan.choose import UNMEASURED
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.ranges import TARGET_SECONDS

MOST_TASKS = 3000  # of an update, as estimated, up to which they are declared to be counted
TASKS_EACH = 10  # of a node and its edges, at least
Algorithms = list[dict[str, Any]]


@dataclass(frozen=True)
class Needs:
    """What an update needs, or, if that is not `counted`, at least.

    `bytes` in all, `uses`: what they serve at the moment that needs most, `kept`: with which nothing would be made
    again. `work`: seconds on one core, `again` of them for what is made again. `in_flight`: microbatches at once.
    """

    counted: bool
    bytes: int
    uses: dict[str, int]
    kept: int
    work: float
    again: float
    in_flight: int


def find_needs(
    config: Config,
    network: Network,
    geometry: Geometry,
    plan: Plan,
    algorithms: Algorithms,
    threads: int,
    most: int | None,
    *,
    always: bool,
) -> Needs:
    """Counted `always`, or where there are few tasks by estimate; PlanError when it is more than `most` bytes."""
    training = config.training
    count, optimizer = training.batch // training.at_once, Optimizer.of(training.optimizer)
    tasks = count * _expected_tasks(algorithms, network, geometry, training.at_once)
    if not always and tasks > MOST_TASKS:
        states, sizes = len(optimizer.state_names), (network, geometry, training.at_once)
        least = least_bytes(*sizes, True, staged=training.batch, states=states)
        work = count * sum(row["seconds"] for row in algorithms)
        return Needs(False, least, {}, least, work, 0.0, 1)
    layout = Layout.of_batch(
        network, geometry, plan, training.batch, training.at_once, training.seed, threads
    )
    settings = Settings(
        training_losses(config, network),
        optimizer,
        training.clip_norm,
        threads,
        config.run.policy,
        max_memory=most,
    )
    memory = _planned(layout, settings, algorithms)
    work = estimated_work(memory.layout, settings) + memory.again
    return Needs(
        True,
        memory.bytes,
        dict(memory.uses),
        memory.kept,
        work,
        memory.again,
        memory.layout.replicas,
    )


def _planned(layout: Layout, settings: Settings, algorithms: Algorithms) -> MemoryPlan:
    """Memory as planned; PlanError says where other algorithms might need less."""
    try:
        return planned_within(layout, settings)
    except TooLargeError as error:
        if any(row["why"] == UNMEASURED for row in algorithms):
            estimated = (
                f"{error.hint}. Algorithms are estimated here; training measures them first and may need "
                "another amount: --measure does it now"
            )
            raise TooLargeError(error.needs, error.has, estimated) from None
        raise


def _expected_tasks(
    algorithms: Algorithms, network: Network, geometry: Geometry, batch: int
) -> float:
    """About how many tasks an update has: declaring them all takes time and memory for each."""
    voxels: int = sum(node.images * prod(geometry.nodes[node.name].shape) for node in network.nodes)
    moved = 4.0 * 3 * batch * voxels / MEMORY_RATE
    seconds: float = sum(row["seconds"] for row in algorithms)
    return TASKS_EACH * len(network.nodes) + (seconds + moved) / TARGET_SECONDS
