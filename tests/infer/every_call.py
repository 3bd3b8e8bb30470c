"""Kills a prediction at each of its calls to the disk, or fails it; run with `dying.c` preloaded.

Arguments: an empty folder, the output's suffix, every how many calls that is done, and "chained": each run that is
killed goes on where the one before was killed; or of "alone": it begins anew, "full" and "broken": the disk is so
from that call on, some, one after the other. Prints for each blocks, calls, and runs that were killed or failed.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from children import KILLED, WRITE, forked
from failing import FAILURES, NEVER, WORDS, preloaded
from jobs import small
from killing import (
    Planned,
    content,
    failed_and_continued,
    killed_and_continued,
    planned,
    remove,
)

from znnpy.data.writing import flat_output
from znnpy.data.writing.destination import journal_of

CHAINED, ALONE = (22, 4, 5), (66, 4, 5)
THIN, THICK = (1, 4, 5), (11, 4, 5)  # blocks: 22 where runs go on from one another, else 6
RECORD = 56  # bytes of a journal's record


def main(folder: Path, suffix: str, step: int, modes: list[str]) -> None:
    flat_output.FEW = 0  # rows are written by compiled code
    extent, shape = (CHAINED, THIN) if "chained" in modes else (ALONE, THICK)
    tiny = small(folder, threads=1, extent=extent)
    with planned(tiny, f"out{suffix}", patch=shape, block=shape) as prediction:
        prediction.write()  # kernels are compiled and loaded
        whole = content(prediction.path)
        remove(prediction.path)
        calls = counted_calls(prediction)
        remove(prediction.path)
        for index, mode in enumerate(modes):
            # Of a share each mode takes others.
            share = range(index * step // len(modes), calls, step)
            if mode in FAILURES:
                ended = failed(prediction, whole, share, mode)
            elif mode == "alone":
                ended = alone(prediction, whole, share)
            else:
                ended = chained(prediction, whole, calls, step)
            print(prediction.blocks, calls, ended)


def failed(prediction: Planned, whole: dict[str, bytes], calls: range, mode: str) -> int:
    """Fail at one call and all later ones, run to the end and compare, for each call; failed runs."""
    found = 0
    for number in calls:
        arm = partial(preloaded().arm, number, FAILURES[mode])
        error = failed_and_continued(prediction, arm, whole)
        assert not error or any(word in error for word in WORDS[mode]), (number, error)
        assert "\n" not in error, (number, error)
        found += bool(error)
    return found


def counted_calls(prediction: Planned) -> int:
    """Calls of an undisturbed run."""
    shim = preloaded()

    def work(pipe: int) -> None:
        prediction.write(None, partial(shim.arm, NEVER, 0))
        WRITE(pipe, str(shim.called()).encode())

    code, said = forked(work)
    assert code == 0
    return int(said)


def alone(prediction: Planned, whole: dict[str, bytes], calls: range) -> int:
    """Kill at one call, run to the end and compare, for each call; killed runs."""
    for number in calls:
        arm = partial(preloaded().arm, number, 0)
        assert not killed_and_continued(prediction, arm, whole), number
    return len(calls)


def chained(prediction: Planned, whole: dict[str, bytes], calls: int, step: int) -> int:
    """Kill each run `step` calls later than the one before it, which it goes on from; killed runs.

    When a block is finished the next one's calls are gone through. Only the last run is not killed.
    """
    total, path = prediction.blocks, prediction.path
    each = calls // total + 1
    killed = said = number = 0
    done = -1  # nothing is begun
    while True:
        arm = partial(preloaded().arm, number, 0)
        code, words = forked(lambda pipe, arm=arm: prediction.write(pipe, arm))
        said += words.count(b".")
        assert said <= total
        assert code in (0, KILLED)
        if code == 0 or (path.exists() and not journal_of(path).exists()):
            break
        killed += 1
        assert killed < 2 * calls, "what was done is done again"
        before, done = done, acknowledged(path, done)
        assert said <= max(0, done) <= before + 1, number
        # The runs that made the file, and those that went on at once, counted other calls.
        number = number + step if done == before else 0 if done < 2 else max(0, number - each)
    assert content(path) == whole
    assert not list(path.parent.glob(f"{path.name}.partial*"))
    return killed


def acknowledged(path: Path, before: int) -> int:
    """Blocks in the journal of an output, which is only looked at; as before if there is none."""
    journal = journal_of(path)
    _, ended, records = journal.read_bytes().partition(b"\n") if journal.exists() else (b"",) * 3
    return len(records) // RECORD if ended else before


main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
