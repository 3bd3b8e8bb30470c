"""Spectra of filters that are kept: a task makes those of a run of filters, whichever channels are many."""

from __future__ import annotations

from collections import Counter

import pytest
from znnpy_kernels.fft.filters import FILTER_SPECTRA
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.fft.filters import filter_spectra_of
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Pass
from znnpy.geometry import fit
from znnpy.network import load_network
from znnpy.plan import PASSES, LayerPlan, Method, Plan


def tasks_of(inputs: int, outputs: int, size: int) -> list[Declared]:
    """Of the second of two convolutions."""
    layers = [{"conv": {"channels": n, "size": size}} for n, size in ((inputs, 1), (outputs, 3))]
    network = load_network({"input": 1, "layers": layers})
    method = LayerPlan.of(*[Method("fft")] * len(PASSES))
    plan = Plan({edge.name: method for edge in network.edges})
    layout = Layout(network, fit(network, (size,) * 3), plan, 1, training=True)
    build, step = Build.new(Arena(), layout, 0), Step()
    filter_spectra_of(step, build, network.edges[1], Pass.FORWARD)
    return step.tasks


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "runs"),
    [
        (80, 80, 3, 80 * -(-80 // LANES)),
        (1, 70, 6, -(-70 // LANES)),
        (3, 70, 6, 3 * -(-70 // LANES)),
        (70, 2, 6, 2 * -(-70 // LANES)),
        (3, 2, 60, 6),  # filters that are worth a task each
    ],
)
def test_a_task_makes_a_run_of_spectra(inputs: int, outputs: int, size: int, runs: int) -> None:
    tasks = tasks_of(inputs, outputs, size)
    assert len(tasks) <= runs
    written = Counter(region.section for task in tasks for region in task.writes)
    assert written == Counter(range(inputs * outputs))
    for task in tasks:
        assert task.arguments[FILTER_SPECTRA.filters] == len(task.writes)
    one = min(task.cost / len(task.writes) for task in tasks)
    assert sum(task.cost for task in tasks) == pytest.approx(one * inputs * outputs)
