"""`Ahead`: a thread reads a checkpoint's large weights through while the process still loads its modules."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Thread

import numpy as np

from znnpy.train.npz_reader import LARGE, Archive, Kind, room_for

PIECE = 4 << 20
"""Bytes looked at at once: after each piece the thread waits for the interpreter, which others use for up to 5 ms."""


class Ahead:
    """An archive whose large members of a group are read through, by a thread of its own, from now on.

    Who wants them where they lie (`Archive.in_file`) waits for that, and need not read them through again. What cannot
    be read is left to be found then. For one caller, who uses it once.
    """

    def __init__(self, path: Path, group: str) -> None:
        self._path, self._group = path, group
        self._archive: Archive | None = None
        # A daemon: nobody waits for it where a command ends before it needs what is read.
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()

    def opened(self, path: Path) -> Archive:
        """Return the archive of a path: this one, looked through, if it is of that path, or opened now."""
        if path != self._path:
            return Archive(path)
        self._thread.join()
        found, self._archive = self._archive, None
        return Archive(path) if found is None else found

    def _look(self) -> None:
        # Anything: who loads it meets it again, and says it.
        with suppress(Exception):
            archive, room = Archive(self._path), room_for(Kind((PIECE,), np.dtype(np.uint8)))
            for name, kind in archive.kinds.items():
                if name.startswith(f"{self._group}/") and kind.nbytes >= LARGE:
                    archive.look(name, room)
            self._archive = archive
