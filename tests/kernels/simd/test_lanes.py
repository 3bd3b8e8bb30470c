"""The vector width follows the CPU that numba compiles for."""

import runpy
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import pytest
from znnpy_kernels.simd.lanes import lanes_for, registers_for

LANES = Path(__file__).parents[3] / "scripts" / "lanes"


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
@pytest.mark.parametrize("lanes", [8, 4])
def test_forced_features_decide(lanes):
    if runpy.run_path(str(LANES))["lacking"](lanes):
        pytest.skip("this CPU has no such vectors")
    code = "from znnpy_kernels.simd.lanes import LANES; print(LANES)"
    line = [sys.executable, str(LANES), str(lanes), sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{lanes}\n"), done.stderr


@pytest.mark.parametrize("lanes", [8, 4])
def test_a_cpu_can_be_made_to_look_narrower(lanes, monkeypatch):
    """Not where it has less than what it is to look like: its programs would end by illegal instructions."""
    script = runpy.run_path(str(LANES))
    made = script["environment"](lanes)
    assert lanes_for(made["NUMBA_CPU_FEATURES"], "x86_64") == lanes
    here = {
        "sse4.2": True,
        "popcnt": lanes == 8,
        "avx": True,
        "fma": True,
        "bmi": True,
        "bmi2": True,
    }
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: here)
    with pytest.raises(
        SystemExit, match=f"{lanes} lanes: this CPU lacks {'avx2' if lanes == 8 else 'popcnt'}$"
    ):
        script["main"]([str(lanes), sys.executable, "-c", ""])


@pytest.mark.parametrize("words", [[], ["8"], ["5", "true"], ["--help"]])
def test_what_is_no_number_of_lanes_or_no_command(words):
    with pytest.raises(SystemExit, match="usage: scripts/lanes 8 COMMAND"):
        runpy.run_path(str(LANES))["main"](words)
