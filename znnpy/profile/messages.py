"""Messages between ranks during recorded updates: their times, arrivals by phase, rows for pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from znnpy.distributed.communication_thread import Messenger


class Passed(NamedTuple):
    """One message; times in ns on the clock of `time.monotonic_ns`.

    `what`: its name; `way`: send, receive or sum; `peer`: the other rank. `phase`: what it brings tokens to.
    `posted` by a task, `started` when MPI was told, `arrived` when MPI reported it complete.
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
    """Return the messages that a rank sent and received for its tasks, posted after a moment."""
    found = []
    # A copy: the communication thread goes on adding.
    for it in list(messenger.passages):
        if it.posted >= since:
            what = messenger.transfers[it.number]
            times = it.posted, it.started, it.arrived
            found.append(
                Passed(what.what, what.way.value, what.peer, what.bytes, what.phase, *times)
            )
    return found


def arrivals(messages: Iterable[Passed]) -> dict[int, list[int]]:
    """Return when messages arrived, in turn, by phase; of several with one phase the last of each round."""
    times: dict[int, dict[tuple[str, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for it in messages:
        times[it.phase][it.way + it.what, it.peer].append(it.arrived)
    return {
        # Of several messages of a phase the last: the tasks wait for all. Rounds by order, as each message
        # comes once a round.
        phase: [max(moments) for moments in zip(*map(sorted, each.values()), strict=False)]
        for phase, each in times.items()
    }


def lanes(messages: Sequence[Passed]) -> list[list[Passed]]:
    """Return rows of messages that do not overlap in time: each in the first row that is free."""
    rows: list[list[Passed]] = []
    # By start: each row then holds messages one after the other.
    for it in sorted(messages, key=lambda each: each.started):
        free = next((row for row in rows if row[-1].arrived <= it.started), None)
        if free is None:
            rows.append([it])
        else:
            free.append(it)
    return rows
