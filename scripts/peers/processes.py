"""Contestants in processes of their own: none meets threads, memory or libraries of another, as where users run it.

The one who asks is here; `obey` is what such a process does. Its first line says how many bytes of memory it had with
its library loaded, before there was a net. Then it reads what to do line by line and answers each with a line of JSON:
`results SEED FILE` saves what it computes for a sample; `run N` says how many seconds N updates or forward passes took;
`peak` is the most bytes of memory that it ever had.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

SCRIPTS = Path(__file__).resolve().parents[1]
Results = Mapping[str, NDArray[Any]]


class Obedient(Protocol):
    """Whoever can run a net on its sample."""

    def results(self, seed: int) -> Results:
        """The output for a sample; of training, loss and gradients by znnpy's names."""

    def run(self, count: int) -> None:
        """So many updates, or forward passes, complete when this returns."""


@dataclass
class Worker:
    """A contestant's process, which answers when it is asked."""

    name: str
    process: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list)
    before: int = 0
    """Bytes that it had with its library alone."""

    def ask(self, *words: object, within: float | None = None) -> Any:
        """What it answers to a line of words; None if that takes more seconds, after which it is of no more use."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if words:
            # Of one that has ended nothing can be read, either, which says so.
            with suppress(BrokenPipeError):
                print(*words, file=self.process.stdin, flush=True)
        if within is not None and not select.select([self.process.stdout], [], [], within)[0]:
            return None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def results(self, seed: int, folder: Path) -> dict[str, NDArray[Any]]:
        """Its output for the sample of that seed, or loss and gradients."""
        file = folder / f"{self.name}.npz"
        self.ask("results", seed, file)
        with np.load(file) as arrays:
            return dict(arrays)


@contextmanager
def started(name: str, module: str, *words: object) -> Iterator[Worker]:
    """A contestant whose process runs a module of these scripts, with its name and further words; ended behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, name, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=SCRIPTS,
    )
    try:
        worker = Worker(name, process)
        worker.before = worker.ask()
        yield worker
    finally:
        process.kill()
        process.wait()


def obey(contestant: Obedient, before: int) -> None:
    """Do what the lines of the input ask for until it ends; `before`: bytes with the library alone."""
    print(json.dumps(before), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(contestant, *line.split())), flush=True)


def _answer(contestant: Obedient, what: str, *words: str) -> float:
    if what == "results":
        seed, file = words
        np.savez(Path(file), **contestant.results(int(seed)))
    elif what == "run":
        start = time.perf_counter()
        contestant.run(int(words[0]))
        return time.perf_counter() - start
    return peak()


def peak() -> int:
    """The most bytes that this program had: the system's count for the process begins with its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
