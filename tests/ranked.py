"""Command lines under the mpiexec that belongs to the mpi4py of these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

MPIEXEC = Path(sys.executable).with_name("mpiexec")
SECONDS = 600  # more than anything here takes on a busy machine


def mpiexec(ranks: int, *words: object, options: tuple[str, ...] = ()) -> list[str]:
    """A command line of so many ranks."""
    return [str(MPIEXEC), *options, "-n", str(ranks), *map(str, words)]


def ranked(
    ranks: int, *words: object, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python with these words on so many ranks, and wait for the end."""
    line = mpiexec(ranks, sys.executable, *words, options=options)
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)


def ranks_of(run: subprocess.Popen[Any]) -> dict[int, psutil.Process]:
    """The processes of a run's ranks; those that have ended are not among them."""
    found = {}
    for process in psutil.Process(run.pid).children(recursive=True) if run.poll() is None else ():
        with suppress(psutil.NoSuchProcess):
            rank = process.environ().get("PMI_RANK")
            if rank and process.children() == []:
                found[int(rank)] = process
    return found


def send(number: int, processes: Iterable[psutil.Process]) -> None:
    """A signal to all of these that have not ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
