"""The planned peak of a prediction bounds what the process takes, and obeys the limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

HERE = Path(__file__).parent
SCRIPT = """
import re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from jobs import small
from znnpy.data.scene import Scene
from znnpy.data.writing.destination import Destination
from znnpy.infer.block_writer import run_job

folder, limit = Path(sys.argv[2]), int(sys.argv[3])
thin = {"layers": [{"conv": {"channels": 1, "size": [1, 3, 3]}}]}
padded = {"layers": [
    {"conv": {"channels": 16, "size": 3, "padding": "same", "norm": "instance", "function": "relu"}},
    {"conv": {"channels": 8, "size": 3, "padding": "same"}},
]}
windows = {"network": padded, "shape": (24, 40, 40)} if sys.argv[5] == "windows" else {}
windows = {"network": thin, "shape": (1, 8, 8)} if sys.argv[5] == "stack" else windows
tiny = small(folder, sys.argv[4], 2, max_memory=limit, **windows)
with tiny.scene().reference as volume:
    job = tiny.job(Scene({"input": volume}, {}), patch=None, flips=sys.argv[5] == "flips")
    run_job(job, Destination(folder / "out.h5", "p"))
# ru_maxrss would begin with the peak of the process that started this one.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
print(job.memory, peak, job.runs)
"""
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conv", "limit", "flips"),
    [
        ("direct", 550, ""),
        ("auto", 700, ""),
        ("spectral", 600, "flips"),
        ("auto", 700, "windows"),
    ],
)
def test_peak_is_within_plan_and_limit(tmp_path: Path, conv: str, limit: int, flips: str) -> None:
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        raw = np.random.default_rng(0).integers(0, 255, (50, 220, 230)).astype(np.uint8)
        file.create_dataset("raw", data=raw, chunks=(16, 64, 64), compression="gzip")
    words = [str(HERE), str(tmp_path), str(limit * MIB), conv, flips]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    planned, peak, runs = map(int, done.stdout.split())
    assert peak <= planned <= limit * MIB
    assert runs >= 1


@pytest.mark.slow
def test_peak_is_no_larger_for_a_larger_stack(tmp_path: Path) -> None:
    """What is in memory follows the limit, not the image, of several times what peaks may differ by."""
    peaks, depths, apart = [], (16, 128), 48 * MIB
    for depth in depths:
        folder = tmp_path / str(depth)
        folder.mkdir()
        with h5py.File(folder / "raw.h5", "w") as file:
            shape = (depth, 512, 512)
            raw = file.create_dataset("raw", shape, np.float32, chunks=(8, 256, 256))
            for first in range(0, depth, 16):
                raw[first : first + 16] = np.float32(first)
        words = [str(HERE), str(folder), str(480 * MIB), "direct", "stack"]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        planned, peak, _ = map(int, done.stdout.split())
        assert peak <= planned <= 480 * MIB
        peaks.append(peak)
    assert 2 * apart < 4 * (depths[1] - depths[0]) * 512 * 512
    assert peaks[1] < peaks[0] + apart
