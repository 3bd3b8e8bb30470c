"""What recording costs: per empty task, and in updates of a real net, recorded and not in turn.

    python scripts/bench_recording.py [--threads 1] [--images 16] [--output 24] [--pairs 15] [--json FILE]

Empty tasks show the two clock readings and the row of the ring; updates show what is left of that
when tasks have their usual size. Pairs run one after the other, so that a slow moment of the
machine meets both; the median of the pairs' ratios counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench_scheduler import layered, one_run
from stopwatch import seconds

import znnpy
from znnpy.profile.recorded_updates import events_needed, random_batch
from znnpy.scheduler import Executor


def main() -> None:
    """Measure, print, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--output", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    results = {"empty_task_ns": empty_tasks(chosen.pairs), **updates(chosen)}
    show(results)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


def empty_tasks(repeat: int) -> dict[str, float]:
    """Nanoseconds of a task that does nothing and has four successors, on one worker."""
    graph = layered(200, 200, 0)
    found = {}
    with Executor(graph, workers=1) as bare, Executor(graph, workers=1, record=1 << 16) as noted:
        pairs = [(one_run(bare, graph), one_run(noted, graph)) for _ in range(repeat)]
    found["off"], found["on"] = (min(times) for times in zip(*pairs, strict=True))
    return found


def updates(chosen: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of an update without and with recording, and the median of their ratios."""
    size = {"channels": chosen.images, "size": 3, "function": "relu"}
    net = {
        "input": 1,
        "layers": [{"conv": size}, {"max_filter": 2}, {"conv": size}, {"conv": size}],
    }
    options: dict[str, Any] = {
        "output_shape": (chosen.output,) * 3,
        "threads": chosen.threads,
        "conv": "direct",
    }
    with znnpy.Model(net, **options) as bare:
        ring = events_needed(bare, 100)
        with znnpy.Model(net, execution=znnpy.Execution(record=ring), **options) as noted:
            batch = random_batch(bare)
            pairs = [(run(bare, batch), run(noted, batch)) for _ in range(chosen.pairs + 1)][1:]
            tasks = bare.task_graph.size // 2
    ratios = [on / off for off, on in pairs]
    low, _, high = quantiles(ratios, n=4)
    return {
        "threads": chosen.threads,
        "tasks": tasks,
        "update_ms": {
            "off": median(off for off, _ in pairs) * 1e3,
            "on": median(on for _, on in pairs) * 1e3,
        },
        "ratio": median(ratios),
        "quartiles": [low, high],
    }


def run(model: znnpy.Model, batch: Any, count: int = 5) -> float:
    """Seconds of one of a few updates, two in flight."""

    def updates() -> None:
        for _ in range(count):
            model.submit(*batch, learning_rate=0.0)
        model.drain()

    return seconds(updates) / count


def show(results: dict[str, Any]) -> None:
    """Print what was found."""
    task, update = results["empty_task_ns"], results["update_ms"]
    low, high = results["quartiles"]
    print(f"empty task: {task['off']:.0f} ns, recorded {task['on']:.0f} ns")
    print(
        f"update of {results['tasks']} tasks, {results['threads']} worker(s): {update['off']:.2f} ms, "
        f"recorded {update['on']:.2f} ms, ratio {results['ratio']:.4f} ({low:.4f} to {high:.4f})"
    )


if __name__ == "__main__":
    main()
