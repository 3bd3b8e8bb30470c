"""Detects files that were truncated, replaced or rewritten since they were opened (ChangedError).

HDF5 fills up with zeros what was cut off, and a store of files takes a chunk that is gone for an empty
one: such data must never be trained on or written into a prediction.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from znnpy.errors import ChangedError, VolumeError

Mark = tuple[int, int, int, int]
"""Device, inode, size and time of change (nanoseconds) of a file."""


class Watch:
    """Remembers device, inode, size and time of change of files, as they were when each was first seen.

    Any number of threads may see files. Times count as finely as the file system keeps them.
    """

    def __init__(self) -> None:
        self._marks: dict[str, Mark | None] = {}
        self._newest: int | None = None

    def expect_old(self) -> None:
        """From here on, require files that are seen for the first time to be no newer than now, or than those seen.

        The latter, as a file server's clock may be ahead.
        """
        times = (mark[3] for mark in self._marks.values() if mark)
        self._newest = max(time.time_ns(), *times)

    def see(self, path: Path | str, status: os.stat_result | None) -> None:
        """Note a file's state (None: there is no file); raise ChangedError if it was another before."""
        now = _mark(status)
        before = self._marks.setdefault(str(path), self._expected(now))
        if before != now:
            raise ChangedError(
                f"{path} has changed while it was read: {_difference(before, now)}. Take a copy that "
                "nobody writes to"
            )

    def _expected(self, now: Mark | None) -> Mark | None:
        """Return the state that a file seen for the first time must have had all along."""
        if now is None or self._newest is None:
            return now
        return (*now[:3], min(now[3], self._newest))

    def look(self, path: Path | str) -> None:
        """Note the state of the file of this name."""
        self.see(path, _status(path))

    def verify(self) -> None:
        """Check all files again that were seen before."""
        for path in list(self._marks):
            self.look(path)


def _status(path: Path | str) -> os.stat_result | None:
    """Return a file's state now. The file is opened: network file systems ask their server only then."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if not Path(path).exists():
            return None
        raise VolumeError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return os.fstat(opened)
    finally:
        os.close(opened)


def _mark(status: os.stat_result | None) -> Mark | None:
    if status is None:
        return None
    # A folder's size says nothing that its time does not.
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return (status.st_dev, status.st_ino, size, status.st_mtime_ns)


def _difference(before: Mark | None, now: Mark | None) -> str:
    if now is None:
        return "it is gone"
    if before is None:
        return "it was not there at first"
    if now[:2] != before[:2]:
        return "another file has taken its place"
    if now[2] != before[2]:
        return f"it has {now[2]} bytes and had {before[2]}"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now[3] // 10**9))
    return f"it was written to at {when}"
