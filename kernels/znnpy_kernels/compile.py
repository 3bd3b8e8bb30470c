"""Fill the disk cache with the kernels that a plan needs, in several processes at once.

Compilation holds a global lock inside one process, so a cold start is shared among processes:
`python -m znnpy_kernels.compile module:kernel ...` compiles its share and prints each name.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from znnpy_kernels.abi import Kernel
from znnpy_kernels.cache import files

Report = Callable[[int, int], None]


def compile_all(kernels: Iterable[Kernel], processes: int, report: Report | None = None) -> int:
    """Compile what is not yet on disk, then load all; returns how many had to be compiled.

    `report(done, total)` is called after each compiled kernel, from a worker thread. A process that
    dies leaves its kernels to be compiled here, so that an error shows where it can be read.
    """
    wanted = sorted(set(kernels), key=lambda kernel: (kernel.__module__, kernel.name))
    missing = [kernel for kernel in wanted if not kernel.loaded and not on_disk(kernel)]
    shares = [missing[start::processes] for start in range(processes)] if processes > 1 else []
    done: list[str] = []

    def run(share: list[Kernel]) -> None:
        names = [f"{kernel.__module__}:{kernel.name}" for kernel in share]
        command = [sys.executable, "-m", "znnpy_kernels.compile", *names]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                done.append(line.strip())
                if report:
                    report(len(done), len(missing))

    if len(missing) > 1:
        with ThreadPoolExecutor(max(1, processes)) as pool:
            list(pool.map(run, [share for share in shares if share]))
    for kernel in wanted:
        kernel.compile()
    return len(missing)


def on_disk(kernel: Kernel) -> bool:
    """Whether numba's index for this kernel exists; another CPU's entries count too, harmlessly."""
    return bool(files(kernel.function, "nbi"))


def main(names: list[str]) -> None:
    """Compile the named kernels one by one and print each when it is on disk."""
    for name in names:
        module, _, attribute = name.partition(":")
        getattr(importlib.import_module(module), attribute).compile()
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
