"""What ranks tell each other of their machines: where they run, and whether all would compute the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from znnpy.data.memory import free_memory, share_memory
from znnpy.distributed.cores import Place
from znnpy.errors import RunError
from znnpy.plan.fingerprint import vectors
from znnpy.train.versions import differences, versions

Member = dict[str, Any]


def member() -> Member:
    """This rank's machine, JSON-able."""
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
    """Count on an equal part of a host's memory, if several of its processes are ranks of this run.

    Of what was free when all of them told it, before any of them reads.
    """
    beside = [other["free"] for other in members if other["host"] == members[rank]["host"]]
    share_memory(len(beside), min(beside, default=0))


def refuse_mixed(members: Sequence[Member], *, different_cpus: bool = False) -> None:
    """RunError unless all ranks would compute the same bits; `different_cpus` may round otherwise."""
    first = members[0] if members else {}
    for rank, other in enumerate(members):
        here = f"from rank 0 on {first['host']} to rank {rank} on {other['host']}"
        changed = differences(first["versions"], other["versions"])
        if changed:
            raise RunError(f"{', '.join(changed)} {here}; install the same versions on all hosts")
        changed = differences(first["cpu"], other["cpu"])
        if changed and not different_cpus:
            raise RunError(
                f"the CPUs differ, {', '.join(changed)} {here}, and would round differently; start on "
                "equal ones, or with --allow-different-cpus if the same bits do not matter"
            )
