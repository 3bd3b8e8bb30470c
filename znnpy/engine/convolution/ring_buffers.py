"""Rings of buffers: what waits between the stages of a convolution, group by group of its tiles."""

from __future__ import annotations

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step

AHEAD_BYTES = 1 << 24  # of a ring's buffers: large groups have enough tasks to go round
WORKER_BYTES = 1 << 22  # the same for each worker, where there are many


def ring_slot(step: Step, build: Build, ring: Name, floats: int, group: int, groups: int) -> Buffer:
    """The place of a group in a ring of that name, after a gate that waits until it is free.

    `floats` of the largest of all `groups`.
    """
    slot = group % ring_slots(build, floats, groups)
    place = build.shared(ring._replace(which=(*ring.which, slot)), floats)
    join(step, place)
    return place


def ring_slots(build: Build, floats: int, groups: int) -> int:
    """Buffers of a ring: one for each worker, as far as AHEAD_BYTES or WORKER_BYTES go.

    No more than that: the next group finds its buffer in the cache.
    """
    workers = build.layout.workers
    most = max(AHEAD_BYTES, workers * WORKER_BYTES) // (4 * floats)
    return max(1, min(workers, groups, most))
