"""Predicts the time of an update on more ranks (data parallel), for every all-reduce strategy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from znnpy.distributed.strategies import STRATEGIES, Strategy, adjusted
from znnpy.graph import TaskGraph
from znnpy.simulate.allreduce import Exchange, Links, exchanged
from znnpy.simulate.measured_costs import Measured, calibrated
from znnpy.simulate.run import Outcome, simulate_ranks

RANKS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of ranks that a profile predicts for."""
COLORS = (2, 4, 8)
"""Numbers of trees of `multicolor` that are compared."""
# So that each step counted has a step before and behind it, as in training.
STEPS = 6
"""Simulated steps: the first two and the last are left out of the mean (`Outcome.steady`)."""


def simulate_scaling(
    measured: Mapping[int, Measured],
    layers: Callable[[TaskGraph], Sequence[Sequence[Exchange]]],
    urgent: Callable[[TaskGraph, Strategy, int], Collection[int]],
    ranks: Sequence[int] = RANKS,
    links: Links | None = None,
    steps: int = STEPS,
    seed: int = 0,
    colors: int | None = None,
    chunk: int | None = None,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return `ranks` of a profile's summary, JSON-able: every rank computes the recorded update.

    Each rank has as many workers as the recorded run with most. `alone`: seconds of an update of one rank. A row for
    each number of ranks and strategy: `seconds` of an update; `exposed`, how much of it is longer than with messages
    that take no time; `unequal`, what those take beyond `alone`, as ranks wait for the slowest; `wire`, how long the
    busiest port carries messages.
    `layers`: the exchanges of a graph. `urgent`: tasks that come first by a strategy, on ranks of so many workers.
    `colors`, `chunk`: those of a config (default: several colors side by side, the strategies' own chunks).
    `report(done, total)` counts simulated ranks over all runs. Raises ValueError if nothing was measured or there is
    nothing to add up.
    """
    known, workers, links = calibrated(measured), max(measured), links or Links()
    graph = measured[workers].graph
    replay, machine, summed = known.replay(graph, workers), known.on(workers), layers(graph)
    if not summed:
        raise ValueError("these steps move no weights, so ranks have nothing to add up")

    ways = [(count, it) for count in ranks for it in _ways(count, colors, chunk)]
    # For the progress bar: simulating a rank takes about as long whatever the strategy.
    done, total = 0, 1 + sum(ranks) + sum(count for count, _ in ways)

    def run(count: int, strategy: Strategy, links: Links) -> Outcome:
        nonlocal done
        first = urgent(graph, strategy, workers)
        it = exchanged(replay, summed, count, strategy, links, first)
        found = simulate_ranks(
            it.replays, it.messages, workers, machine, steps, seed, ports=it.ports
        )
        done += count
        if report:
            report(done, total)
        return found

    # Any strategy: one rank sends nothing.
    alone, rows = run(1, STRATEGIES["tree"], links).steady, []
    # Messages without time show what ranks lose by waiting for the slowest alone.
    free = replace(links, latency=0.0, bandwidth=inf, adding=0.0)
    undelayed = {count: run(count, STRATEGIES["allreduce"], free).steady for count in ranks}
    for count, strategy in ways:
        found = run(count, strategy, links)
        rows.append(
            {
                "ranks": count,
                "strategy": strategy.name,
                "colors": strategy.colors,
                "seconds": found.steady,
                "exposed": found.steady - undelayed[count],
                "unequal": undelayed[count] - alone,
                "wire": float(found.carried.max(initial=0.0)) / steps,
            }
        )
    return {
        "workers": workers,
        "alone": alone,
        # Of one step: both copies exchange the same.
        "bytes": sum(it.size for layer in summed for it in layer if it.step == 0),
        "latency": links.latency,
        "bandwidth": links.bandwidth,
        "rows": rows,
    }


def _ways(ranks: int, colors: int | None, chunk: int | None) -> Iterator[Strategy]:
    # More trees than ranks have no rank of their own to add at.
    several = [it for it in COLORS if it <= ranks] if colors is None else [colors]
    for strategy in STRATEGIES.values():
        for each in several if strategy.colors > 1 else [None]:
            yield adjusted(strategy, each, chunk)
