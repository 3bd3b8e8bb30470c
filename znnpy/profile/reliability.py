"""Doubts about recordings: finds measurements that cannot be right, from which nothing is extrapolated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from znnpy.pictures.svg import seconds

# Means feel a few long runs, medians do not: a fifth more says that many were interrupted.
DISTURBED = 1.2
"""Mean over median time of tasks above which other programs seem to use the cores."""
# A fifth of the time is more than the submitting thread and a system's own tasks take.
AWAY = 0.2
"""Fraction of the workers' time without a core from which on the cores were not theirs."""
# A larger cache for all workers' data makes more than P times possible; 15 % leaves room for that and for
# noise.
LINEAR = 1.15
"""P workers are at most this times P times as fast as one: each brings caches of its own, and no more."""
# A quarter above, beyond the noise of two recordings.
FASTER = 1.25
"""Tasks take at most this times as long alone as beside others, which only take memory and cores from them."""
# A quarter: the simulation knows neither caches nor other programs to better than that.
OFF = 0.25
"""Fraction by which a simulated time may be off before something else than the simulated causes decides."""
UNSCALED = "What other numbers of workers would bring is not said: repeat it on a quiet machine."


def find_doubts(
    runs: Sequence[Mapping[str, Any]], error: Mapping[str, float], cores: int
) -> list[str]:
    """Return sentences about what cannot be right in these runs of `summarise`.

    `error`: fraction by which the simulation is off, by number of threads. Runs on more threads than cores are
    slower than they should be, and do not count.
    """
    # More threads than cores are slowed down by each other, which is no disturbance.
    fair = [run for run in runs if run["threads"] <= cores]
    found = [sentence for run in fair for sentence in _disturbed(run, cores)]
    if fair:
        found += [sentence for run in fair[1:] for sentence in _too_fast(fair[0], run)]
    # Only if nothing else is odd: a disturbed run is unlike its simulation anyway.
    found += [sentence for run in fair for sentence in _unlike(run, error)] if not found else []
    return [*found, UNSCALED] if found else []


def _disturbed(run: Mapping[str, Any], cores: int) -> Iterator[str]:
    """Yield a doubt if other programs used cores.

    None where workers have all cores: the submitting thread then takes one of theirs.
    """
    lost, caller = run["losses"], run["caller"] if run["threads"] == cores else 0.0
    # With all cores in use the submitting thread has none of its own.
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
    """Yield a doubt if more workers bring more than they can, so that fewer must have lost time."""
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
    """Return "1 worker" or "n workers"."""
    return f"{count} worker{'' if count == 1 else 's'}"
