"""Whether this process was started as one of several ranks, told by what launchers leave in the environment.

Nothing of MPI is loaded here: a process that was started alone never needs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_COUNTS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_PLACES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK", "SLURM_LOCALID")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def announced(environment: Mapping[str, str] = os.environ) -> int:
    """How many ranks a launcher (mpiexec, srun) started; 1 without one, 0 where it does not say.

    A batch script of Slurm has variables of the job, too, but is no step of it: it counts as alone.
    """
    counts = (environment.get(name, "") for name in _COUNTS)
    found = [int(count) for count in counts if count.isdigit() and int(count) > 0]
    if found:
        return found[0]
    return 0 if "PMI_RANK" in environment or "PMIX_RANK" in environment else 1


def announced_rank() -> int:
    """This process's number among them, before MPI says it; 0 where nothing says it."""
    return rank_in(os.environ) or 0


def first_of_host() -> bool:
    """Whether this process is known to be the first of the ranks on its host."""
    return "0" in (os.environ.get(name) for name in _PLACES)


def rank_in(environment: Mapping[str, str]) -> int | None:
    """The number of a rank that has this environment; None of a process that is none."""
    ranks = (environment.get(name, "") for name in _RANKS)
    return next((int(rank) for rank in ranks if rank.isdigit()), None)
