"""What the machine is that a profile was made on, and how fast one of its cores multiplies matrices."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_limits
from znnpy_kernels.simd.lanes import LANES

from znnpy.scheduler.core_count import available_cores

SIZE = 1024  # rows and columns of sgemm's matrices: 4 MiB each, enough for its full rate


def describe_machine() -> dict[str, Any]:
    """Return name, cores, lanes and memory of the machine, and the sgemm rate of one core, measured now."""
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "lanes": LANES,
        "memory_bytes": psutil.virtual_memory().total,
        "sgemm_gflops": sgemm_rate() * 1e-9,
    }


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
