"""The journal of an output: which blocks are on the disk, in an append-only file that a kill cannot harm.

First line: the head, JSON. Then records of fixed size: a region, the checksum of its values, and the
checksum of the record. A truncated record is dropped; of two for one region the later counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from znnpy.data.volume import Triple
from znnpy.errors import VolumeError

Region = tuple[Triple, Triple]  # lower <= (z, y, x) < upper
_RECORD = struct.Struct("<6qI")
_CHECK = struct.Struct("<I")
_STEP = _RECORD.size + _CHECK.size
_COMPLETE: Region = ((-1, -1, -1), (-1, -1, -1))


class Journal:
    """A journal, locked for this process; created empty when there is none.

    `head` is None until `begin`; `done` maps regions to the checksums of their values; `completed` says
    that all were written. Any number of threads may call `add`. Raises VolumeError when another process has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = _open_locked(path)
        self.head: dict[str, Any] | None = None
        self.done: dict[Region, int] = {}
        self._read()
        self.completed = self.done.pop(_COMPLETE, None) is not None

    def begin(self, head: Mapping[str, Any]) -> None:
        """Discard the content and write a head; durable on return."""
        self.forget()
        write_all(self._file, json.dumps(dict(head)).encode() + b"\n")
        os.fsync(self._file)
        self.head = dict(head)

    def forget(self) -> None:
        """Drop head and records."""
        self.done.clear()
        self.head = None
        os.ftruncate(self._file, 0)

    def add(self, region: Region, checksum: int) -> None:
        """Record that the values of a region are on the disk."""
        record = _RECORD.pack(*region[0], *region[1], checksum)
        with self._lock:
            write_all(self._file, record + _CHECK.pack(crc32(record)))
            os.fdatasync(self._file)
            self.done[region] = checksum

    def complete(self) -> None:
        """Record that all regions are done; from here on only files are moved."""
        self.add(_COMPLETE, 0)
        del self.done[_COMPLETE]
        self.completed = True

    def remove(self) -> None:
        """Remove the journal: the output is in its place."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release file and lock."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> None:
        content = os.pread(self._file, os.fstat(self._file).st_size, 0)
        end = content.find(b"\n") + 1
        self.head = _parsed(content[:end])
        if self.head is not None:
            self.done.update(_records(content[end:]))
            os.ftruncate(self._file, end + (len(content) - end) // _STEP * _STEP)


def read_head(path: Path) -> dict[str, Any] | None:
    """Return the head of a journal, without locking it; None when there is no journal or it has none yet."""
    try:
        with path.open("rb") as file:
            return _parsed(file.readline())
    except FileNotFoundError:
        return None


def read_done(path: Path) -> tuple[int, bool]:
    """Return how many regions a journal says are done, and whether all were, without locking it."""
    content = path.read_bytes()
    found = dict(_records(content[content.find(b"\n") + 1 :]))
    return len(found.keys() - {_COMPLETE}), _COMPLETE in found


def refuse_other(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise VolumeError that names what differs between the head of a journal and what is wanted now."""
    wanted = json.loads(json.dumps(dict(now)))
    changed = [key for key in wanted if then.get(key) != wanted[key]]
    if changed:
        words = "; ".join(
            f"{key} was {_short(then.get(key))}, now {_short(wanted[key])}" for key in changed
        )
        raise VolumeError(
            f"{path} was begun by another job and cannot be continued: {words}. Repeat the first "
            "command, add --overwrite to start anew, or name another file"
        )


def write_all(file: int, data: bytes) -> None:
    """Write all bytes at the descriptor's position."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _open_locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(path, file):
                return file
        except BlockingIOError as error:
            os.close(file)
            raise VolumeError(f"{path}: another process is writing this output") from error
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # whoever had it has finished and removed it


def _same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        head = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return head if isinstance(head, dict) else None


def _records(data: bytes) -> list[tuple[Region, int]]:
    found: list[tuple[Region, int]] = []
    for start in range(0, len(data) - _STEP + 1, _STEP):
        record = data[start : start + _RECORD.size]
        if _CHECK.unpack_from(data, start + _RECORD.size)[0] == crc32(record):
            z, y, x, to_z, to_y, to_x, checksum = _RECORD.unpack(record)
            found.append((((z, y, x), (to_z, to_y, to_x)), checksum))
    return found


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:28]}...{text[-28:]}"
