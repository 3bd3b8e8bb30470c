"""Fill the disk cache with the kernels that a plan needs, in several processes at once.

Compilation holds a global lock inside one process, so a cold start is shared among processes:
`python -m znnpy_kernels.compile module:kernel ...` compiles its share and prints each name.
"""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.machine.cache import CacheError, files
from znnpy_kernels.machine.native import Native
from znnpy_kernels.machine.old_caches import hold, remove_unused
from znnpy_kernels.scheduling import serial, worker

Report = Callable[[int, int], None]
RUNTIME: tuple[Native, ...] = (
    worker.work,
    worker.release,
    worker.wait,
    worker.stop,
    worker.prepare,
    serial.release,
    serial.run,
)
"""What runs the kernels; compiled along with them, since the first step waits for it too."""


def compile_all(kernels: Iterable[Kernel], processes: int, report: Report | None = None) -> int:
    """Compile what is not yet on disk, then load all; returns how many had to be compiled.

    Where something had to be, what earlier versions left is removed (`old_caches`).

    With several `processes`, also `RUNTIME`. `report(done, total)` is called after each compiled
    kernel, from a worker thread. A process that dies leaves its kernels to be compiled here, so
    that an error shows where it can be read; an interrupt here ends the processes.
    """
    asked: set[Kernel | Native] = {*kernels, *(RUNTIME if processes > 1 else ())}
    wanted = sorted(asked, key=lambda kernel: (kernel.__module__, kernel.name))
    for kernel in wanted:
        hold(Path(kernel.function.__code__.co_filename))
    missing = [kernel for kernel in wanted if not kernel.loaded and not on_disk(kernel)]
    if len(missing) > 1 and processes > 1:
        names = [f"{kernel.__module__}:{kernel.name}" for kernel in missing]
        _share([names[start::processes] for start in range(processes)], report)
    for kernel in wanted:
        kernel.compile()
    if missing:
        remove_unused()
    return len(missing)


def _share(shares: list[list[str]], report: Report | None) -> None:
    total, done = sum(map(len, shares)), []
    running: list[subprocess.Popen[str]] = []
    stopped = threading.Event()

    def run(share: list[str]) -> None:
        command = [sys.executable, "-m", "znnpy_kernels.compile", *share]
        # A group of its own: Ctrl-C comes here alone, and is passed on below.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, process_group=0
        ) as process:
            running.append(process)
            if stopped.is_set():
                process.terminate()
            for line in process.stdout or ():
                done.append(line.strip())
                if report:
                    report(len(done), total)

    try:
        with ThreadPoolExecutor(len(shares)) as pool:
            try:
                list(pool.map(run, [share for share in shares if share]))
            except BaseException:
                stopped.set()
                for process in running:
                    process.terminate()
                raise
    finally:
        for process in running:
            process.wait()  # Popen's own exit does not wait long after an interrupt


def on_disk(kernel: Kernel | Native) -> bool:
    """Whether numba's index for this kernel exists; another CPU's entries count too, harmlessly."""
    return bool(files(kernel.function, "nbi"))


def main(names: list[str]) -> None:
    """Compile the named kernels one by one and print each when it is on disk."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever asked is gone
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            getattr(importlib.import_module(module), attribute).compile()
        except CacheError:
            sys.exit(1)  # whoever asked comes upon it too, and says it
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
