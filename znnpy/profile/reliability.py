"""Whether recordings can be compared and scaled: what cannot be is no speed of this network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from znnpy.profile.svg import seconds

DISTURBED = 1.2
"""Mean over median time of tasks above which other programs seem to use the cores."""
AWAY = 0.2
"""Share of the workers' time without a core above which it was not theirs."""
LINEAR = 1.15
"""P workers are at most this times P times as fast as one: each brings caches of its own, and no more."""
FASTER = 1.25
"""Tasks take at most this times as long alone as beside others, which only take memory and cores from them."""
OFF = 0.25
"""Share by which a simulated time may be off before what was not simulated decides."""
UNSCALED = "What other numbers of workers would bring is not said: repeat it on a quiet machine."


def find_doubts(
    runs: Sequence[Mapping[str, Any]], error: Mapping[str, float], cores: int
) -> list[str]:
    """Sentences about what of these runs of `summarise` cannot be, by which nothing shall be scaled.

    `error`: share by which the simulation is off, by number of threads. Runs on more threads than cores are
    slower than they should be, and do not count.
    """
    fair = [run for run in runs if run["threads"] <= cores]
    found = [sentence for run in fair for sentence in _disturbed(run, cores)]
    if fair:
        found += [sentence for run in fair[1:] for sentence in _too_fast(fair[0], run)]
    found += [sentence for run in fair for sentence in _unlike(run, error)] if not found else []
    return [*found, UNSCALED] if found else []


def _disturbed(run: Mapping[str, Any], cores: int) -> Iterator[str]:
    """Where workers have all cores, the thread that hands updates over takes one of theirs: that is as it is."""
    lost, caller = run["losses"], run["caller"] if run["threads"] == cores else 0.0
    away = (lost["without a core"] - caller) / max(sum(lost.values()), 1e-12)
    if away > AWAY:
        yield (
            f"The measurement was disturbed: {workers(run['threads'])} had no core for {away:.0%} of the time, which "
            "the system gave to other programs."
        )
    elif run["disturbance"] > DISTURBED:
        yield (
            f"The measurement was disturbed: on {workers(run['threads'])} tasks took {run['disturbance']:.1f} times "
            "their median time on average. Other programs seem to use the cores."
        )


def _too_fast(one: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    """What more workers cannot bring, and fewer must have lost."""
    gain, more = one["seconds"] / run["seconds"], run["threads"] / one["threads"]
    if gain > LINEAR * more:
        yield (
            f"{workers(run['threads'])} cannot be {gain:.2f} times as fast as {one['threads']} "
            f"({seconds(run['seconds'])} and {seconds(one['seconds'])} were measured): something else took the time of "
            f"{one['threads']}."
        )
    elif one["work"] > FASTER * run["work"]:
        yield (
            f"The tasks of {workers(one['threads'])} took {one['work'] / run['work']:.2f} times as long as the same "
            f"beside others, on {run['threads']}: they were slowed down by something else."
        )


def _unlike(run: Mapping[str, Any], error: Mapping[str, float]) -> Iterator[str]:
    off = error.get(str(run["threads"]), 0.0)
    if abs(off) > OFF:
        yield (
            f"The simulation says {seconds(run['seconds'] * (1 + off))} where {workers(run['threads'])} took "
            f"{seconds(run['seconds'])}: what took the time there is neither tasks nor dispatch."
        )


def workers(count: int) -> str:
    """So many, in words."""
    return f"{count} worker{'' if count == 1 else 's'}"
