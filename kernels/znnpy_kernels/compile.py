"""Compiles missing kernels into the disk cache, in several processes at once.

Compilation holds a global lock inside one process, so a cold start is shared among processes: `python -m
znnpy_kernels.compile` reads lines, `module:kernel` and further modules to import, and prints each when the kernel is
on disk. A kernel that these modules do not declare is left to the process that asked.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial

from znnpy_kernels.direct.filter_packing import pack
from znnpy_kernels.hand_over import hand_over
from znnpy_kernels.machine import cache, declarations
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.cache import CacheError
from znnpy_kernels.machine.cache_eviction import hold, remove_unused
from znnpy_kernels.machine.loading import kept
from znnpy_kernels.machine.native import Native
from znnpy_kernels.machine.shared_functions import Shared, reached
from znnpy_kernels.scheduling import dependencies, light_tasks, paths, serial, worker

Compiled = Kernel | Native | Shared
Report = Callable[[int, int], None]
RUNTIME: tuple[Native, ...] = (
    dependencies.find_predecessors,
    dependencies.find_unwritten,
    paths.topological_order,
    paths.longest_paths,
    worker.work,
    light_tasks.release,
    worker.wait,
    worker.stop,
    worker.prepare,
    hand_over,
    pack,
    serial.release,
    serial.run,
)
"""What connects and runs the kernels, and packs filters; compiled along with them, as the first step waits for it."""


def compile_all(kernels: Iterable[Kernel], processes: int, report: Report | None = None) -> int:
    """Compile the kernels that are not yet on disk, then load all; return how many functions were compiled.

    If any was compiled, unused caches of earlier versions are removed (`machine.cache_eviction`).
    With several `processes`, also `RUNTIME`. `report(done, total)` is called after each compiled function, from a
    worker thread. If a process dies, its kernels are compiled here, so that the error shows where it can be read; an
    interrupt here ends the processes.
    """
    # A single process, as of tests, compiles what it needs when it needs it.
    asked: set[Kernel | Native] = {*kernels, *(RUNTIME if processes > 1 else ())}
    # In one order everywhere, so that processes which compile the same meet the same names.
    wanted: list[Compiled] = sorted(asked, key=lambda kernel: (kernel.__module__, kernel.name))
    for kernel in wanted:
        # Before it is asked what is missing: from now on no other process removes any of it.
        hold(kernel.function)
    missing = _missing(wanted)
    if missing and cache.read_only():
        raise cache.lacking([made.name for made in missing])
    if missing:
        _compile(missing, processes, report)
    # From disk now; and here what no process could compile, so that the error shows.
    for kernel in wanted:
        kernel.compile()
    if missing:
        # Only then: a command that compiles nothing has no new version, and need not look.
        remove_unused()
    return len(missing)


def _missing(wanted: Iterable[Compiled]) -> dict[Compiled, set[Shared]]:
    """Return the functions to compile, in order, each with the shared functions that must be compiled before it."""
    calls = {kernel: reached(kernel.function) for kernel in wanted if _absent(kernel)}
    # First, and before all kernels: several of them wait for each.
    shared = sorted(filter(_absent, set().union(*calls.values())), key=lambda made: made.symbol)
    # Then kernels that call none, which keep the processes busy meanwhile.
    ready = [kernel for kernel, needed in calls.items() if not needed]
    return {made: set() for made in (*shared, *ready)} | calls


def _absent(kernel: Compiled) -> bool:
    return not kernel.loaded and not on_disk(kernel)


def _compile(missing: dict[Compiled, set[Shared]], processes: int, report: Report | None) -> None:
    # One function is compiled as fast here, without starting a process.
    if len(missing) > 1 and processes > 1:
        _share(_Jobs(missing), min(processes, len(missing)), report)


@dataclass(frozen=True)
class _Job:
    """A name to compile, the names that it calls, and what it is made with."""

    name: str
    calls: set[str]
    made_with: frozenset[int]


def _made_with(kernel: Compiled) -> frozenset[int]:
    """Return the tuples that one of a family is made with, such as forms of tiles, by identity.

    Each helper that is given one is compiled for it, as numba types a form by its class.
    """
    cells = [cell.cell_contents for cell in kernel.function.__closure__ or ()]
    return frozenset(id(it) for it in cells if isinstance(it, tuple))


class _Jobs:
    """Names to compile, handed out to threads one by one."""

    def __init__(self, missing: dict[Compiled, set[Shared]]) -> None:
        self._changed = threading.Condition()
        self._left = [
            _Job(_name(kernel), set(map(_name, calls)), _made_with(kernel))
            for kernel, calls in missing.items()
        ]
        self._unfinished = {job.name for job in self._left}
        self._taken: dict[int, frozenset[int]] = {}  # what each process's last one was made with
        self.total = len(self._left)

    def take(self, process: int) -> str | None:
        """Return the next name for a process, once the functions that it calls are finished; None if there is none."""
        with self._changed:
            if not self._left:
                return None
            job = self._left.pop(self._next(process))
            if job.made_with:
                self._taken[process] = job.made_with
            self._changed.wait_for(lambda: not job.calls & self._unfinished)
            return job.name

    def _next(self, process: int) -> int:
        """Of what need not wait the first made with what this process's last one was, or else not what others' were.

        Such kernels share helpers, which each process compiles anew.
        """
        own = self._taken.get(process, frozenset())
        others = frozenset().union(*(it for of, it in self._taken.items() if of != process))
        ready = [at for at, job in enumerate(self._left) if not job.calls & self._unfinished]
        kin = [at for at in ready if self._left[at].made_with & own]
        free = [at for at in ready if not self._left[at].made_with & others]
        # In order, so a name whose calls are not finished yet is waited for, not passed over: its calls
        # were taken before it, by others.
        return next(iter(kin or free), 0)

    def finish(self, name: str) -> int:
        """Mark a name as finished, on disk or its process dead; return how many are finished."""
        with self._changed:
            # Also if its process died: those that wait must not wait for ever.
            self._unfinished.discard(name)
            self._changed.notify_all()
            return self.total - len(self._unfinished)

    def stop(self) -> None:
        """Hand out no more names."""
        with self._changed:
            self._left.clear()
            # Wakes those who wait for functions that will never be finished.
            self._unfinished.clear()
            self._changed.notify_all()


def _name(kernel: Compiled) -> str:
    return " ".join([declarations.full_name(kernel), *declarations.others(kernel)])


def _share(jobs: _Jobs, processes: int, report: Report | None) -> None:
    running: list[subprocess.Popen[str]] = []
    stopped = threading.Event()

    def run(number: int) -> None:
        command = [sys.executable, "-m", "znnpy_kernels.compile"]
        pipe = subprocess.PIPE
        # A process group of its own: Ctrl-C reaches this process alone, which passes it on below.
        with (
            contextlib.suppress(BrokenPipeError),
            subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, process_group=0
            ) as process,
        ):
            running.append(process)
            # It may have been started while the others were being ended.
            if stopped.is_set():
                process.terminate()
            for name in iter(partial(jobs.take, number), None):
                answered = _ask(process, name)
                # None of the rest is left undone: the other threads take it, or `compile_all` compiles it here.
                done = jobs.finish(name)
                if not answered:
                    return
                if report:
                    report(done, jobs.total)

    try:
        with ThreadPoolExecutor(processes) as pool:
            try:
                for each in as_completed([pool.submit(run, number) for number in range(processes)]):
                    each.result()
            # Also KeyboardInterrupt: processes are in a group of their own and would not hear of it.
            except BaseException:
                stopped.set()
                jobs.stop()
                for process in running:
                    process.terminate()
                raise
    finally:
        for process in running:
            process.wait()  # Popen's own exit does not wait long after an interrupt


def _ask(process: subprocess.Popen[str], name: str) -> bool:
    """Have a process compile a kernel; return False if it died meanwhile."""
    assert process.stdin
    assert process.stdout
    # One line at a time: the answer says that the kernel is on disk.
    print(name, file=process.stdin, flush=True)
    return bool(process.stdout.readline())


def on_disk(kernel: Compiled) -> bool:
    """Return whether the cache has this kernel for this CPU: computers that share a home directory share the cache."""
    return kept(kernel.function, cache.directory(kernel.function))


def main(names: Iterable[str]) -> None:
    """Compile the named kernels one by one and print each when it is on disk."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when the process that asked is gone
    for name in names:
        declared, *others = name.split()
        # A family may be given helpers of other modules, whose import declares it.
        for module in (declared.partition(":")[0], *others):
            importlib.import_module(module)
        try:
            if made := declarations.named(declared):
                made.compile()
        except CacheError:
            sys.exit(1)  # the process that asked meets the same error and reports it
        print(name.strip(), flush=True)


if __name__ == "__main__":
    main(sys.stdin)
