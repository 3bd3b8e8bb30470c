"""Removes compiled kernels of other versions that no process has used for a month.

Each process marks the cache directories that it uses: it sets their time of change to now and holds a shared lock
until it ends. Only unmarked directories that the installed sources would not use themselves are removed, under the
exclusive lock. File systems that refuse the lock keep everything.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from znnpy_kernels.machine import cache, declarations

# A month: longer than most pauses between runs of an older version.
UNUSED_SECONDS = 30 * 24 * 3600.0
PATIENCE = 3.0  # seconds of waiting before a message tells about it
POLL = 0.01  # seconds between attempts to lock
NAME = re.compile(r"[\w.]+-[0-9a-f]{16}")  # of a cache directory

_held: dict[Path, int] = {}


def hold(function: Callable[..., Any]) -> None:
    """Mark a function's cache directory as used, now and until this process ends.

    It is made again if another process removed it meanwhile.
    """
    while (folder := cache.directory(function)) not in _held:
        descriptor = os.open(folder, os.O_RDONLY)
        # File systems without locks: the time of change alone protects it.
        with contextlib.suppress(OSError):
            _share(descriptor, folder)
        if folder.exists() and folder.stat().st_ino == os.fstat(descriptor).st_ino:
            os.utime(folder)
            _held[folder] = descriptor
        else:
            os.close(descriptor)
            cache.directory.cache_clear()


def _share(descriptor: int, folder: Path) -> None:
    """Take a shared lock on a directory, once no process is removing it."""
    patient_until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > patient_until:
                warnings.warn(
                    f"waits for another process, which removes old kernels in {folder}",
                    stacklevel=4,
                )
                patient_until = math.inf
        time.sleep(POLL)


def remove_unused() -> list[str]:
    """Remove directories of other versions unused for `UNUSED_SECONDS`; return their names."""
    return [folder.name for folder in _unused() if _removed(folder)]


def _unused() -> Iterator[Path]:
    current = {cache.label(made.function) for made in declarations.every()}
    for folder in cache.root().iterdir():
        known = folder in _held or folder.name in current
        if NAME.fullmatch(folder.name) and not known and _idle(folder):
            yield folder


def _idle(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False  # another process removed it
    own = found.st_uid == os.getuid() and not folder.is_symlink() and folder.is_dir()
    return own and time.time() - found.st_mtime > UNUSED_SECONDS


def _removed(folder: Path) -> bool:
    """Remove a directory and return True, unless a process holds it or held it until just now."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _idle(folder):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    except OSError:
        return False
    finally:
        os.close(descriptor)
