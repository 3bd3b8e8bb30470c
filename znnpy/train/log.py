"""The run's log: one JSON object a line; the same for an undisturbed run and a resumed one.

`log.jsonl` holds only what follows from config and seed (losses, errors, learning rates, scores);
what depends on the clock (rates, starts, stops) goes to `timings.jsonl`.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from znnpy.data.writing.journal import write_all
from znnpy.errors import RunError
from znnpy.files import explained, sync
from znnpy.train.records import Record


class RunLog:
    """Appends records to one file; every line reaches the operating system before the next step.

    `sync()` makes them durable, before a checkpoint that relies on them; the file itself is in its
    directory for good once it is open. A line that an earlier process left unfinished is ended. Not
    safe for use from several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, -1
        with self._explained():
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            sync(path.parent)
            if _unfinished(self._file):
                write_all(self._file, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """Append one record; ValueError when it holds NaN or Inf, which JSON cannot say.

        RunError when the disk fails.
        """
        line = json.dumps(record, allow_nan=False) + "\n"
        with self._explained():
            write_all(self._file, line.encode())

    def sync(self) -> None:
        """Wait until all records are on the disk; RunError when the disk fails."""
        with self._explained():
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            with self._explained():
                os.close(file)

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.path, RunError)


def _unfinished(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
