"""Kernels of other versions go after a month without use, and never while a process uses them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from znnpy_kernels import compile
from znnpy_kernels.layers import reduction
from znnpy_kernels.machine import cache, cache_eviction
from znnpy_kernels.machine.abi import Kernel

LONG_AGO = time.time() - cache_eviction.UNUSED_SECONDS - 60
OTHER = f"reduction-{'0123456789abcdef'}"
FUNCTION = reduction.sum_vectors.function


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that holds nothing yet."""
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path))
    monkeypatch.setattr(cache_eviction, "_held", {})
    monkeypatch.setattr(cache, "root", cache.root.__wrapped__)
    monkeypatch.setattr(cache, "directory", cache.directory.__wrapped__)
    return tmp_path


def old(root: Path, name: str = OTHER) -> Path:
    folder = root / name
    (folder / "znnpy_kernels_1").mkdir(parents=True)
    (folder / "znnpy_kernels_1" / "sum.nbi").write_bytes(b"index")
    os.utime(folder, (LONG_AGO, LONG_AGO))
    return folder


def test_what_nobody_used_for_long_goes(root: Path) -> None:
    gone, recent = old(root), old(root, f"norms-{'0' * 16}")
    os.utime(recent)
    assert cache_eviction.remove_unused() == [OTHER]
    assert not gone.exists()
    assert recent.exists()


def test_nothing_else_is_touched(root: Path) -> None:
    kept = [old(root, name) for name in ("reduction-short", "notes", f"a b-{'0' * 16}")]
    elsewhere = old(root, "elsewhere")
    link = root / f"link-{'0' * 16}"
    link.symlink_to(elsewhere)
    os.utime(link, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    (root / f"file-{'0' * 16}").write_text("")
    os.utime(root / f"file-{'0' * 16}", (LONG_AGO, LONG_AGO))
    current = old(root, cache.label(FUNCTION))
    assert cache_eviction.remove_unused() == []
    assert all(folder.exists() for folder in (*kept, elsewhere, link, current))


HOLDER = """
import sys
from pathlib import Path
from znnpy_kernels.machine import cache
from znnpy_kernels.machine import cache_eviction
cache.directory = lambda function: Path(sys.argv[1])
cache_eviction.hold(print)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_what_another_process_holds_stays_until_it_ends(root: Path) -> None:
    folder = old(root)
    command = [sys.executable, "-c", HOLDER, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert time.time() - folder.stat().st_mtime < 3600
        os.utime(folder, (LONG_AGO, LONG_AGO))  # it has been running for a month
        assert cache_eviction.remove_unused() == []
        process.communicate("")
    assert (folder / "znnpy_kernels_1" / "sum.nbi").exists()
    assert cache_eviction.remove_unused() == [OTHER]


def test_what_is_removed_while_a_process_starts_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def directory(function: object) -> Path:
        folder = root / OTHER
        folder.mkdir(exist_ok=True)
        made.append(folder)
        return folder

    directory.cache_clear = lambda: None  # type: ignore[attr-defined]
    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        real(descriptor, how)
        if len(made) == 1:  # another process removed it before this one had its lock
            (root / OTHER).rename(root / "removed")

    monkeypatch.setattr(cache, "directory", directory)
    monkeypatch.setattr(fcntl, "flock", flock)
    cache_eviction.hold(FUNCTION)
    assert (root / OTHER).exists()
    assert list(cache_eviction._held) == [root / OTHER]


def test_whoever_waits_for_a_removal_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    removing = os.open(cache.directory(FUNCTION), os.O_RDONLY)
    fcntl.flock(removing, fcntl.LOCK_EX)

    def heard(text: str, **_: object) -> None:
        said.append(text)
        os.close(removing)  # it has ended

    monkeypatch.setattr(cache_eviction, "PATIENCE", 0.05)
    monkeypatch.setattr(cache_eviction.warnings, "warn", heard)
    cache_eviction.hold(FUNCTION)
    assert len(said) == 1
    assert said[0].startswith(f"waits for another process, which removes old kernels in {root}")


def test_compiling_removes_and_marks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "RUNTIME", ())
    gone = old(root)
    made = Kernel(reduction.sum_vectors.function, reduction.sum_vectors.words)
    assert compile.compile_all([made], 1) == 1
    assert not gone.exists()
    (used,) = cache_eviction._held
    os.utime(used, (LONG_AGO, LONG_AGO))
    again = Kernel(made.function, made.words)
    cache_eviction._held.clear()
    late = old(root)
    assert compile.compile_all([again], 1) == 0
    assert time.time() - used.stat().st_mtime < 3600
    assert late.exists()  # nothing was compiled: start at once
