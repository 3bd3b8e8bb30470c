"""File locks between processes of one machine; a process that waits long says for which one."""

from __future__ import annotations

import fcntl
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from znnpy.errors import WaitWarning

PATIENCE = 3.0  # seconds of waiting that nobody needs to hear of
POLL = 0.01  # seconds between two tries: short beside what locks are held for
LOCKS = Path("/proc/locks")


@contextmanager
def alone(path: Path, work: str) -> Iterator[None]:
    """Hold a file lock: processes run the body one at a time, and a waiting one warns after PATIENCE seconds.

    `path`: a file, created if missing, or a folder. `work`: what the holder does, after "process 7, which":
    "plans FFTs". The lock is the kernel's (flock) and ends with its process. On a file system without locks nobody
    waits. A signal handler that raises ends the wait.
    """
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    opened = os.open(path, how, 0o600)
    try:
        with suppress(OSError):
            _wait(opened, work)
        yield
    finally:
        os.close(opened)


def _wait(opened: int, work: str) -> None:
    """Poll for the lock. A blocking call would miss a signal that arrives just before it."""
    patient_until = time.monotonic() + PATIENCE
    while not _locked(opened):
        if time.monotonic() > patient_until:
            told = _told(os.fstat(opened), work)
            patient_until = math.inf if told else time.monotonic() + PATIENCE
        time.sleep(POLL)


def _locked(opened: int) -> bool:
    """Try to take the lock; return whether it is held now."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _told(file: os.stat_result, work: str) -> bool:
    """Warn who holds the lock; return False for another thread of this process, as another process may follow it."""
    holder = _holder(file)
    if holder == os.getpid():
        return False
    who = f"process {holder}" if holder else "another process"
    rest = f" and is stopped; kill -CONT {holder} lets it go on" if _stopped(holder) else ""
    warnings.warn(f"waits for {who}, which {work}{rest}", WaitWarning, stacklevel=2)
    return True


def _holder(file: os.stat_result) -> int:
    """Return the process that holds the lock according to /proc/locks; 0 if unknown."""
    place = os.major(file.st_dev), os.minor(file.st_dev), file.st_ino
    with suppress(OSError, ValueError):
        for line in LOCKS.read_text().splitlines():
            _, kind, _, _, process, locked, *_ = line.split()
            if kind == "FLOCK" and _place(locked) == place:
                return int(process)
    return 0


def _place(locked: str) -> tuple[int, int, int]:
    """Return device and inode from `fe:00:1234`, as /proc/locks names files."""
    major, minor, inode = locked.split(":")
    return int(major, 16), int(minor, 16), int(inode)


def _stopped(process: int) -> bool:
    """Return whether a signal has stopped the process."""
    with suppress(psutil.Error):
        return bool(process) and psutil.Process(process).status() == psutil.STATUS_STOPPED
    return False
