"""How a process becomes a rank: alone without a launcher, else one of the world that MPI makes."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.launcher import announced, announced_rank
from znnpy.distributed.transfers import Delays
from znnpy.distributed.watch import FOR_RANK_0, Watch, leave
from znnpy.distributed.world import World
from znnpy.errors import reason, told

INSTALL = 'pip install "znnpy[mpi]"'


@contextmanager
def joined() -> Iterator[World]:
    """The ranks that this process is one of, until all of them are done; MPI ends with it.

    What is raised within ends all ranks: rank 0 raises its own errors, and says those of the others.
    DistributedError where MPI is missing or does not fit the launcher.
    """
    world = World() if announced() == 1 else _opened()
    if world.size == 1:
        yield world
        return
    watch = Watch(world)
    watch.start(_name(world.rank))
    try:
        yield world
        world.exchange(None)
        watch.stop()
        world.close()
    except BaseException as error:
        number = getattr(error, "signal", None)  # Stopped
        status = 128 + number if number else 1
        watch.end(error, told(error), status)
        if world.rank:
            _end(world)
            leave(status)
        atexit.register(_end, world)  # once it is said why
        raise
    _finalize()


def _end(world: World) -> None:
    """End MPI with all the others, which is in order for a launcher; the watch ends who would wait too long."""
    world.messenger.close()
    _finalize()


def _name(rank: int) -> str:
    return f"rank {rank} (pid {os.getpid()} on {socket.gethostname()})"


def _opened() -> World:
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # not at exit, where it would wait for ranks that have failed
        world = World.open(_delays())
    except ImportError as error:
        raise _missing(error) from error
    except RuntimeError as error:  # from MPI's library, or mpi4py where it finds none
        raise _missing(error) from error
    if world.size < announced():
        raise _for_all(
            f"{announced()} ranks were started, but the MPI library of mpi4py sees this one alone; start with "
            "the mpiexec that belongs to it, or with srun --mpi=pmi2 or --mpi=pmix"
        )
    return world


def _delays() -> Delays | None:
    """What tests ask for: a seed and seconds."""
    seed, _, seconds = os.environ.get("ZNNPY_DELAYS", "").partition(":")
    return Delays(1000 * int(seed) + announced_rank(), float(seconds)) if seconds else None


def _missing(error: Exception) -> DistributedError:
    if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
        return _for_all(f"a run over several ranks needs mpi4py: {INSTALL}")
    return _for_all(f"mpi4py finds no MPI library ({reason(error)}): pip install mpich")


def _for_all(words: str) -> DistributedError:
    """An error that every rank has: rank 0 says it, and the others end when it is said."""
    if announced_rank():
        time.sleep(FOR_RANK_0)
        sys.exit(1)
    return DistributedError(words)


def _finalize() -> None:
    from mpi4py import MPI

    MPI.Finalize()
