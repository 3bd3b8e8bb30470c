"""A machine's figures: name, cores, vectors, the rates of NumPy's sgemm and of memory, and its last-level caches."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_limits
from znnpy_kernels.simd.lanes import LANES

from znnpy.errors import PlanError
from znnpy.scheduler.core_count import available_cores
from znnpy.scheduler.topology import last_level_caches
from znnpy.simulate import Figures

SIZE = 1024  # rows and columns of sgemm's matrices: 4 MiB each, enough for its full rate
# Arrays of a stream together: several times a usual last-level cache, or those found if they are larger.
STREAM_BYTES, TIMES_CACHE = 2**28, 4
STREAMED = 4
"""Times that the bytes of an array move in a sum of two: two are read, and the third is read before it is stored."""


def describe_machine() -> dict[str, Any]:
    """Return the machine's figures, JSON-able: rates are measured now, sgemm on one core, memory's on all."""
    cores, caches = available_cores(), [cache.bytes for cache in last_level_caches()]
    return {
        "processor": processor_name(),
        "cores": cores,
        "lanes": LANES,
        "memory_bytes": psutil.virtual_memory().total,
        "sgemm_gflops": sgemm_rate() * 1e-9,
        "memory_bandwidth": stream_rate(cores, sum(caches)),
        "caches": caches,
    }


@dataclass(frozen=True)
class OtherMachine:
    """What users say of another machine, as `Figures`; None: in proportion to the cores as it is here."""

    cores: int | None = None
    bandwidth: float | None = None
    cache: int | None = None
    domains: int | None = None

    def figures(self, here: Mapping[str, Any]) -> Figures:
        """Return the figures of the other machine; `here`: `describe_machine`.

        Raises PlanError where there would be more caches than cores, or none is known.
        """
        cores, caches = self.cores or here["cores"], here["caches"]
        times = cores / here["cores"]
        if not caches and (self.cache is None or self.domains is None):
            raise PlanError(
                "this system does not say which caches it has: give --l3 and --domains, all that are there and how many"
            )
        found = Figures(
            cores,
            self.bandwidth or times * here["memory_bandwidth"],
            float(times * sum(caches)) if self.cache is None else float(self.cache),
            self.domains or max(1, round(times * len(caches))),
        )
        if found.domains > cores:
            raise PlanError(
                f"--domains {found.domains}: there are only {cores} cores, and each L3 serves one of them at least"
            )
        return found


def describe_figures(figures: Mapping[str, float]) -> str:
    """Return a machine's figures in words; `figures`: those of `Figures` by name."""
    caches = f"{figures['cache'] / 2**20:.0f} MiB of L3"
    if figures["domains"] > 1:
        caches += f" in {figures['domains']} domains"
    cores = f"{figures['cores']} core{'s' * (figures['cores'] > 1)}"
    return f"{cores} with {figures['bandwidth'] * 1e-9:.3g} GB/s and {caches}"


def stream_rate(cores: int, cached: int = 0, repeats: int = 3) -> float:
    """Return the bytes per second that so many cores together move from and to memory, the best of some.

    Each adds two arrays into a third, of more than what `cached` bytes of caches hold.
    """
    floats = max(STREAM_BYTES, TIMES_CACHE * cached) // (3 * 4 * cores)
    arrays = [[np.zeros(floats, np.float32) for _ in range(3)] for _ in range(cores)]
    for own in arrays:
        for array in own:
            # Stored to: pages that nobody wrote are all the same one.
            array.fill(1.0)
    best = np.inf
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(repeats):
            start = time.perf_counter()
            # NumPy holds no lock while it adds.
            list(pool.map(lambda own: np.add(own[0], own[1], out=own[2]), arrays))
            # The best: other programs only take time away.
            best = min(best, time.perf_counter() - start)
    return STREAMED * 4.0 * floats * cores / best


def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as the kernel has it, or as Python knows it."""
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def sgemm_rate(size: int = SIZE, repeats: int = 5) -> float:
    """Return the operations per second of NumPy's float32 matrix product on one core, the best of some."""
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    target = np.empty_like(a)
    best = np.inf
    # One thread, as the rate is compared with tasks of one worker.
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(repeats):
            start = time.perf_counter()
            np.matmul(a, b, out=target)
            # The best: other programs only take time away.
            best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best
