"""How much of what ranks sent each other workers had to wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from znnpy.engine.tasks.identity import identities
from znnpy.profile.layers import Layers
from znnpy.profile.losses import Losses
from znnpy.profile.updates import Profile


def summarise_messages(profile: Profile, losses: Losses) -> dict[str, Any] | None:
    """`messages` of a run, JSON-able, for one update; None where nothing was sent.

    `exposed`: seconds for which workers had nothing to do until a message came, of all workers by their
    number; by layer and by update too. `under_way`: seconds with any message from post to arrival.
    """
    if not profile.messages:
        return None
    workers, updates = len(profile.workers), profile.updates
    found, layers = identities(profile.graph), Layers(profile.network)
    by_layer: dict[str, float] = defaultdict(float)
    by_update = [0.0] * updates
    for (update, task), seconds in losses.exposed.items():
        by_layer[layers.of(found[task])] += seconds / workers / updates
        by_update[min(update, updates - 1)] += seconds / workers
    return {
        "exposed": sum(by_layer.values()),
        "by_layer": dict(sorted(by_layer.items(), key=lambda item: -item[1])),
        "by_update": by_update,
        "under_way": _covered([(it.posted, it.arrived) for it in profile.messages]) / updates,
        "count": len(profile.messages) / updates,
        "bytes": {
            way: sum(it.bytes for it in profile.messages if it.way == way) / updates
            for way in sorted({it.way for it in profile.messages})
        },
    }


def _covered(spans: Sequence[tuple[int, int]]) -> float:
    """Seconds within any of the spans, given in nanoseconds."""
    total, reached = 0, 0
    for low, high in sorted(spans):
        total += max(0, high - max(low, reached))
        reached = max(reached, high)
    return total * 1e-9
