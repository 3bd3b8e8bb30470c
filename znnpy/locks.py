"""One process of this machine at a time: whoever waits long says for whom."""

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
POLL = 0.01
LOCKS = Path("/proc/locks")


@contextmanager
def alone(path: Path, work: str) -> Iterator[None]:
    """What is done within is done by one process at a time; others wait, and say so after PATIENCE seconds.

    `path`: a file, which is made if there is none, or a folder. `work`: what it is for those who wait, after
    "process 7, which": "plans FFTs". The lock is the kernel's (flock) and vanishes with its process. Where a file
    system has no locks, all go on at once. A signal whose handler raises ends the wait.
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
    """Ask again and again: a signal just before a call that blocks would be heard when that ends."""
    patient_until = time.monotonic() + PATIENCE
    while not _locked(opened):
        if time.monotonic() > patient_until:
            told = _told(os.fstat(opened), work)
            patient_until = math.inf if told else time.monotonic() + PATIENCE
        time.sleep(POLL)


def _locked(opened: int) -> bool:
    """Whether nobody else has it, and so it is had now."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _told(file: os.stat_result, work: str) -> bool:
    """Say who has locked a file; False for another thread of this process, after which a process may have it."""
    holder = _holder(file)
    if holder == os.getpid():
        return False
    who = f"process {holder}" if holder else "another process"
    rest = f" and is stopped; kill -CONT {holder} lets it go on" if _stopped(holder) else ""
    warnings.warn(f"waits for {who}, which {work}{rest}", WaitWarning, stacklevel=2)
    return True


def _holder(file: os.stat_result) -> int:
    """The process that has locked a file, as far as the kernel says; else 0."""
    place = os.major(file.st_dev), os.minor(file.st_dev), file.st_ino
    with suppress(OSError, ValueError):
        for line in LOCKS.read_text().splitlines():
            _, kind, _, _, process, locked, *_ = line.split()
            if kind == "FLOCK" and _place(locked) == place:
                return int(process)
    return 0


def _place(locked: str) -> tuple[int, int, int]:
    """Device and inode of `fe:00:1234`, as the kernel names files."""
    major, minor, inode = locked.split(":")
    return int(major, 16), int(minor, 16), int(inode)


def _stopped(process: int) -> bool:
    """Whether a signal has stopped it."""
    with suppress(psutil.Error):
        return bool(process) and psutil.Process(process).status() == psutil.STATUS_STOPPED
    return False
