"""Records versions and CPU of a run, and refuses ranks whose machines would compute other bits."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from znnpy.data.process_memory import free_memory, share_memory
from znnpy.distributed.core_shares import Place
from znnpy.errors import RunError
from znnpy.plan.fingerprint import vectors

# Those whose versions may change bits.
_PACKAGES = ("znnpy", "numpy", "numba", "llvmlite", "pyfftw")

Member = dict[str, Any]
"""One rank's machine: host, cores, memory, versions, vectors; JSON-able."""


def versions(seed: int) -> dict[str, Any]:
    """Return versions of the packages that compute, the CPU and vectors that numba compiles for, and the run's seed."""
    # Late: importing them takes long, and commands that only read a run need neither.
    from llvmlite import binding
    from numba import config

    found: dict[str, Any] = {name: _version(name) for name in _PACKAGES}
    found |= {"python": platform.python_version()} | vectors()
    return found | {"cpu": config.CPU_NAME or binding.get_host_cpu_name(), "seed": seed}


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return each version that differs, as `name old -> new`; cut to lengths, as anybody may have edited the file."""
    names = [name for name in sorted(set(old) | set(new)) if old.get(name) != new.get(name)]
    return [f"{name[:40]} {str(old.get(name))[:40]} -> {new.get(name)}" for name in names[:20]]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def member() -> Member:
    """Return a description of this rank's machine, JSON-able."""
    found = versions(0)
    del found["cpu"], found["seed"]  # a model's name rounds nothing, and all have one seed
    cpu = {name: found.pop(name) for name in vectors()}
    return {
        **Place.here()._asdict(),
        "free": free_memory(),
        "cpu": cpu,
        "versions": found,
    }


def share_host(members: Sequence[Member], rank: int) -> None:
    """Limit this rank to an equal part of its host's memory, if several ranks of the run are on the host.

    Shares count from the memory that was free when all ranks reported, before any of them reads.
    """
    beside = [other["free"] for other in members if other["host"] == members[rank]["host"]]
    # The least of what they saw, should memory have been taken between their reports.
    share_memory(len(beside), min(beside, default=0))


def refuse_mixed(members: Sequence[Member], *, different_cpus: bool = False) -> None:
    """Raise RunError unless all ranks would compute the same bits; `different_cpus` allows other rounding.

    Never other lanes, in whose order filters and their gradients lie.
    """
    first = members[0] if members else {}
    for rank, other in enumerate(members):
        here = f"from rank 0 on {first['host']} to rank {rank} on {other['host']}"
        # Versions first: another version may also explain other vectors, and is what users can
        # mend.
        changed = differences(first["versions"], other["versions"])
        if changed:
            raise RunError(f"{', '.join(changed)} {here}; install the same versions on all hosts")
        changed = differences(first["cpu"], other["cpu"])
        if other["cpu"]["lanes"] != first["cpu"]["lanes"]:
            raise RunError(
                f"the CPUs differ, {', '.join(changed)} {here}, and gradients would lie in other orders; start on "
                "CPUs with equal vectors"
            )
        if changed and not different_cpus:
            raise RunError(
                f"the CPUs differ, {', '.join(changed)} {here}, and would round differently; start on "
                "equal ones, or with --allow-different-cpus if the same bits do not matter"
            )
