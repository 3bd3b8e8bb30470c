"""The vector width follows the CPU that numba compiles for."""

import os
import subprocess
import sys

import pytest
from znnpy_kernels.lanes import lanes_for, registers_for


@pytest.mark.parametrize(
    ("features", "machine", "lanes", "registers"),
    [
        ("+avx,+avx2,+avx512f", "x86_64", 16, 32),
        ("+avx,+avx2,-avx512f", "x86_64", 8, 16),
        ("+avx512f,+avx2,-avx512f", "AMD64", 8, 16),
        ("", "x86_64", 4, 16),
        ("+sse4.2", "x86_64", 4, 16),
        ("+neon", "aarch64", 4, 32),
    ],
)
def test_lanes_and_registers(features, machine, lanes, registers):
    assert lanes_for(features, machine) == lanes
    assert registers_for(lanes, machine) == registers


def test_forced_features_decide():
    forced = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,-avx512f"}
    code = "from znnpy_kernels.lanes import LANES; print(LANES)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **forced},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "8"
