"""`Ahead`: a thread reads checkpoints' large weights through while the process still loads its modules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np

from znnpy.train.npz_reader import LARGE, Archive, Bytes, Kind, Looked, room_for

PIECE = 4 << 20
"""Bytes looked at at once: after each piece the thread waits for the interpreter, which others use for up to 5 ms."""


class Ahead:
    """Archives whose large members of a group are read through, one after the other, by a thread of its own.

    Who wants them where they lie (`Archive.in_file`) waits for that, and need not read them through, however often
    they are opened, while the file is the same. What cannot be read is left to be found then. For one caller.
    """

    def __init__(self, paths: Sequence[Path], group: str) -> None:
        self._paths, self._group = paths, group
        self._done = {path: Event() for path in paths}
        self._archives: dict[Path, Archive] = {}
        self._looked: dict[Path, Looked] = {}
        # A daemon: nobody waits for it where a command ends before it needs what is read.
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()

    def opened(self, path: Path) -> Archive:
        """Return the archive of a path, looked through if it is among these."""
        if path not in self._done:
            return Archive(path)
        self._done[path].wait()
        found = self._archives.pop(path, None) or Archive(path)
        if path in self._looked:
            found.know(self._looked[path])
        self._looked[path] = found.looked
        return found

    def _look(self) -> None:
        room = room_for(Kind((PIECE,), np.dtype(np.uint8)))
        for path in self._paths:
            # Anything: who loads it meets it again, and says it.
            with suppress(Exception):
                self._archives[path] = self._looked_through(path, room)
            self._done[path].set()

    def _looked_through(self, path: Path, room: Bytes) -> Archive:
        archive = Archive(path)
        for name, kind in archive.kinds.items():
            if name.startswith(f"{self._group}/") and kind.nbytes >= LARGE:
                archive.look(name, room)
        return archive
