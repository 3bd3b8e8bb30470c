"""Command lines under the mpiexec that belongs to the mpi4py of these tests."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def mpiexec(ranks: int, *words: object, options: tuple[str, ...] = ()) -> list[str]:
    """A command line of so many ranks."""
    return [str(MPIEXEC), *options, "-n", str(ranks), *map(str, words)]


def ranked(
    ranks: int, *words: object, options: tuple[str, ...] = (), seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run Python with these words on so many ranks, and wait for the end."""
    line = mpiexec(ranks, sys.executable, *words, options=options)
    return subprocess.run(line, capture_output=True, text=True, timeout=seconds)


def ranks_of(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a run's ranks, in no order; those that have ended are not among them."""
    found = []
    for process in psutil.Process(run.pid).children(recursive=True) if run.poll() is None else ():
        with suppress(psutil.NoSuchProcess):
            if process.environ().get("PMI_RANK") and process.children() == []:
                found.append(process)
    return found
