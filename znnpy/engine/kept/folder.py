"""The folder of kept graphs, within that of compiled kernels: how it is written, and what is removed from it.

Files belong to one user alone, as numba's do: what they hold becomes addresses that kernels write to.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from znnpy_kernels.machine import cache, private_files
from znnpy_kernels.machine.cache_eviction import UNUSED_SECONDS

from znnpy.atomic_files import replacing
from znnpy.locks import alone

ENDING = ".graphs"
MOST_BYTES = 256 << 20
"""Of all files together; beyond, those that were not used for longest go."""


def place(name: str) -> Path:
    """Return the file of a key."""
    return home() / f"{name}{ENDING}"


def has(family: str) -> bool:
    """Return whether there is a file whose key begins like this."""
    return any(home().glob(f"{family}-*"))


def content(name: str) -> bytes | None:
    """Return what a file of this user alone holds, and mark it as used; None if there is none."""
    path = place(name)
    try:
        if not private_files.own_file(path) or private_files.why_not(home()):
            return None
        with suppress(OSError):  # of a cache that can only be read
            os.utime(path)
        return path.read_bytes()
    except OSError:
        return None  # removed meanwhile, or on a disk that fails: connected anew


def keep(name: str, whole: bytes) -> None:
    """Write a file whole or not at all, if it is not too large, then remove what is too old or too much; or OSError."""
    if len(whole) > MOST_BYTES:
        return
    cache.made()
    private_files.make(home())
    path = place(name)
    with alone(home(), "keeps connected tasks"):
        with replacing(path) as new:
            new.touch()
            new.chmod(0o600)  # before it has content: files that others can write are not read
            new.write_bytes(whole)
        _remove(path)


def _remove(newest: Path) -> None:
    left = MOST_BYTES
    files = [(_last_used(path), path) for path in home().iterdir() if path != newest]
    for seconds, path in [(0.0, newest), *sorted(files, reverse=True)]:
        with suppress(OSError):  # another process has removed it
            left -= path.stat().st_size
            # What was left half written by a process that was killed goes with the rest.
            if path != newest and (left < 0 or time.time() - seconds > UNUSED_SECONDS):
                path.unlink()


def _last_used(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def home() -> Path:
    """Return the folder, which need not be there."""
    return cache.root() / "graphs"
