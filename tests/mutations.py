"""Files mutated at random and read in children with limits; the kinds of files are in `mutated_kinds`.

Each reading must end within `SECONDS` of processor time, within the memory of its kind, and either succeed or raise one
error for people that names the file; anything else is a failure.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import struct
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from children import forked
from damage import STRANGE, damaged, mutate

from znnpy.errors import ZnnpyError, screenful

SECONDS = 5  # of the processor, as others may use it too
BATCH = 250  # mutations by one child


@dataclass(frozen=True)
class Kind:
    """`write` makes a folder for each case, `read` reads a copy of one, `files` are those mutated in it.

    `room` is the address space in bytes that all readings of a child may take beyond its begin,
    `one_line` says that an error has no more.
    """

    write: Callable[[Path], None]
    read: Callable[[Path], object]
    files: Callable[[Path], list[Path]]
    room: int = 2 << 30
    one_line: bool = False


@dataclass
class Outcome:
    """What became of all mutations; seconds of the slowest, most bytes of a child beyond its begin."""

    good: int = 0
    refused: int = 0
    slowest: float = 0.0
    most: int = 0
    failures: list[str] = field(default_factory=list)


def outcomes(kind: Kind, folder: Path, count: int, seed: int = 0) -> Outcome:
    """Mutate and read `count` times; the same for the same seed. Whole cases must be read."""
    found, first = Outcome(), 0
    whole = folder.with_name(f"{folder.name}-whole")
    whole.mkdir()
    kind.write(whole)
    for case in whole.iterdir():
        kind.read(_fresh(case, folder))
    while first < count:
        last = min(count, first + BATCH)
        code, said = forked(partial(_work, kind, folder, whole, range(first, last), seed))
        lines = [json.loads(line) for line in said.splitlines()]
        for number, what, seconds, size in lines:
            found.slowest, found.most = max(found.slowest, seconds), max(found.most, size)
            found.good += what == "good"
            found.refused += what == "refused"
            if what not in ("good", "refused"):
                found.failures.append(f"mutation {number}: {what}")
        first += len(lines)
        if code != 0 or first < last:
            found.failures.append(f"mutation {first}: the process ended with {code}")
            first += 1
    return found


def _work(kind: Kind, folder: Path, whole: Path, numbers: range, seed: int, pipe: int) -> None:
    """In a child: each mutation is of whole files, and drawn by its number."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + kind.room, size + kind.room))
    begin = _peak()
    for number in numbers:
        choose = random.Random(f"{seed} {number}")
        _fresh(choose.choice(sorted(whole.iterdir())), folder)
        _mutate(kind.files(folder), choose)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        began = time.process_time()
        what = _ending(kind, folder)
        seconds = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(pipe, json.dumps([number, what, seconds, _peak() - begin]).encode() + b"\n")


def _fresh(case: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(case, folder)


def _ending(kind: Kind, folder: Path) -> str:
    try:
        kind.read(folder)
    except (ZnnpyError, OSError) as error:
        text = screenful(str(error))
        if str(folder) not in text:
            return f"names no file: {text}"
        return f"several lines: {text}" if kind.one_line and "\n" in text else "refused"
    except BaseException as error:
        return "".join(traceback.format_exception(error)[-4:])[-2000:]
    return "good"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _mutate(files: list[Path], choose: random.Random) -> None:
    """Bytes of a file, or the structure of JSON, YAML and lines; one to three times."""
    for _ in range(choose.choice((1, 1, 2, 3))):
        file = choose.choice(files)
        data = file.read_bytes()
        if data:
            change = _structure if choose.random() < 0.5 else _bytes
            file.write_bytes(change(file, data, choose))


def _bytes(_: Path, data: bytes, choose: random.Random) -> bytes:
    return damaged(data, choose)


def _structure(file: Path, data: bytes, choose: random.Random) -> bytes:
    try:
        if file.suffix in (".json", "") or file.name.startswith(".z"):
            value = json.loads(data)
            mutate(value, choose)
            return json.dumps(choose.choice(STRANGE) if choose.random() < 0.05 else value).encode()
        if file.suffix in (".yaml", ".jsonl"):
            return _lines(data, choose)
    except (ValueError, IndexError, AttributeError, TypeError):
        return damaged(data, choose)
    return _numbers(data, choose)


WORDS = (
    b"", b"null", b"[]", b"{}", b"-1", b"1e999", b".nan", b"NaN", b"true", b"99999999999999999999", b"'",
    b"[[[[", b"&a *a", b"!!int", b"\xff\xfe", b"\\ud800", b"\"\\ud800\"", b"\x00", b"\x1b[2J", b"9" * 5000,
    b"x" * 3000, b"- a", b"? [", b"<<: *b", b"{a: {b: {c: 1}}}",
)  # fmt: skip


def _lines(data: bytes, choose: random.Random) -> bytes:
    """A line removed, doubled, moved, indented, or a value in it replaced."""
    lines = data.split(b"\n")
    at = choose.randrange(len(lines))
    line = lines[at]
    match choose.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [line] * choose.choice((1, 2, 50))
        case 2:
            lines.insert(choose.randrange(len(lines)), lines.pop(at))
        case 3:
            lines[at] = choose.choice((b" ", b"  ", b"\t", b"    ")) + line
        case _:
            key, mark, _ = line.partition(b":")
            lines[at] = key + mark + b" " + choose.choice(WORDS)
    return b"\n".join(lines)


def _numbers(data: bytes, choose: random.Random) -> bytes:
    """A number of 2, 4 or 8 bytes, as sizes and places are, replaced by a telling one."""
    form = choose.choice(("<H", "<I", "<Q"))
    width = struct.calcsize(form)
    top = 1 << 8 * width
    at = choose.randrange(max(1, len(data) - width))
    value = choose.choice(
        (0, 1, 2, 7, len(data), len(data) - 1, top - 1, top // 2, top // 2 - 1, at)
    )
    return data[:at] + struct.pack(form, value % top) + data[at + width :]
