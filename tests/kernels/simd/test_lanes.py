"""The vector width follows the CPU that numba compiles for."""

import pytest
from avx2 import on_avx2
from znnpy_kernels.simd.lanes import lanes_for, registers_for


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


@pytest.mark.slow
def test_forced_features_decide():
    assert on_avx2("-c", "from znnpy_kernels.simd.lanes import LANES; print(LANES)") == ["8"]
