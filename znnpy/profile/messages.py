"""What ranks sent each other during recorded updates, and how much of it workers had to wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from znnpy.engine.tasks.identity import identities
from znnpy.profile.layers import Layers

if TYPE_CHECKING:
    from znnpy.distributed.messenger import Messenger
    from znnpy.profile.losses import Losses
    from znnpy.profile.updates import Profile


class Passed(NamedTuple):
    """One message; times in ns on the clock of `time.monotonic_ns`.

    `what`: its name; `way`: send, receive or sum; `peer`: the other rank. `phase`: what it brings tokens to.
    `posted` by a task, `started` when MPI was told, `arrived` when MPI had done it.
    """

    what: str
    way: str
    peer: int
    bytes: int
    phase: int
    posted: int
    started: int
    arrived: int


def passed(messenger: Messenger, since: int) -> list[Passed]:
    """What a rank sent and received for the tasks that it runs, posted after a moment."""
    found = []
    for it in list(messenger.passages):
        if it.posted >= since:
            what = messenger.transfers[it.number]
            times = it.posted, it.started, it.arrived
            found.append(
                Passed(what.what, what.way.value, what.peer, what.bytes, what.phase, *times)
            )
    return found


def arrivals(messages: Iterable[Passed]) -> dict[int, list[int]]:
    """When messages came, in turn, by phase; of several with one phase the last of each round."""
    times: dict[int, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for it in messages:
        times[it.phase][it.way + it.what, it.peer].append(it.arrived)
    return {
        phase: [max(moments) for moments in zip(*map(sorted, each.values()), strict=False)]
        for phase, each in times.items()
    }


def lanes(messages: Sequence[Passed]) -> list[list[Passed]]:
    """Rows of messages that are under way one after the other: each in the first row that is free."""
    rows: list[list[Passed]] = []
    for it in sorted(messages, key=lambda each: each.started):
        free = next((row for row in rows if row[-1].arrived <= it.started), None)
        if free is None:
            rows.append([it])
        else:
            free.append(it)
    return rows


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
