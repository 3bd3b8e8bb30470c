"""The last-level caches and NUMA nodes of the cores of this process, as Linux tells of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")


class LastLevelCache(NamedTuple):
    """A cache of the highest level: its bytes, and which cores of this process it serves, in rising order."""

    bytes: int
    cores: tuple[int, ...]


def last_level_caches(cpus: Path = CPUS) -> list[LastLevelCache]:
    """Return the caches of the highest level that serve this process, by their first core; none if nobody tells."""
    found: dict[tuple[int, str], tuple[int, list[int]]] = {}
    for core in sorted(os.sched_getaffinity(0)):
        for level, shared, size in _caches_of(cpus / f"cpu{core}"):
            found.setdefault((level, shared), (size, []))[1].append(core)
    highest = max((level for level, _ in found), default=0)
    caches = [
        LastLevelCache(size, tuple(cores))
        for (level, _), (size, cores) in found.items()
        if level == highest
    ]
    return sorted(caches, key=lambda cache: cache.cores)


@cache  # each executor asks, and a file is opened for each number of each core: 40 ms of 64 cores
def _caches_of(cpu: Path) -> tuple[tuple[int, str, int], ...]:
    """Return level, cores and bytes of the caches of a core, which stay what they are while a process lives."""
    return tuple(it for index in (cpu / "cache").glob("index[0-9]*") for it in _cache(index))


def _cache(index: Path) -> Iterator[tuple[int, str, int]]:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    files = [index / name for name in ("level", "shared_cpu_list", "size")]
    if all(file.exists() for file in files):
        level, shared, size = (file.read_text().strip() for file in files)
        yield int(level), shared, int(size.rstrip("KMG")) * units.get(size[-1:], 1)


def numa_nodes(nodes: Path = NODES) -> list[int]:
    """Return the numbers of the nodes whose cores this process may use; none if nobody tells."""
    cores, found = os.sched_getaffinity(0), []
    for folder in nodes.glob("node[0-9]*"):
        told = folder / "cpulist"
        if told.exists() and cores & _listed(told.read_text()):
            found.append(int(folder.name.removeprefix("node")))
    return sorted(found)


def _listed(text: str) -> set[int]:
    """Return the numbers of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.strip().split(",") if part]
    return {
        core for first, *last in ends for core in range(int(first), int((last or [first])[0]) + 1)
    }


def by_caches(cores: Sequence[int], caches: Sequence[LastLevelCache]) -> list[int]:
    """Return cores so that those of one cache follow each other; such without one come last."""
    served = [core for cache in caches for core in cache.cores if core in cores]
    return [*served, *sorted(set(cores) - set(served))]


def neighbours(cores: Sequence[int], caches: Sequence[LastLevelCache]) -> list[tuple[int, int]]:
    """Return, for workers that each keep to one of these cores (`by_caches`), first and end of those of its cache.

    Empty ranges where one cache serves all, or nobody tells: then no worker is nearer than others.
    """
    cache_of = {core: number for number, cache in enumerate(caches) for core in cache.cores}
    of = [cache_of.get(core, -1) for core in cores]
    if len(set(of)) < 2:
        return [(0, 0)] * len(of)
    return [(of.index(own), len(of) - of[::-1].index(own)) for own in of]
