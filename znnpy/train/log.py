"""The run's log, one JSON object a line: appends records, reads logs that may be damaged, cuts them on resume.

`log.jsonl` holds only what follows from config and seed (losses, errors, learning rates, scores), so that a
resumed run and an undisturbed one write the same, but for the `time` that ends each record (seconds since 1970); all
else that depends on the clock (rates, starts, stops) goes to `timings.jsonl`. Logs are read line by line, never whole.
A line that is no record, or whose iteration is smaller than the one before, is damage: it is moved to a file of its
own, and all other records stay as they are, byte by byte.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from zlib import crc32

from znnpy.atomic_files import explained, sync, write_whole
from znnpy.closing import Closing
from znnpy.data.writing.journal import write_all
from znnpy.errors import RunError, reason

Record = dict[str, Any]
# Bounds the memory that a damaged log without line ends can take.
LINE = 1 << 16  # bytes that a record is well below
# Every record begins with its iteration, so an unfinished line may still tell it.
_BEGUN = re.compile(rb'\{"iteration": (\d{1,18})[,}]')
OUTPUT = "loss."  # and an output's name: the key of its loss, times its weight
CHANGED = "changed"  # the key of a text: what the config changed with which a run goes on
TIME = "time"  # the key of when a record was written, its last one: seconds since 1970
DAMAGED = ".damaged-"  # and a checksum, after the log's name: where damage is set aside


@dataclass(frozen=True)
class Piece:
    """One line, bytes `start` to `end` of a log; `record` is None where it is damaged.

    `unended`: the text of a last line that has no end.
    """

    start: int
    end: int
    record: Record | None
    unended: bytes | None = None


@dataclass
class Survey:
    """The part of a log that a resume keeps: `kept` bytes, the last of them before `end`, and the damage found."""

    kept: int = 0
    end: int = 0
    damaged: int = 0
    checksum: int = 0


def by_output(losses: Mapping[str, float]) -> Record:
    """Return the part of a record that holds the loss of each output."""
    return {f"{OUTPUT}{name}": loss for name, loss in losses.items()}


def up_to(path: Path, iteration: int) -> Iterator[Record]:
    """Yield the records of a log up to an iteration; none if there is no log; raises RunError if it is unreadable."""
    try:
        with path.open("rb") as file:
            for piece in _kept(file, iteration):
                if piece.record is not None:
                    yield piece.record
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {reason(error)}") from error


def drop_after(path: Path, iteration: int) -> str:
    """Cut a log after an iteration and move damage aside; return a line about the damage, or "".

    The file is only cut, unless damage lies between records. Raises RunError when the disk fails.
    """
    if not path.exists():
        return ""
    with explained(path, RunError), path.open("rb+") as file:
        found = _survey(file, iteration)
        # Named by its content: repeating the command writes the same file again, and other damage
        # another one.
        aside = path.with_name(f"{path.name}{DAMAGED}{found.checksum:08x}")
        # Set aside, durably, before the log itself is touched: a kill in between loses nothing.
        if found.damaged:
            with explained(aside, RunError):
                write_whole(aside, lambda into: _copy(file, iteration, into, sound=False))
        # Damage lies between records; else everything to be dropped is at the end and cutting is
        # enough.
        if found.kept < found.end:
            write_whole(path, lambda into: _copy(file, iteration, into, sound=True))
        elif os.fstat(file.fileno()).st_size != found.end:
            file.truncate(found.end)
            os.fsync(file.fileno())
    if not found.damaged:
        return ""
    lines = "1 line" if found.damaged == 1 else f"{found.damaged} lines"
    return f"{lines} of {path} cannot be read; set aside in {aside.name}, all other records stay"


def _survey(file: BinaryIO, iteration: int) -> Survey:
    found = Survey()
    for piece in _kept(file, iteration):
        if piece.record is not None:
            found.kept += piece.end - piece.start
            found.end = piece.end
        else:
            found.damaged += 1
            for block in _blocks(file, piece):
                found.checksum = crc32(block, found.checksum)
    return found


def _copy(file: BinaryIO, iteration: int, into: BinaryIO, *, sound: bool) -> None:
    """Write the bytes of all records that are kept, or of all that is damaged."""
    for piece in _kept(file, iteration):
        if (piece.record is not None) == sound:
            for block in _blocks(file, piece):
                into.write(block)


def _kept(file: BinaryIO, iteration: int) -> Iterator[Piece]:
    """Yield the lines of a log up to an iteration, and all damage before a later record.

    A last line without an end is left by a killed process; it counts as damage only if its iteration is one
    whose records were synced.
    """
    file.seek(0)
    for piece in _in_order(file):
        if piece.record is not None and piece.record["iteration"] > iteration:
            return
        # A torn line of a later iteration is what a kill leaves; of an earlier one it was whole on
        # the disk, and something has damaged it since.
        begun = _BEGUN.match(piece.unended or b"")
        if piece.unended is None or (begun and int(begun[1]) <= iteration):
            yield piece


def _in_order(file: BinaryIO) -> Iterator[Piece]:
    """Yield all lines; where an iteration decreases, mark as damaged that record or the one before.

    Whichever fits less well to its neighbours is the damaged one.
    """
    # One record is held back until the next one shows whether it fits; `last` is the iteration
    # before it.
    held, last = None, 0
    for piece in _lines(file):
        if piece.record is None:
            yield piece
            continue
        if held is None or held.record is None:
            held = piece
            continue
        now = piece.record["iteration"]
        if held.record["iteration"] <= now:
            last = held.record["iteration"]
            yield held
            held = piece
        # Smaller than both before it: this record is the odd one.
        elif now < last:
            yield Piece(piece.start, piece.end, None)
        else:
            yield Piece(held.start, held.end, None)
            held = piece
    if held is not None:
        yield held


def _lines(file: BinaryIO) -> Iterator[Piece]:
    """Yield all lines; the last has no end where a process was killed while writing."""
    start = 0
    while line := file.readline(LINE):
        end, rest = start + len(line), line
        while not rest.endswith(b"\n"):
            rest = file.readline(LINE)
            if not rest:
                yield Piece(start, end, None, line)
                return
            end, line = end + len(rest), b""
        yield Piece(start, end, _parsed(line))
        start = end


def _blocks(file: BinaryIO, piece: Piece) -> Iterator[bytes]:
    for place in range(piece.start, piece.end, LINE):
        yield os.pread(file.fileno(), min(LINE, piece.end - place), place)


def _parsed(line: bytes) -> Record | None:
    if not line.startswith(b"{"):
        return None
    try:
        # Python would take NaN and Infinity, which no log holds.
        record = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not _whole(record.get("iteration")):
        return None
    nested = [value for value in record.values() if isinstance(value, dict)]
    rest = {key: value for key, value in record.items() if not isinstance(value, dict)}
    if isinstance(rest.get(CHANGED), str):
        del rest[CHANGED]
    values = [*rest.values(), *(value for inner in nested for value in inner.values())]
    # Numbers only, one level deep, and what changed: nothing else was ever written, so anything else
    # is damage.
    return record if all(map(_finite, values)) else None


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _finite(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


class RunLog(Closing):
    """Appends records to one file; every line reaches the operating system before the next step.

    `sync()` makes them durable before a checkpoint that relies on them; the file's entry in its directory is durable
    once it is open. A line that an earlier process left unfinished is ended. Not safe for use from several
    threads.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._file, self._clock = path, -1, clock
        with self._explained():
            # O_APPEND: a line goes to the end even if something else has cut the file.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            sync(path.parent)
            if _unfinished(self._file):
                write_all(self._file, b"\n")

    def write(self, record: Record) -> None:
        """Append one record, with the time; raises RunError if the disk fails.

        ValueError if it holds NaN or Inf, which JSON lacks.
        """
        line = json.dumps({**record, TIME: round(self._clock(), 3)}, allow_nan=False) + "\n"
        with self._explained():
            write_all(self._file, line.encode())

    def sync(self) -> None:
        """Wait until all records are on the disk; raises RunError if the disk fails."""
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
