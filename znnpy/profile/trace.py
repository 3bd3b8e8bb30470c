"""Chrome trace JSON of recorded updates, for Perfetto: one track per worker."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from znnpy.profile.updates import Profile

STOLEN = {1: "stolen from a worker", 2: "released"}


def write_trace(profile: Profile, path: Path) -> None:
    """Write a gzipped trace: slices in microseconds from the first update, instants for steals."""
    trace = {"traceEvents": list(_events(profile)), "displayTimeUnit": "ms"}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    for number, worker in enumerate(profile.workers):
        yield {
            "ph": "M", "name": "thread_name", "pid": 1, "tid": number,
            "args": {"name": f"worker {number}"},
        }  # fmt: skip
        for event in worker.events:
            task = int(event["task"])
            begin = (int(event["start_ns"]) - profile.start_ns) / 1e3
            slice_ = {
                "ph": "X",
                "name": profile.graph.names[task],
                "cat": profile.graph.kinds[task],
                "pid": 1,
                "tid": number,
                "ts": begin,
                "dur": (int(event["end_ns"]) - int(event["start_ns"])) / 1e3,
                "args": {"task": task, "step": int(profile.graph.step[task])},
            }
            yield slice_
            if int(event["stolen"]) == 1:
                yield {
                    "ph": "i", "name": "steal", "pid": 1, "tid": number, "ts": begin, "s": "t",
                }  # fmt: skip
