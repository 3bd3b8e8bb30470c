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
# Shorter waits are over before anybody reads about them.
PATIENCE = 3.0  # seconds of waiting before a message tells about it
# Long beside a system call, short beside what a person notices.
POLL = 0.01  # seconds between attempts to lock
# As `cache.label` makes them; whatever else lies there is not ours to remove.
NAME = re.compile(r"[\w.]+-[0-9a-f]{16}")  # of a cache directory

# Never closed: the lock lasts as long as the process, and ends with it however it ends.
_held: dict[Path, int] = {}


def hold(function: Callable[..., Any]) -> None:
    """Mark a function's cache directory as used, now and until this process ends.

    It is made again if another process removed it meanwhile. Nothing of a cache that can only be read is removed, nor
    can it be marked.
    """
    if cache.read_only():
        return
    # A loop, as the directory may be removed between being made and being locked.
    while (folder := cache.directory(function)) not in _held:
        descriptor = os.open(folder, os.O_RDONLY)
        # File systems without locks: the time of change alone protects it.
        with contextlib.suppress(OSError):
            _share(descriptor, folder)
        # The lock is on the directory that is opened: if the path now leads to another, ours was removed.
        if folder.exists() and folder.stat().st_ino == os.fstat(descriptor).st_ino:
            os.utime(folder)
            _held[folder] = descriptor
        else:
            os.close(descriptor)
            # Or `directory` would answer from memory and not make it again.
            cache.directory.cache_clear()


def _share(descriptor: int, folder: Path) -> None:
    """Take a shared lock on a directory, once no process is removing it."""
    patient_until = time.monotonic() + PATIENCE
    while True:
        try:
            # Shared: any number of processes use the same kernels.
            return fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > patient_until:
                warnings.warn(
                    f"waits for another process, which removes old kernels in {folder}",
                    stacklevel=4,
                )
                # Tell it once.
                patient_until = math.inf
        time.sleep(POLL)


def remove_unused() -> list[str]:
    """Remove directories of other versions unused for `UNUSED_SECONDS`; return their names."""
    return [folder.name for folder in _unused() if _removed(folder)]


def _unused() -> Iterator[Path]:
    # By the installed sources, also what this process has not loaded.
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
    # `lstat`: a link that somebody put there is not followed.
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
        # Again, under the lock: a process may have marked it between the look and the lock.
        if not _idle(folder):
            return False
        # Errors are ignored: another process may remove the same files, and what is left goes at the next time.
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    except OSError:
        return False
    finally:
        os.close(descriptor)
