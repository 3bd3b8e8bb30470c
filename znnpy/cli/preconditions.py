"""Refuses to start under a launcher where a command is for one process, or with too little memory."""

from __future__ import annotations

import resource

from znnpy.distributed.errors import KnownToAllError
from znnpy.distributed.launcher import announced, announcing
from znnpy.errors import ZnnpyError

LEAST = 1 << 30  # bytes of addresses that libraries take
LEAST_EACH = 1 << 26  # and for each core


def refuse_ranks(command: str, instead: str = "it uses all cores that it may") -> None:
    """Raise KnownToAllError if a launcher has started several processes: each would do the same, to the same files."""
    count = announced()
    if count != 1:
        unset = " ".join(f"-u {name}" for name in announcing())
        raise KnownToAllError(
            f"znnpy {command} is done by one process, and {count or 'several'} were started: start it without mpiexec, "
            f"srun or torchrun, by srun -n 1, or where others do something else by "
            f"env {unset} znnpy {command} ...; {instead}"
        )


def refuse_little_memory() -> None:
    """Raise ZnnpyError when `ulimit -v` leaves too little: compilers and BLAS would hang rather than fail."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return
    from znnpy.data.process_memory import readable
    from znnpy.scheduler.core_count import available_cores

    needed = LEAST + LEAST_EACH * available_cores()
    if allowed < needed:
        raise ZnnpyError(
            f"this process may use {readable(allowed)} of addresses (ulimit -v); it needs at least "
            f"{readable(needed)}"
        )
