"""Ring buffers between the stages of a tiled convolution: each group of tiles takes the next one when it is free."""

from __future__ import annotations

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step

AHEAD_BYTES = 1 << 24  # of a ring's buffers: large groups have enough tasks to go round
WORKER_BYTES = 1 << 22  # the same for each worker, where there are many


def ring_slot(step: Step, build: Build, ring: Name, floats: int, group: int, groups: int) -> Buffer:
    """Return a group's buffer in the ring of that name; declares a gate that waits until it is free.

    `floats`: of the largest of all `groups`.
    """
    # Bits do not depend on the number of slots: groups are the same, only more or fewer may be
    # under way.
    slot = group % ring_slots(build, floats, groups)
    place = build.shared(ring._replace(which=(*ring.which, slot)), floats)
    # One gate instead of edges between all readers of the last group and all writers of this one.
    join(step, place)
    return place


def ring_slots(build: Build, floats: int, groups: int) -> int:
    """Return the number of buffers of a ring: one for each worker, as far as AHEAD_BYTES or WORKER_BYTES allow.

    No more than that, so that the next group finds its buffer in the cache.
    """
    workers = build.layout.workers
    most = max(AHEAD_BYTES, workers * WORKER_BYTES) // (4 * floats)
    return max(1, min(workers, groups, most))
