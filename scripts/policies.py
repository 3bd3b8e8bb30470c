"""Scheduling policies side by side: simulated milliseconds of an update, by estimated costs.

    python scripts/policies.py [--workers 16]

Task graphs are declared without memory, as they are for that number of workers; nothing of the
networks runs. `znnpy profile CONFIG --policy all` compares policies on a config, measured as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from peers.cases import network_case

from znnpy.engine.estimate import estimated_graph
from znnpy.graph import POLICIES, GraphBuilder, TaskGraph
from znnpy.network import load_network
from znnpy.simulate import Replay, simulate

NETWORKS = Path(__file__).parent / "networks"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=16)
    workers = parser.parse_args().workers
    print(f"{'net':24}" + "".join(f"{name:>14}" for name in POLICIES))
    for name, graph in graphs(workers):
        times = (milliseconds(graph, policy, workers) for policy in POLICIES)
        print(f"{name:24}" + "".join(f"{time:14.1f}" for time in times), flush=True)


def graphs(workers: int) -> Iterator[tuple[str, TaskGraph]]:
    """A branched net, a deep one of few voxels, and ZNN's pattern."""
    for name, shape in (("inception", (16, 16, 16)), ("vd2d3d", (2, 8, 8))):
        network = load_network(NETWORKS / f"{name}.yaml")
        yield name, estimated_graph(network, shape, "direct", workers)
    for spec, conv in (("3x40", "direct"), ("5x40", "spectral")):
        case = network_case(spec)
        graph = estimated_graph(case.network, case.output_shape, conv, workers)
        yield f"{spec} {conv}", graph


def milliseconds(graph: TaskGraph, policy: str, workers: int) -> float:
    """Of an update under a policy."""
    again = GraphBuilder.of(graph).build(policy)
    return simulate(Replay.of(again), workers).seconds_per_step * 1e3


if __name__ == "__main__":
    main()
