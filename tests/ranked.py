"""Command lines under the mpiexec that belongs to the mpi4py of these tests.

Ranks cost 2 s each for imports: those of `mpiexec` are forked by a process that has imported everything.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil

MPIEXEC = Path(sys.executable).with_name("mpiexec")
HERE = Path(__file__).parent
SECONDS = 600  # more than anything here takes on a busy machine


@cache
def forking(_process: int) -> str:
    """Where a server for this process's ranks listens, which ends with it."""
    folder = tempfile.TemporaryDirectory()
    place = str(Path(folder.name) / "ranks")
    line = [sys.executable, str(HERE / "rank_server.py"), place]
    pipe, here = subprocess.PIPE, {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    server = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=here)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)  # before that, as the last one registered goes first
    return place


def mpiexec(ranks: int, *words: object, options: tuple[str, ...] = ()) -> list[str]:
    """A command line of so many ranks; those that run a script (`python -c`) are forked."""
    if words[:2] == (sys.executable, "-c"):
        words = (sys.executable, "-IS", HERE / "rank.py", forking(os.getpid()), *words[2:])
    return [str(MPIEXEC), *options, "-n", str(ranks), *map(str, words)]


def ranked(
    ranks: int, *words: object, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python with these words on so many ranks, as mpiexec starts them, and wait for the end."""
    line = [str(MPIEXEC), *options, "-n", str(ranks), sys.executable, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)


def ranks_of(run: subprocess.Popen[Any]) -> dict[int, psutil.Process]:
    """The processes of a run's ranks; those that have ended are not among them."""
    found = {}
    for process in psutil.Process(run.pid).children(recursive=True) if run.poll() is None else ():
        with suppress(psutil.NoSuchProcess):
            number = process.environ().get("PMI_RANK")
            if number and process.children() == []:
                found[int(number)] = forked(process)
    return found


def forked(process: psutil.Process) -> psutil.Process:
    """What computes for a rank, where it is forked."""
    name, _, pid = process.name().partition(" ")
    return psutil.Process(int(pid)) if name == "rank" else process


def send(number: int, processes: Iterable[psutil.Process]) -> None:
    """A signal to all of these that have not ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
