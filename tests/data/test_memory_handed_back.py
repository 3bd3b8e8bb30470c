"""Memory that a process hands back: pages of libraries, and large arrays that it has freed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from znnpy.data.process_memory import give_back_libraries

MAPS = """\
7f0000000000-7f0000002000 r-xp 00001000 08:01 77                         /usr/lib/libsome thing.so
Size:                  8 kB
Rss:                   8 kB
Anonymous:             {anonymous} kB
Swap:                  {swap} kB
VmFlags: rd ex mr mw me
7f0000002000-7f0000003000 rw-p 00003000 08:01 77                         /usr/lib/libsome thing.so
Rss:                   4 kB
Anonymous:             0 kB
7f0000003000-7f0000004000 r--s 00000000 08:01 78                         /home/volume.npy
Rss:                   4 kB
Anonymous:             0 kB
7f0000004000-7f0000005000 r--p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             0 kB
7f0000005000-7f0000009000 r-xp 00000000 08:01 79                         /usr/lib/libloading.so
Rss:                   4 kB
Anonymous:             0 kB
7f0000009000-7f000000a000 rw-p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             4 kB
"""
SCRIPT = r"""
import numba, numpy as np
from znnpy.data.process_memory import give_back_libraries
from pathlib import Path
import re
def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
def twice(x):
    return 2 * x
print(numba.njit(twice)(3))
before = rss()
given = give_back_libraries()
print(given, before - rss())
print(numba.njit(lambda x: x + 1)(3), give_back_libraries(Path("none")))
"""


def test_code_goes_and_comes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, given, gone, last, none = map(int, done.stdout.split())
    assert (first, last, none) == (6, 4, 0)
    assert given > 10 << 20
    assert gone > 0.8 * given  # some of it is run at once


@pytest.mark.parametrize(("anonymous", "swap"), [(0, 0), (4, 0), (0, 4)])
def test_only_pages_that_are_as_in_the_file_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anonymous: int, swap: int
) -> None:
    told: list[tuple[int, int]] = []

    class Library:
        def madvise(self, first: object, size: object, how: int) -> int:
            told.append((first.value, size.value))  # type: ignore[attr-defined]
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    maps = tmp_path / "smaps"
    maps.write_text(MAPS.format(anonymous=anonymous, swap=swap))
    changed = anonymous or swap
    # What may be written, or was, would come back without what was written.
    assert give_back_libraries(maps) == (0 if changed else 8192)
    assert told == ([] if changed else [(0x7F0000000000, 8192)])
    assert give_back_libraries(tmp_path / "none") == 0


def test_what_a_starting_process_holds_is_not_its_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "scripts"), *sys.path])
    from peers.measured_commands import measured

    held = np.ones(200 << 17)
    cost = measured([sys.executable, "-c", "held = b'x' * (30 << 20)"], 1)
    assert 30 << 20 < cost.peak < 100 << 20
    assert held.all()
    with pytest.raises(SystemExit, match="of no use"):
        measured([sys.executable, "-c", "raise ValueError('of no use')"], 1)
