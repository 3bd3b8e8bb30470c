"""The width of vectors (LANES floats) and the number of vector registers of the target CPU.

`NUMBA_CPU_FEATURES` (with `NUMBA_CPU_NAME`) decides if set, else the host. The width is a matter of speed alone:
LLVM splits vectors that the CPU lacks, so every kernel is right for any.
"""

from __future__ import annotations

import platform

from numba import config
from numba.core.codegen import get_host_cpu_features


def target_features() -> str:
    """Return the feature list that numba hands to LLVM, such as "+avx2,-avx512f"."""
    chosen = config.CPU_FEATURES
    return str(get_host_cpu_features() if chosen is None else chosen)


def lanes_for(features: str, machine: str) -> int:
    """Return the floats in a vector: 16 with AVX-512, 8 with AVX, else 4; a feature's last mark counts."""
    # The last mark counts, as LLVM reads such lists from left to right.
    marks = {mark.strip()[1:]: mark.strip()[0] for mark in features.split(",") if mark.strip()}
    if machine.lower() not in ("x86_64", "amd64", "i686", "i386"):
        return 4
    # AVX-512F alone is enough: what else kernels use of AVX-512, LLVM makes of what there is.
    if marks.get("avx512f") == "+":
        return 16
    # AVX without AVX2 has vectors of 8 floats too, which is what matters here.
    return 8 if "+" in (marks.get("avx2"), marks.get("avx")) else 4


def registers_for(lanes: int, machine: str) -> int:
    """Return the number of vector registers: 32 with AVX-512 and on ARM, else 16."""
    x86 = machine.lower() in ("x86_64", "amd64", "i686", "i386")
    # ARM's NEON has 32 registers of 4 floats.
    return 16 if x86 and lanes < 16 else 32


# Read once: kernels, layouts in memory and tests have to agree on it within a process.
LANES: int = lanes_for(target_features(), platform.machine())
# Register blocks are as large as this lets them be.
REGISTERS: int = registers_for(LANES, platform.machine())
VECTOR_BYTES: int = 4 * LANES
