"""What the machine at hand is and can do: its name, cores, vectors, and NumPy's sgemm rate."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_limits
from znnpy_kernels.simd.lanes import LANES

from znnpy.scheduler.cores import available_cores

SIZE = 1024


def describe_machine() -> dict[str, Any]:
    """Name, cores, lanes and memory of the machine, and the sgemm rate of one core, measured now."""
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "lanes": LANES,
        "memory_bytes": psutil.virtual_memory().total,
        "sgemm_gflops": sgemm_rate() * 1e-9,
    }


def processor_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel has it, or what Python knows."""
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def sgemm_rate(size: int = SIZE, repeats: int = 5) -> float:
    """Operations a second of a float32 matrix product by NumPy's BLAS on one core, the best of some."""
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    target = np.empty_like(a)
    best = np.inf
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(repeats):
            start = time.perf_counter()
            np.matmul(a, b, out=target)
            best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best
