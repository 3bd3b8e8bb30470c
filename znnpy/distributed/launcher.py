"""Detects from the environment whether a launcher (mpiexec, srun, torchrun) started several ranks.

Nothing of MPI is loaded here: a process that was started alone never needs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

# Of Open MPI; of MPICH, Intel MPI and srun's PMI-2; of srun with Slurm's own.
_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
# Where srun gives no count by itself; a batch script has these, too (see `_of_step`).
_STEP, _OF_STEP = "SLURM_STEP_ID", "SLURM_NTASKS"
_LAST_STEP = 0xFFFFFFF0  # greater numbers are a job's batch script and its shells, which nobody started by srun
# Of torchrun, and what starts processes like it: they know no MPI.
_UNSPOKEN, _UNSPOKEN_RANK = "WORLD_SIZE", "RANK"
# Of PMIx and of PMI-1: their counts are asked by a protocol, not by the environment.
_UNCOUNTED = ("PMI_RANK", "PMIX_RANK")  # say by themselves that there are others
# Ranks within a host, each launcher's own name for it.
_PLACES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK", "SLURM_LOCALID")
# Of Open MPI, of PMI-1 and 2, of PMIx, of srun.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def announced(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many ranks a launcher (mpiexec, srun, torchrun) started; 1 without one, 0 where it does not say.

    A batch script of Slurm has variables of the job, too, but is no step of it: it counts as alone.
    """
    found = _counted(environment)
    if found is None and any(name in environment for name in _UNCOUNTED):
        return 0
    return found if found and found > 1 else without_mpi(environment) or 1


def without_mpi(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes a launcher without MPI started; 0 where none did, or MPI's ranks are counted."""
    if (_counted(environment) or 1) > 1 or _number((_UNSPOKEN_RANK,), environment) is None:
        return 0
    count = _number((_UNSPOKEN,), environment) or 1
    return count if count > 1 else 0


def announcing(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the variables without which a process counts as alone."""
    if without_mpi(environment):
        return [_UNSPOKEN]
    names = (*_COUNTS, *_UNCOUNTED, *((_STEP,) if _of_step(environment) else ()))
    return [name for name in names if name in environment]


def announced_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank before MPI says it; 0 if alone, or where nothing says it."""
    if without_mpi(environment):
        return _number((_UNSPOKEN_RANK,), environment) or 0
    return 0 if announced(environment) == 1 else rank_in(environment) or 0


def first_of_host(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is known to be the first of the ranks on its host.

    Under mpiexec within a job of Slurm all ranks of a host have the SLURM_LOCALID of what started them.
    """
    return _number(_PLACES, environment) == 0


def rank_in(environment: Mapping[str, str]) -> int | None:
    """Return the rank of a process with this environment; None if it has none."""
    return _number(_RANKS, environment)


def _counted(environment: Mapping[str, str]) -> int | None:
    """Return the number of ranks that MPI's launchers give; None where none does."""
    counts = (environment.get(name, "") for name in _COUNTS)
    # Positive numbers alone: a variable that is set but empty says nothing.
    found = [int(count) for count in counts if count.isdigit() and int(count) > 0]
    if not found and _of_step(environment):
        return _number((_OF_STEP,), environment)
    return found[0] if found else None


def _of_step(environment: Mapping[str, str]) -> bool:
    """Return whether srun started this process, where it gives no count: a job's own shells have its numbers, too."""
    step = _number((_STEP,), environment)
    return step is not None and step < _LAST_STEP and "SLURM_PROCID" in environment


def _number(names: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Return the number of the first variable that has one."""
    found = (environment.get(name, "") for name in names)
    return next((int(word) for word in found if word.isdigit()), None)
