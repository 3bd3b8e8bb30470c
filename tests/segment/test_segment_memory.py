"""The memory that a segmentation says it takes bounds what it takes, also of noise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from optional import needs_bioimage_cpp

SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np
from znnpy.data.volume import ArrayVolume
from znnpy.segment.job import Request, segment
from znnpy.segment.job import estimate

def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

method, size, channels, threshold = sys.argv[1], *map(int, sys.argv[2:4]), float(sys.argv[4])
def volume_of(size):
    noise = np.random.default_rng(0).random((channels, size, size, size), np.float32)
    volume = ArrayVolume(noise, "noise")
    if channels > 1:
        volume.neighbours = ((-1, 0, 0), (0, -1, 0), (0, 0, -1), (-3, 0, 0), (0, -3, 0), (0, 0, -3))[:channels]
    return volume

segment(volume_of(8), Request(method, threshold=threshold))  # libraries and kernels are loaded
volume = volume_of(size)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak that compiling may have reached
before = memory("VmRSS")
segment(volume, Request(method, threshold=threshold))
print(memory("VmHWM") - before, estimate(volume, method, channels))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "channels", "threshold"),
    [
        ("components", 1, 0.25),
        ("components", 3, 0.8),
        ("watershed", 1, 0.2),
        ("agglomerate", 1, 0.5),
        ("agglomerate", 3, 0.5),
        pytest.param("multicut", 1, 0.5, marks=needs_bioimage_cpp),
        pytest.param("mutex", 4, 0.9, marks=needs_bioimage_cpp),
        pytest.param("mutex", 6, 0.9, marks=needs_bioimage_cpp),
    ],
)
def test_peak_is_within_the_estimate(method: str, channels: int, threshold: float) -> None:
    words = [method, "64" if method == "mutex" else "80", str(channels), str(threshold)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    peak, estimated = map(int, done.stdout.split())
    assert 0.3 * estimated < peak <= estimated
