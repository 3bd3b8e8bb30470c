"""The memory that a segmentation says it takes bounds what it takes, also of noise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from optional import needs_bioimage_cpp

# One process that has loaded all, and a fork of it for each case.
SCRIPT = """
import os, re, sys
from pathlib import Path
import numpy as np
from znnpy.data.volume import ArrayVolume
from znnpy.segment.job import Request, segment
from znnpy.segment.job import estimate

def memory(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

def volume_of(size, channels):
    noise = np.random.default_rng(0).random((channels, size, size, size), np.float32)
    volume = ArrayVolume(noise, "noise")
    if channels > 1:
        volume.neighbours = ((-1, 0, 0), (0, -1, 0), (0, 0, -1), (-3, 0, 0), (0, -3, 0), (0, 0, -3))[:channels]
    return volume

def tried(method, channels, request):
    segment(volume_of(8, channels), request)

def told(method, size, channels, request):
    tried(method, channels, request)  # this process has pages of libraries of its own
    volume = volume_of(size, channels)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak that compiling may have reached
    before = memory("VmRSS")
    segment(volume, request)
    print(memory("VmHWM") - before, estimate(volume, method, channels), flush=True)

cases = []
for words in sys.argv[1:]:
    method, size, channels, threshold = words.split()
    cases.append((method, int(size), int(channels), Request(method, threshold=float(threshold))))
for method, _, channels, request in cases:
    tried(method, channels, request)
for case in cases:
    child = os.fork()
    if child == 0:
        told(*case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, case
"""


OWN = (
    "components 80 1 0.25",
    "components 80 3 0.8",
    "watershed 80 1 0.2",
    "agglomerate 80 1 0.5",
    "agglomerate 80 3 0.5",
)
OTHERS = ("multicut 80 1 0.5", "mutex 64 4 0.9", "mutex 48 6 0.9")


@pytest.mark.slow
@pytest.mark.parametrize("cases", [OWN, pytest.param(OTHERS, marks=needs_bioimage_cpp)])
def test_peaks_are_within_estimates(cases: tuple[str, ...]) -> None:
    """Of a method, the voxels of a side, channels, and a threshold."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *cases], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        peak, estimated = map(int, line.split())
        assert 0.3 * estimated < peak <= estimated, case
