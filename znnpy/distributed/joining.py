"""How a process becomes a rank: alone without a launcher, else one of the world that MPI makes."""

from __future__ import annotations

import atexit
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from znnpy.distributed.deadline import in_time, stopped_here
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.launcher import announced, announced_rank
from znnpy.distributed.transfers import Delays
from znnpy.distributed.watch import FOR_RANK_0, Watch
from znnpy.distributed.world import World
from znnpy.errors import reason

INSTALL = 'pip install "znnpy[mpi]"'
BEGIN_SECONDS = "ZNNPY_BEGIN_SECONDS"
"""How long a rank that has begun waits for the others to begin."""
BEGIN, END = 20.0, 15.0  # seconds for all ranks to begin, and to end when their work is done


@contextmanager
def joined(*, debug: bool = False) -> Iterator[World]:
    """The ranks that this process is one of, until all of them are done; MPI ends with it.

    What is raised within ends all ranks: rank 0 raises its own errors, and says those of the others,
    with `debug` with where they come from. DistributedError where MPI is missing or does not fit the launcher.
    """
    world, watch = _begun(debug)
    if watch is None:
        yield world
        return
    try:
        yield world
        world.exchange(None)
        with in_time(END, _unended):
            watch.stop()
            world.close()
            _finalize()
    except BaseException as error:
        number = getattr(error, "signal", None)  # Stopped
        status = 128 + number if number else 1
        watch.end(error, status)
        if world.rank:
            _end(world)
            # In order, or the launcher kills rank 0 before it has spoken.
            raise SystemExit(status) from None
        atexit.register(_end, world)  # once it is said why
        raise


def _end(world: World) -> None:
    """End MPI with all the others, which is in order for a launcher; the watch ends who would wait too long."""
    world.messenger.close()
    _finalize()


def _name(rank: int) -> str:
    return f"rank {rank} (pid {os.getpid()} on {socket.gethostname()})"


def _begun(debug: bool) -> tuple[World, Watch | None]:
    """This rank among all others, which have begun and are watched; nobody watches who is alone."""
    if announced() == 1:
        return World(), None
    seconds = _patience()
    with in_time(seconds, partial(_absent, seconds)):
        world = _opened()
        if world.size == 1:
            return world, None
        watch = Watch(world, debug)
        watch.start(_name(world.rank))
    return world, watch


def _patience() -> float:
    given, seconds = os.environ.get(BEGIN_SECONDS, BEGIN), math.nan
    with suppress(ValueError):
        seconds = float(given)
    if not 0 < seconds < math.inf:
        raise _for_all(f"{BEGIN_SECONDS} is {given!r}, which is no number of seconds above 0")
    return seconds


def _absent(seconds: float) -> str:
    who = stopped_here()
    why = f"{who} is stopped" if who else "one may be stopped, or have ended before MPI began"
    return (
        f"of {announced() or 'several'} ranks some have not begun after {seconds:g} s: {why}; "
        f"{BEGIN_SECONDS} gives them more where they need it"
    )


def _unended() -> str:
    why = f", {who} is stopped" if (who := stopped_here()) else ""
    return f"all is done, but some ranks have not ended after {END:g} s{why}"


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
