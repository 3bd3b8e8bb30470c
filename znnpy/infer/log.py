"""The log of a prediction, as JSON lines beside its output."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from znnpy.closing import Closing
from znnpy.data.writing.journal import write_all
from znnpy.infer.blocks import Region


class BlockLog(Closing):
    """Appends to `path`; each line has `time` (seconds since 1970) and `event`.

    A line that a kill or a full disk truncated is dropped.
    """

    def __init__(self, path: Path) -> None:
        # Unbuffered: a line is with the system before the next block begins.
        self._file = path.open("ab+", buffering=0)
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def note(self, event: str, **values: Any) -> None:
        """Write one line."""
        record = {"time": round(time.time(), 3), "event": event, **values}
        write_all(self._file.fileno(), json.dumps(record).encode() + b"\n")

    def block(self, region: Region, seconds: float, voxels_per_s: float) -> None:
        """Log that a block is on the disk; `seconds` since the one before, the rate so far."""
        self.note(
            "block",
            lower=region.lower,
            upper=region.upper,
            seconds=round(seconds, 4),
            voxels_per_s=round(voxels_per_s),
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def log_of(path: Path) -> Path:
    """Return where the log of an output lies."""
    return path.with_name(f"{path.name}.log.jsonl")
