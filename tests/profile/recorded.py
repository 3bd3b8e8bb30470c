"""A small recorded net, made once for all tests of the profiler."""

from __future__ import annotations

from functools import cache

import znnpy
from znnpy.profile.recorded_updates import (
    Profile,
    events_needed,
    profile_predictions,
    profile_updates,
)
from znnpy.profile.simulation import MANY

NET = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 4, "size": 3, "function": "relu"}},
        {"max_filter": 2},
        {"conv": {"channels": 3, "size": 3}},
    ],
}


def small_model(threads: int, *, training: bool = True, record: int = 0) -> znnpy.Model:
    """A model of the net, cut for as many workers as are simulated."""
    return znnpy.Model(
        NET,
        (10, 10, 10),
        threads=threads,
        conv="direct",
        training=training,
        execution=znnpy.Execution(record=record, cut_for=MANY),
    )


@cache
def recorded(threads: int = 2, updates: int = 5, training: bool = True) -> Profile:
    """A profile of some updates, or forward passes."""
    with small_model(threads, training=training) as model:
        needed = events_needed(model, updates + 2)
    with small_model(threads, training=training, record=needed) as model:
        run = profile_updates if training else profile_predictions
        return run(model, updates, 2)
