"""Roofline: what a machine's cores and memory allow each kind of task, from its operations and bytes.

Williams, Waterman and Patterson 2009. Operations are counted for convolutions; what other kinds compute is little
beside the bytes that they move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any


def roofline(run: Mapping[str, Any], counted: Mapping[str, Any], gflops: float) -> dict[str, Any]:
    """Return `roofline` of a summary, JSON-able: a row for each kind of task of a run, for one update.

    `counted`: figures of a machine, and by kind the bytes `touched` and `moved` from and to memory, of `count_memory`.
    `gflops`: of sgemm on one core. `by_operations`, `by_memory`: seconds that all its cores need at least
    for the operations at sgemm's rate, and its memory for the bytes; `shared`: the tasks' time shared by all cores;
    `bound`: what takes longest.
    """
    peak = gflops * 1e9 * counted["cores"]
    flops = defaultdict[str, float](float)
    for entry in run["names"]:
        flops[entry["kind"]] += entry["flops"] or 0.0
    rows = []
    for kind, seconds in run["kinds"].items():
        # Gates touch nothing, and are not in every graph.
        if kind not in counted["kinds"]:
            continue
        moved = counted["kinds"][kind]["moved"]
        limits = {
            "cores": seconds / counted["cores"],
            "memory": moved / counted["bandwidth"],
        }
        rows.append(
            {
                "kind": kind,
                "seconds": seconds,
                "flops": flops[kind] or None,
                **counted["kinds"][kind],
                "by_operations": flops[kind] / peak,
                "by_memory": limits["memory"],
                "shared": limits["cores"],
                "bound": max(limits, key=lambda name: limits[name]),
            }
        )
    figures = {key: counted[key] for key in ("cores", "bandwidth", "cache", "domains")}
    return {**figures, "gflops": gflops, "rows": rows}
