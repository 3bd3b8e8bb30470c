"""Loses the power at every call of a prediction or of training to the disk; run with `recording.c` preloaded.

Arguments: an empty folder; "train", or "resumed" for a run that stopped half way, or the suffix of
the output of a prediction; how many states are drawn
after each call, and after every how many calls. Prints calls, states, and states that were refused.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from children import WRITE, forked
from jobs import small
from killing import Planned, content, planned
from lost_power import recorded, restore, states
from small_run import final, short

from znnpy.data.writing.destination import Destination, journal_of
from znnpy.errors import ZnnpyError
from znnpy.infer.block_writer import run_job
from znnpy.train import loop
from znnpy.train.checkpoint import save
from znnpy.train.progress import Quiet
from znnpy.train.session import train
from znnpy.train.start import read_run


class Work(Protocol):
    """A command that is repeated after each loss of power."""

    def do(self, mark: Callable[[str], object]) -> None:
        """Do it; `mark` what is acknowledged."""

    def check(self, marks: list[str]) -> str:
        """Do it once more and compare; the error, if it is refused, "" else."""


class Prediction:
    """A prediction to a file."""

    def __init__(self, prediction: Planned) -> None:
        self._prediction, self._path = prediction, prediction.path
        prediction.write()  # kernels are compiled and loaded
        self._whole = content(self._path)

    def do(self, mark: Callable[[str], object]) -> None:
        run_job(
            self._prediction.job,
            Destination(self._path, "p"),
            show=lambda _: mark("block") and None,
        )
        mark("done")

    def check(self, marks: list[str]) -> str:
        if self._path.exists() and not journal_of(self._path).exists():
            assert content(self._path) == self._whole
            return ""
        said = ended(lambda pipe: self._prediction.write(pipe))
        computed, _, error = said.partition("!")
        assert "done" not in marks
        assert marks.count("block") + len(computed) <= self._prediction.blocks
        if error:
            assert not marks, error
            return error
        assert content(self._path) == self._whole
        return ""


class Training:
    """A run of a few updates; at first only of so many, if a number is given."""

    def __init__(self, folder: Path, place: Path, first: int = 0) -> None:
        self._first = first
        self._config = short(folder, place / "runs" / "a")
        self._run = Path(self._config.run.directory)
        train(self._config, reporter=Quiet())
        self._whole = final(self._run)

    def do(self, mark: Callable[[str], object]) -> None:
        def saved(folder: Path, checkpoint: Any, keep: int) -> None:
            save(folder, checkpoint, keep)
            mark(str(checkpoint.iteration))

        loop.save = saved  # type: ignore[assignment]
        if self._first:
            fewer = self._config.training.model_copy(update={"iterations": self._first})
            train(self._config.model_copy(update={"training": fewer}), reporter=Quiet())
        train(self._config, reporter=Quiet())
        mark("done")

    def check(self, marks: list[str]) -> str:
        numbers = [int(word) for word in marks if word != "done"]
        if numbers:
            assert read_run(self._run, Quiet()).checkpoint.iteration >= max(numbers)
        if "done" in marks:
            assert final(self._run) == self._whole
        error = ended(lambda _: train(self._config, reporter=Quiet())).lstrip("!")
        if error:
            assert not marks, error
            return error
        assert final(self._run) == self._whole
        return ""


def ended(work: Callable[[int], object]) -> str:
    """What a process says: what it writes itself, and its error after a "!"."""

    def told(pipe: int) -> None:
        try:
            work(pipe)
        except ZnnpyError as error:
            WRITE(pipe, b"!" + str(error).encode())

    code, said = forked(told)
    assert code == 0, said
    assert b"\n" not in said, said
    return said.decode()


def main(folder: Path, what: str, samples: int, step: int) -> None:
    place = folder / "place"
    place.mkdir()
    if what in ("train", "resumed"):
        losses(Training(folder, place, 2 if what == "resumed" else 0), folder, place, samples, step)
        return
    tiny = small(folder, threads=1, extent=(66, 4, 5))
    with planned(tiny, f"place/out{what}", patch=(11, 4, 5), block=(11, 4, 5)) as prediction:
        losses(Prediction(prediction), folder, place, samples, step)


def losses(work: Work, folder: Path, place: Path, samples: int, step: int) -> None:
    """Record the work, then take up each state that it may have left."""
    restore({}, place)
    shim, trace = ctypes.CDLL(None), folder / "trace"

    def record(_: int) -> None:
        shim.record(str(place).encode(), str(trace).encode())
        work.do(lambda words: shim.mark(words.encode()))

    assert forked(record)[0] == 0
    events = list(recorded(trace, place))
    found, refused = 0, []
    for number, tree, marks in states(events, 0, samples, step):
        restore(tree, place)
        try:
            error = work.check(marks)
        except BaseException:
            print(number, events[number - 1].kind, events[number - 1].path, marks, sorted(tree))
            raise
        found += 1
        refused += [error] if error else []
    print(
        len(events),
        found,
        len(refused),
        *sorted({line.replace(str(place), "") for line in refused}),
        sep="\n",
    )


main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
