"""Joins the ranks of a run, with time limits on start and end: alone without a launcher, else through MPI.

`joined` is the entrance. MPI waits for ever for ranks that never come or never end; `in_time` ends such waits.
"""

from __future__ import annotations

import atexit
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from znnpy.distributed.background_threads import NoThreadError, start
from znnpy.distributed.ending import kill_all, leave
from znnpy.distributed.errors import DistributedError, KnownToAllError
from znnpy.distributed.failure_detector import FOR_RANK_0, Watch, say
from znnpy.distributed.launcher import (
    announced,
    announced_rank,
    announcing,
    first_of_host,
    rank_in,
    without_mpi,
)
from znnpy.distributed.transfers import Delays
from znnpy.distributed.world import World
from znnpy.errors import reason, told

# 4 s: enough for an earlier rank's message to reach the terminal and for its launcher to end the others.
TURN = 4.0  # seconds between ranks: where rank 0 is not there to speak, others have a word in turn

INSTALL = 'pip install "znnpy[mpi]"'
BEGIN_SECONDS = "ZNNPY_BEGIN_SECONDS"
"""The environment variable that sets how long a rank that has started waits for the others to start."""
# As shells count.
SIGNALLED = 128  # and the signal's number: the exit status
# BEGIN is long beside what ranks need to load before they meet (docs/design/distributed.md), and what a user
# waits when one never comes; BEGIN_SECONDS changes it. END is as long as a rank may be silent before it counts
# as dead.
BEGIN, END = 20.0, 15.0  # seconds for all ranks to begin, and to end when their work is done
_met = False  # or tried to, once


@contextmanager
def in_time(seconds: float, words: Callable[[], str]) -> Iterator[None]:
    """End this process with a message, if there is one, unless the body ends within so many seconds.

    Rank 0 is the first to do so, at once; where the launcher then ends the others, it is the only one.
    """
    # Rank 0 first, then rank 1, then all others: at most two turns, or large runs would wait long.
    until = min(seconds + TURN * min(announced_rank(), 2), threading.TIMEOUT_MAX)
    # A timer's thread, since this one waits within MPI and cannot look at a clock.
    timer = threading.Timer(until, _give_up, (words,))
    timer.daemon = True
    start(timer)
    try:
        yield
    finally:
        timer.cancel()


def stopped_here() -> str:
    """Return as text the ranks that a signal has stopped, as far as seen here: those of this launcher on this host."""
    found = []
    with suppress(psutil.Error):
        launcher = psutil.Process().parent()
        for process in launcher.children() if launcher else ():
            if process.status() == psutil.STATUS_STOPPED:
                rank = rank_in(process.environ())
                found += [f"rank {rank} (pid {process.pid})"] if rank is not None else []
    return " and ".join(found)


def _give_up(words: Callable[[], str]) -> None:
    if text := words():
        say(text)
    leave(1)


@contextmanager
def joined(*, debug: bool = False) -> Iterator[World]:
    """Yield the world that this process is a rank of, until all ranks are done; MPI ends with it.

    An error within ends all ranks: rank 0 raises its own errors, and prints those of the others,
    with `debug` with tracebacks. Raises DistributedError where MPI is missing or does not fit the launcher,
    KnownToAllError where that started several processes which cannot meet.
    """
    world, watch = _begun(debug)
    if watch is None:
        yield world
        return
    try:
        yield world
        # All ranks have done their work, or one would wait for another within MPI_Finalize.
        world.exchange(None)
        with in_time(END, _unended):
            # In this order: no beats, no thread that calls MPI, then MPI itself.
            watch.stop()
            world.close()
            _finalize()
    except BaseException as error:
        _end_all(world, watch, error)
        raise


def end_together(error: BaseException, *, debug: bool = False) -> None:
    """End all ranks for an error that this one had before it met them.

    Returns on rank 0, which reports it, and where ranks have met before. Others with the same error print nothing; one
    that another rank alone has is sent to rank 0, and printed there with its number. They do not meet for an error that
    all know, nor where a signal ends them, which the launcher has sent to all.
    """
    status = status_of(error)
    # Those who have met tell each other by the watch; a signal reaches all ranks by the launcher.
    if _met or announced() == 1 or status == 0 or status >= SIGNALLED:
        return
    if isinstance(error, KnownToAllError) or without_mpi():
        _leave_word("")
        return
    own = "" if isinstance(error, SystemExit) else told(error)
    try:
        world, watch = _meeting(debug, lambda: _of_this_rank(own))
    except DistributedError:  # it cannot be told any other
        _leave_word(own)
    else:
        if watch:
            _end_all(world, watch, error)


def status_of(error: BaseException) -> int:
    """Return the exit status of an error."""
    number = getattr(error, "signal", None)  # Stopped
    if number:
        return SIGNALLED + int(number)
    code = getattr(error, "code" if isinstance(error, SystemExit) else "exit_code", 1)
    return code if isinstance(code, int) else int(code is not None)


def _end_all(world: World, watch: Watch, error: BaseException) -> None:
    """End all ranks; returns on rank 0, to report the error."""
    status = status_of(error)
    watch.end(error, status)
    if world.rank:
        _end(world)
        # In order, or the launcher kills rank 0 before it has spoken.
        raise SystemExit(status) from None
    # On rank 0 at exit: the error is reported by then.
    atexit.register(_end, world)  # once it is said why


def _end(world: World) -> None:
    """End MPI with all the others, which a launcher takes as a good end; the watch ends ranks that wait too long."""
    world.messenger.close()
    _finalize()


def _name(rank: int) -> str:
    return f"rank {rank} (pid {os.getpid()} on {socket.gethostname()})"


def _begun(debug: bool) -> tuple[World, Watch | None]:
    """Return this rank's world, once all have started, and its watch; a process alone has none."""
    if announced() == 1:
        return World(), None
    if without_mpi():
        raise KnownToAllError(
            f"{announced()} processes were started without MPI (torchrun, or what else sets {_unset()}), and each "
            f"would work alone: start ranks by {_started()} ({INSTALL}), or one process by "
            f"env -u {_unset()} znnpy ..."
        )
    try:
        return _meeting(debug, _absent)
    except DistributedError as error:
        _leave_word(str(error))
        raise


def _meeting(debug: bool, too_late: Callable[[], str]) -> tuple[World, Watch | None]:
    """Meet all others, or end this process with the words of `too_late`; DistributedError where MPI cannot start."""
    global _met
    # Before it is tried: a second attempt would wait for ranks that have given up.
    _met = True
    try:
        with in_time(_patience(), too_late):
            world = _opened()
            if world.size == 1:
                return world, None
            watch = Watch(world, debug)
            watch.start(_name(world.rank))
        return world, watch
    except NoThreadError as error:  # without which there are no messages
        say(_of_this_rank(str(error)))
        kill_all(1)
        leave(1)


def _of_this_rank(words: str) -> str:
    rank = announced_rank()
    return f"rank {rank}: {words}" if rank and words else words


def _patience() -> float:
    given, seconds = os.environ.get(BEGIN_SECONDS, BEGIN), math.nan
    with suppress(ValueError):
        seconds = float(given)
    # NaN fails the comparison, too.
    if not 0 < seconds < math.inf:
        raise DistributedError(
            f"{BEGIN_SECONDS} is {given!r}, which is no number of seconds above 0"
        )
    return seconds


def _absent() -> str:
    seconds, who = _patience(), stopped_here()
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
        raise DistributedError(
            f"{announced()} ranks were started, but the MPI library of mpi4py sees this one alone; start with "
            "the mpiexec that belongs to it, or with srun --mpi=pmi2 or --mpi=pmix"
        )
    if world.size == 1:
        raise DistributedError(
            f"a launcher started this process as a rank ({_unset()}), but the MPI library of mpi4py sees it alone: "
            f"start ranks by the mpiexec that belongs to it, or one process by env -u {_unset()} znnpy ..."
        )
    return world


def _delays() -> Delays | None:
    """Return the delays that tests ask for: a seed and seconds."""
    seed, _, seconds = os.environ.get("ZNNPY_DELAYS", "").partition(":")
    # Each rank has a seed of its own; 1000 leaves room for ranks between two seeds of tests.
    return Delays(1000 * int(seed) + announced_rank(), float(seconds)) if seconds else None


def _started() -> str:
    return f"mpiexec -n {announced() or 'P'} znnpy ..."


def _unset() -> str:
    return " -u ".join(announcing())


def _missing(error: Exception) -> DistributedError:
    if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
        return DistributedError(
            f"a run over several ranks needs mpi4py: {INSTALL}, then {_started()}"
        )
    return DistributedError(
        f"mpi4py finds no MPI library ({reason(error)}): pip install mpich, then {_started()}"
    )


def _leave_word(words: str) -> None:
    """Return on rank 0, to report an error that all ranks have; end others a little later, as some launchers kill all.

    If they live as long, the first of another host prints its words, if any: they may be of that host alone.
    """
    if announced_rank():
        time.sleep(FOR_RANK_0)
        if first_of_host() and words:
            say(_of_this_rank(words))
        sys.exit(1)


def _finalize() -> None:
    from mpi4py import MPI

    MPI.Finalize()
