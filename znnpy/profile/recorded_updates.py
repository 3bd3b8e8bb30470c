"""Records a few updates or forward passes on random data: what every worker did, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import psutil

from znnpy.distributed.world import World
from znnpy.engine import Model
from znnpy.graph import TaskGraph
from znnpy.network.types import Network, Node, Triple
from znnpy.profile.messages import Passed, arrivals, passed
from znnpy.profile.timeline import Timeline, build_timeline
from znnpy.scheduler.recording import WorkerRecording


@dataclass(frozen=True)
class Profile:
    """Recorded updates or forward passes; times in ns on the clock of `time.monotonic_ns`.

    `start_ns` and `end_ns` enclose them all. Every task of an update ran once an update; the workers'
    recordings hold these updates alone, from the first on.
    """

    graph: TaskGraph
    network: Network
    workers: list[WorkerRecording]
    updates: int
    start_ns: int
    end_ns: int
    releases: list[int]
    """When each update had been handed to the workers."""
    memory: list[tuple[int, int]]
    """(time, bytes of the process in memory)"""
    planned_bytes: int
    caller_seconds: float = 0.0
    """Seconds of an update in which the thread that submits updates computed."""
    messages: Sequence[Passed] = ()
    """Messages that this rank sent and received meanwhile."""

    @property
    def seconds_per_update(self) -> float:
        """The wall time of one update."""
        return (self.end_ns - self.start_ns) * 1e-9 / self.updates

    @property
    def tasks_per_update(self) -> int:
        """The tasks of one update: the graph holds one or two copies of a step."""
        return self.graph.size // (int(self.graph.step.max(initial=0)) + 1)

    @cached_property
    def timeline(self) -> Timeline:
        """When each task was ready, began and ended."""
        return build_timeline(self.graph, self.workers, self.releases, arrivals(self.messages))


def events_needed(model: Model, updates: int) -> int:
    """Return the most events that a worker may have to keep: one worker alone may run every task."""
    graph = model.task_graph
    # Of one copy, so many times: both copies have as many tasks.
    return graph.size // (int(graph.step.max(initial=0)) + 1) * updates


def profile_updates(
    model: Model, updates: int, warm_up: int = 2, world: World | None = None
) -> Profile:
    """Record `updates` updates, submitted two deep as in training; the model must keep events.

    `warm_up` updates (an even number) run first. Data are random: the time of an update does not
    depend on them, and a learning rate of 0 keeps the weights. `world`: the ranks that share each update,
    which all must call it.
    """
    inputs, targets = random_batch(model)

    def submit() -> None:
        # A learning rate of 0: all work is done, and nothing learned.
        model.submit(inputs, targets, learning_rate=0.0)

    profile = _profile(model, updates, warm_up, submit)
    if world is None or world.size == 1:
        return profile
    # After it, passages are complete: a message may be posted by one rank and not yet known as complete by
    # another.
    world.exchange(None)  # all have what others sent them
    return replace(profile, messages=passed(world.messenger, profile.start_ns))


def profile_predictions(model: Model, passes: int, warm_up: int = 1) -> Profile:
    """Record forward passes of one block, one after the other as in prediction."""
    inputs = _draw(model, model.network.inputs, model.geometry.input_shapes)
    return _profile(model, passes, warm_up, lambda: model.forward(inputs))


def random_batch(model: Model) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return standard normal inputs and targets of 0 and 1 for one update: of classes, one at each voxel."""
    shapes = model.geometry
    targets = _draw(model, model.network.outputs, shapes.output_shapes)
    return _draw(model, model.network.inputs, shapes.input_shapes), {
        name: _target(values, classes=model.losses[name].reading.whole_voxels)
        for name, values in targets.items()
    }


def _target(values: np.ndarray, *, classes: bool) -> np.ndarray:
    chosen = values == values.max(axis=1, keepdims=True) if classes else values > 0
    return chosen.astype(np.float32)


def _draw(
    model: Model, nodes: tuple[Node, ...], shapes: Mapping[str, Triple]
) -> dict[str, np.ndarray]:
    # Always the same numbers, so that runs differ by time alone.
    rng = np.random.default_rng(0)
    return {
        node.name: rng.standard_normal(
            (len(model.samples), node.channels, *shapes[node.name])
        ).astype(np.float32)
        for node in nodes
    }


def _profile(model: Model, updates: int, warm_up: int, submit: Callable[[], object]) -> Profile:
    process = psutil.Process()
    for _ in range(warm_up):
        submit()
    # Drained before the first reading: no task of the warm-up may count.
    model.drain()
    before = model.recording()
    # Processor time of this thread alone: what it computes between submissions.
    computed, start = time.thread_time(), time.monotonic_ns()
    releases, memory = [], [(start, process.memory_info().rss)]
    for _ in range(updates):
        submit()
        releases.append(time.monotonic_ns())
        memory.append((releases[-1], process.memory_info().rss))
    model.drain()
    end, computed = time.monotonic_ns(), time.thread_time() - computed
    workers = [_since(*pair) for pair in zip(model.recording(), before, strict=True)]
    return Profile(
        model.task_graph,
        model.network,
        workers,
        updates,
        start,
        end,
        releases,
        memory,
        model.memory,
        computed / updates,
    )


def _since(recording: WorkerRecording, before: WorkerRecording) -> WorkerRecording:
    """Return a recording without the warm-up."""
    executed = recording.executed - before.executed
    searched = recording.searched - before.searched
    return replace(
        recording,
        # From the end: the ring may have dropped the warm-up's first events already.
        events=recording.events[len(recording.events) - executed :],
        executed=executed,
        steals=recording.steals - before.steals,
        failed_steals=recording.failed_steals - before.failed_steals,
        parks=recording.parks - before.parks,
        parked_ns=recording.parked_ns - before.parked_ns,
        # There may be fewer, if the ring has wrapped.
        searches=recording.searches[max(0, len(recording.searches) - searched) :],
        searched=searched,
    )
