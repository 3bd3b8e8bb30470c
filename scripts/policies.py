"""Scheduling policies side by side: simulated milliseconds of an update.

    python scripts/policies.py [--workers 16]

The graph that so many workers would get runs on one, so that each of its tasks is timed; then they are simulated under
each policy. `znnpy profile CONFIG --policy all` compares policies on a config, measured as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from peers.cases import network_case
from recorded_scaling import Make, Recording, of_network, record

from znnpy.graph import POLICIES, GraphBuilder
from znnpy.network import load_network
from znnpy.simulate import Replay, simulate
from znnpy.simulate.replay import working

NETWORKS = Path(__file__).parent / "networks"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--updates", type=int, default=10)
    chosen = parser.parse_args()
    print(f"{'net':24}" + "".join(f"{name:>14}" for name in POLICIES))
    for name, make in makers():
        found = record(make, chosen.workers, chosen.updates)
        times = (milliseconds(found, policy, chosen.workers) for policy in POLICIES)
        print(f"{name:24}" + "".join(f"{time:14.2f}" for time in times), flush=True)


def makers() -> Iterator[tuple[str, Make]]:
    """A branched net, a deep one of few voxels, and ZNN's pattern."""
    for name, shape in (("inception", (16, 16, 16)), ("vd2d3d", (2, 8, 8))):
        yield name, of_network(load_network(NETWORKS / f"{name}.yaml"), shape)
    for spec in ("3x40", "5x40"):
        case = network_case(spec)
        yield spec, of_network(case.network, case.output_shape)


def milliseconds(found: Recording, policy: str, workers: int) -> float:
    """Of an update under a policy."""
    own = found.replay
    again = GraphBuilder.of(own.graph).build(policy)
    replay = Replay.of(again, own.costs[:, working(own.graph)])
    return simulate(replay, workers, found.machine, found.updates).seconds_per_step * 1e3


if __name__ == "__main__":
    main()
