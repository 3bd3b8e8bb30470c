"""Targets and weights are read by nobody once the loss is known: their owner may change them then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loss_cases import cases, named
from pydantic import TypeAdapter

from znnpy import load_network
from znnpy.engine import Optimizer
from znnpy.engine.layers.loss import loss_group
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.step_tasks import Settings, all_steps, declare_all
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.dependencies import Accesses
from znnpy.geometry import fit
from znnpy.learning.losses import AnyLoss
from znnpy.network import logits_network, objectives
from znnpy.plan import LayerPlan, Method, Plan


def reads_targets(task: Declared) -> bool:
    """By the word of all kernels that says where the addresses of target and weight stand."""
    return "places" in task.kernel.fields


def waited_for(steps: list[list[Declared]], group: int) -> set[int]:
    """The numbers of the tasks that have run once those of a group have."""
    accesses = Accesses.of(steps)
    ends, before = accesses.predecessors()
    found = {number for number, task in enumerate(accesses.tasks) if task.group == group}
    for number in reversed(range(len(accesses.tasks))):
        if number in found:
            found |= set(before[ends[number] : ends[number + 1]].tolist())
    return found


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("microbatches", [1, 3])
@pytest.mark.parametrize(("loss", "function"), cases(), ids=named)
def test_all_that_reads_targets_has_run(
    loss: Any, function: Any, microbatches: int, learns: bool
) -> None:
    last = {"conv": {"channels": 3, "size": 1, "function": function}}
    layers = [{"conv": {"channels": 3, "size": 1}}, last] if learns else [last]
    keys = TypeAdapter(AnyLoss).validate_python(loss)
    network = logits_network(load_network({"layers": layers}), keys)
    plan = Plan({edge.name: LayerPlan.of(*3 * [Method("direct")]) for edge in network.edges})
    layout = Layout(
        network, fit(network, (4, 40, 40)), plan, 2, training=True, workers=4,
        numbers=range(microbatches), microbatches=microbatches,
    )  # fmt: skip
    frozen = frozenset() if learns else frozenset(edge.name for edge in network.edges)
    settings = Settings(objectives(network, keys), Optimizer(), None, 4, frozen=frozen)
    build = Build.new(Arena(), layout, 1)
    steps = all_steps(build, declare_all(build, settings)["update"], "update")
    for parity, step in enumerate(steps):
        first = parity * len(steps[0])
        readers = {first + at for at, task in enumerate(step) if reads_targets(task)}
        assert len(readers) >= 2 * microbatches
        assert readers <= waited_for([*steps], loss_group(parity))


def test_all_addresses_of_targets_are_found_by_their_word() -> None:
    """No argument but `places` leads to what a caller hands over."""
    network = load_network({"layers": [{"conv": {"channels": 3, "size": 1}}]})
    plan = Plan({edge.name: LayerPlan.of(*3 * [Method("direct")]) for edge in network.edges})
    layout = Layout(network, fit(network, (2, 3, 4)), plan, 1, training=True, workers=1)
    build = Build.new(Arena(apart=True), layout, 1)
    settings = Settings(objectives(network, "ce_dice"), Optimizer(), None, 1)
    (step,) = declare_all(build, settings)["update"]
    (places,) = build.staging[0][0].places.values()
    assert places
    leading = [np.flatnonzero(np.array(task.arguments) == places) for task in step]
    for task, found in zip(step, leading, strict=True):
        assert [task.kernel.fields[at] for at in found] == ["places"] * reads_targets(task)
