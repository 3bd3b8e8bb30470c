"""Chooses how many samples of a batch are computed at once (`microbatch: auto`), by workers and memory."""

from __future__ import annotations

from collections.abc import Callable

from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory_planning import forecast, room_for_replicas
from znnpy.engine.step_tasks import Settings
from znnpy.errors import PlanError

NEAR = 1.25
"""Microbatches whose update takes at most this times the least are as good; the largest of them is taken.

Estimates do not know how much worse smaller ones fill vectors: Caffe's LeNet, 64 samples, had least time in simulations
of recorded tasks with 64 at once on 1 and 2 workers, 16 on 16 and 8 on 64, which are chosen so.
"""


def chosen_microbatch(
    layout_of: Callable[[int], Layout], settings: Settings, sizes: list[int]
) -> int:
    """Return which of the sizes of microbatches to take, of those whose memory fits without computing anything again.

    `layout_of` gives the layout of an update in microbatches of a size; `sizes` from large to small. If none fits, the
    smallest.
    """
    room, found = room_for_replicas(settings), dict[int, float]()
    for size in sizes:
        try:
            made = forecast(layout_of(size), settings)
        except PlanError:  # whoever makes a model of the smallest says what is too large
            continue
        if made.bytes > room:
            continue
        found[size] = made.seconds
        # Smaller ones have as much work or more: none could be much faster.
        if made.seconds <= NEAR * made.least:
            break
    least = min(found.values(), default=0.0)
    near = [size for size, seconds in found.items() if seconds <= NEAR * least]
    return max(near, default=sizes[-1])
