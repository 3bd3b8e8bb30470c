"""The run's log: one JSON object a line; the same for an undisturbed run and a resumed one.

`log.jsonl` holds only what follows from config and seed (losses, errors, learning rates, scores);
what depends on the clock (rates, starts, stops) goes to `timings.jsonl`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from znnpy.errors import RunError
from znnpy.train.atomic import explain, write_text

Record = dict[str, Any]


class RunLog:
    """Appends records to one file; every line reaches the operating system before the next step.

    `sync()` makes them durable, before a checkpoint that relies on them. Not safe for use from
    several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: Record) -> None:
        """Append one record; ValueError when it holds NaN or Inf, which JSON cannot say.

        RunError when the disk fails.
        """
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        with self._explained():
            self._file.flush()

    def sync(self) -> None:
        """Wait until all records are on the disk; RunError when the disk fails."""
        with self._explained():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with self._explained():
            self._file.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(explain(self.path, error)) from error


def read(path: Path) -> list[Record]:
    """All whole records of a log; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def up_to(path: Path, iteration: int) -> list[Record]:
    """The records of a log up to an iteration."""
    return [record for record in read(path) if record["iteration"] <= iteration]


def drop_after(path: Path, iteration: int) -> list[Record]:
    """Keep the records up to an iteration, which a resumed run continues; returns them."""
    kept = up_to(path, iteration)
    write_text(path, "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept))
    return kept
