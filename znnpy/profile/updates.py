"""Run a few updates on random data and keep what every worker did."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from znnpy.engine import Model
from znnpy.graph import TaskGraph
from znnpy.network.types import Node, Triple
from znnpy.scheduler.recording import WorkerRecording


@dataclass(frozen=True)
class Profile:
    """Recorded updates: the graph of an even and an odd step, each worker's events, wall seconds.

    `start_ns` and `end_ns` bound the recorded updates on the clock of `time.monotonic_ns`.
    """

    graph: TaskGraph
    workers: list[WorkerRecording]
    updates: int
    start_ns: int
    end_ns: int

    @property
    def seconds_per_update(self) -> float:
        """Wall time of one update."""
        return (self.end_ns - self.start_ns) * 1e-9 / self.updates


def events_needed(model_tasks: int, updates: int) -> int:
    """Events a worker may have to keep: one worker alone may run every task."""
    return model_tasks // 2 * updates


def profile_updates(model: Model, updates: int, warm_up: int = 2) -> Profile:
    """Time `updates` updates, submitted two deep as in training; the model must record events.

    Data are random: the time of an update does not depend on them.
    """
    batch = random_batch(model)
    for _ in range(warm_up):
        model.step(*batch, learning_rate=0.0)
    model.drain()
    before = [worker.executed for worker in model.recording()]
    start = time.monotonic_ns()
    for _ in range(updates):
        model.submit(*batch, learning_rate=0.0)
    model.drain()
    end = time.monotonic_ns()
    workers = [
        _since(recording, executed)
        for recording, executed in zip(model.recording(), before, strict=True)
    ]
    return Profile(model.task_graph, workers, updates, start, end)


def random_batch(model: Model) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Standard normal inputs and targets of 0 and 1 for one update."""
    rng = np.random.default_rng(0)

    def draw(node: Node, shape: Triple) -> np.ndarray:
        return rng.standard_normal((model.batch, node.images, *shape)).astype(np.float32)

    shapes = model.geometry
    inputs = {n.name: draw(n, shapes.input_shapes[n.name]) for n in model.network.inputs}
    targets = {
        n.name: (draw(n, shapes.output_shapes[n.name]) > 0).astype(np.float32)
        for n in model.network.outputs
    }
    return inputs, targets


def _since(recording: WorkerRecording, executed: int) -> WorkerRecording:
    """Without the events of the warm-up."""
    events = recording.events[len(recording.events) - (recording.executed - executed) :]
    return WorkerRecording(
        events,
        recording.executed - executed,
        recording.steals,
        recording.failed_steals,
        recording.parks,
        recording.parked_ns,
    )
