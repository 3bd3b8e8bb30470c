"""Kills a prediction at each of its calls to the disk; run with `dying.c` preloaded.

Arguments: an empty folder, the output's suffix, and "alone" or "chained": whether each run that is
killed begins anew, or goes on where the one before was killed. Prints blocks, calls, killed runs.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from pathlib import Path
from typing import Any

from jobs import Small, small
from killing import (
    KILLED,
    WRITE,
    blocks,
    content,
    forked,
    killed_and_continued,
    predict,
    remove,
)

from znnpy.data import block_writer
from znnpy.data.outputs import journal_of

EXTENT = (66, 4, 5)
BLOCK = (1, 4, 5)
CHANGES: dict[str, Any] = {"patch": BLOCK, "block": BLOCK}
NEVER = 1 << 40
RECORD = 56  # bytes of a journal's record


def main(folder: Path, suffix: str, mode: str) -> None:
    block_writer.FEW = 0  # rows are written by compiled code
    tiny, name = small(folder, threads=1, extent=EXTENT), f"out{suffix}"
    predict(tiny, name, **CHANGES)  # kernels are compiled and loaded
    whole = content(folder / name)
    remove(folder / name)
    calls = counted_calls(tiny, name)
    remove(folder / name)
    killed = (alone if mode == "alone" else chained)(tiny, name, whole, calls)
    print(blocks(tiny, name, **CHANGES), calls, killed)


def counted_calls(tiny: Small, name: str) -> int:
    """Calls of an undisturbed run."""
    shim = preloaded()

    def work(pipe: int) -> None:
        predict(tiny, name, None, partial(shim.arm, NEVER), **CHANGES)
        WRITE(pipe, str(shim.called()).encode())

    code, said = forked(work)
    assert code == 0
    return int(said)


def alone(tiny: Small, name: str, whole: dict[str, bytes], calls: int) -> int:
    """Kill at one call, run to the end and compare, for each call; killed runs."""
    for number in range(calls):
        arm = partial(preloaded().arm, number)
        assert not killed_and_continued(tiny, name, arm, whole, **CHANGES), number
    return calls


def chained(tiny: Small, name: str, whole: dict[str, bytes], calls: int) -> int:
    """Kill each run one call later than the one before it, which it goes on from; killed runs.

    When a block is finished the next one's calls are gone through. Only the last run is not killed.
    """
    total, path = blocks(tiny, name, **CHANGES), tiny.folder / name
    each = calls // total + 1
    killed = said = number = 0
    done = -1  # nothing is begun
    while True:
        arm = partial(preloaded().arm, number)
        code, words = forked(lambda pipe, arm=arm: predict(tiny, name, pipe, arm, **CHANGES))
        said += words.count(b".")
        assert said <= total
        assert code in (0, KILLED)
        if code == 0 or (path.exists() and not journal_of(path).exists()):
            break
        killed += 1
        before, done = done, acknowledged(path, done)
        assert said <= max(0, done) <= before + 1, number
        # The runs that made the file, and those that went on at once, counted other calls.
        number = number + 1 if done == before else 0 if done < 2 else max(0, number - each)
    assert content(path) == whole
    assert not list(tiny.folder.glob(f"{name}.partial*"))
    return killed


def acknowledged(path: Path, before: int) -> int:
    """Blocks in the journal of an output, which is only looked at; as before if there is none."""
    journal = journal_of(path)
    _, ended, records = journal.read_bytes().partition(b"\n") if journal.exists() else (b"",) * 3
    return len(records) // RECORD if ended else before


def preloaded() -> Any:
    """The functions of `dying.c`."""
    shim = ctypes.CDLL(None)
    shim.arm.argtypes = [ctypes.c_long]
    return shim


main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
