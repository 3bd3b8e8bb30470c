"""Counts the cores that this process may use (affinity, cgroup quota, SLURM) and pins threads to them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from znnpy.cgroups import MEMBERSHIP, ROOT, folders, words


def available_cores(sharers: int = 1) -> int:
    """Return the smallest of CPU affinity, cgroup quota (rounded up) and SLURM_CPUS_PER_TASK; at least 1.

    `sharers`: number of processes that share the affinity and the quota, this one included.
    """
    # Affinity and quota are of the whole host's processes, so sharers divide them; SLURM's number is of each
    # task alone.
    common = min(filter(None, (len(os.sched_getaffinity(0)), quota_cores())))
    return max(1, min(filter(None, (common // sharers or 1, slurm_cores()))))


def own_cores(workers: int) -> list[int] | None:
    """Return a core for each worker if there are as many workers as cores, else None.

    Fewer workers may share the machine with other processes; then the system finds them free cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    # Equal numbers: only then is no core left over, and the system, which sees short sleeps, would move workers
    # for nothing.
    # More than one: a single worker gains nothing from being pinned, and the system may move it away from a
    # busy core.
    return cores if workers == len(cores) > 1 else None


def keep_to(core: int) -> None:
    """Pin the calling thread to one core, if the system allows it."""
    with suppress(OSError):
        os.sched_setaffinity(0, {core})


def slurm_cores() -> int | None:
    """Return SLURM_CPUS_PER_TASK if it is a positive number, else None."""
    text = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(text) if text.isdigit() and int(text) > 0 else None


def quota_cores(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Return how many cores the cgroup quotas (version 1 or 2) allow, rounded up; None if there is no quota."""
    quotas = [
        quota
        for folder in folders("cpu", root, membership)
        for quota in (_version_2(folder / "cpu.max"), _version_1(folder))
        if quota is not None
    ]
    return min(quotas, default=None)


def _version_2(file: Path) -> int | None:
    found = words(file)
    # `max` is no quota. Rounded up: a fraction of a core is worth a worker.
    return None if len(found) != 2 or found[0] == "max" else -(-int(found[0]) // int(found[1]))


def _version_1(folder: Path) -> int | None:
    quota = words(folder / "cpu.cfs_quota_us")
    period = words(folder / "cpu.cfs_period_us")
    # -1 is no quota in version 1.
    if not quota or not period or int(quota[0]) <= 0:
        return None
    return -(-int(quota[0]) // int(period[0]))
