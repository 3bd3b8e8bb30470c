"""Fails a command at each of its calls to the disk, one at a time; run with `dying.c` preloaded.

Arguments: an empty folder; "train", or the suffix of the output of a prediction; every how many calls one
fails; and of "full", "broken" and "short" some, one after the other: the error of the call that fails, of whose
bytes half are written, or that it only writes half of them. Prints for each calls, and commands that did not come
to their end.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from called import status_of
from children import WRITE, forked
from failing import NEVER, WORDS, arm_once, preloaded
from killing import content, remove
from matplotlib.figure import Figure
from small_run import SHORT, final, write_config

from znnpy.cli.app import main as znnpy
from znnpy.data.writing.destination import journal_of
from znnpy.infer.log import log_of
from znnpy.pictures import panels
from znnpy.train import progress, run_writer
from znnpy.train.progress import Quiet
from znnpy.train.run_directory import PATCHES
from znnpy.train.start import read_run

NOTE = "znnpy: note: "  # costs nobody anything


class Command(Protocol):
    """A command that is run again after it failed."""

    words: list[str]

    def result(self) -> Any:
        """What must be the same in the end."""

    def remove(self) -> None:
        """What it made."""

    def kept(self, said: str) -> bool:
        """Look at what the command left that said so; whether there is more to do."""

    def continued(self) -> None:
        """Look at what the second command left."""


class Training:
    """A run of a few updates."""

    def __init__(self, folder: Path) -> None:
        sets = [word for value in SHORT for word in ("--set", value)]
        self.words = ["train", "--quiet", str(write_config(folder)), *sets]
        self.run = folder / "run"

    def result(self) -> Any:
        return final(self.run)

    def remove(self) -> None:
        shutil.rmtree(self.run)

    def kept(self, said: str) -> bool:
        saved = sorted((self.run / "checkpoints").glob("*.npz"))
        if saved:
            found = read_run(self.run, Quiet())
            assert saved[-1].name == f"iteration-{found.checkpoint.iteration:09d}.npz"
            if found.checkpoint.iteration > 0:
                best = read_run(self.run, Quiet(), which="best").checkpoint.iteration
                assert 0 < best <= found.checkpoint.iteration
        if "all 4 iterations" in said:
            assert saved[-1].name == "iteration-000000004.npz"
        return True

    def continued(self) -> None:
        """The result says all."""


class Prediction:
    """A prediction to a file, by a run that remembers its patch."""

    def __init__(self, folder: Path, suffix: str) -> None:
        training = Training(folder)
        here(training.words)
        self._run, self._path = training.run, folder / f"out{suffix}"
        self._done = self._before = 0
        source = f"{folder / 'data.h5'}:raw"
        self.words = ["predict", "--quiet", str(self._run)]
        self.words += ["--input", source, "--output", str(self._path)]
        self.words += ["--block", "6,12,24"]

    def result(self) -> Any:
        return content(self._path)

    def remove(self) -> None:
        remove(self._path)
        (self._run / PATCHES).unlink(missing_ok=True)

    def kept(self, said: str) -> bool:
        events = self._events()
        self._before = len(events)
        self._done = sum(event["event"] == "block" for event in events)
        whole = self._path.exists() and not journal_of(self._path).exists()
        assert whole or said, "it ended without a word"
        assert not whole or f"{self._path} cannot be written" not in said
        return not whole

    def continued(self) -> None:
        for event in self._events()[self._before :]:  # nothing, if only the end was left to do
            if event["event"] == "start":
                assert event["left"] <= event["blocks"] - self._done, "what was done is done again"
        left = sorted(self._path.parent.glob(f"*{self._path.name}*"))
        assert left == [self._path, log_of(self._path)]

    def _events(self) -> list[dict[str, Any]]:
        log, found = log_of(self._path), []
        for line in log.read_text().splitlines() if log.exists() else []:
            with suppress(ValueError):  # half a line
                found.append(json.loads(line))
        return found


def main(folder: Path, what: str, step: int, modes: list[str]) -> None:
    progress.choose_reporter = lambda **_: Quiet()
    run_writer.TIMING_INTERVAL = 0.0  # every update has its line
    panels.figure_of = lambda *_: Figure((1, 1))  # drawn in no time, and written as any other
    command: Command = Training(folder) if what == "train" else Prediction(folder, what)
    here(command.words)  # kernels are compiled and loaded
    whole = command.result()
    command.remove()
    _, said, calls = ran(command.words, partial(preloaded().arm, NEVER, 0))
    assert not said, said
    command.remove()
    for index, mode in enumerate(modes):
        failed = 0
        # Of a share each mode takes others.
        for number in range(index * step // len(modes), calls, step):
            try:
                failed += fails_once(command, folder, whole, mode, number)
            except BaseException:
                print(what, mode, number)
                raise
        print(calls, failed)


def fails_once(command: Command, folder: Path, whole: Any, mode: str, number: int) -> int:
    """Run it failing at a call, run it again, compare; its exit code."""
    code, said, _ = ran(command.words, partial(arm_once, mode, number))
    lines = said.splitlines()
    assert sum(not line.startswith(NOTE) for line in lines) == code, said
    for line in lines:
        assert str(folder) in line, said
        assert any(word in line for word in WORDS.get(mode, ())), (
            said
        )  # of a short write nothing is said
    if command.kept(said):
        assert ran(command.words, lambda: None)[:2] == (0, "")
        command.continued()
    assert command.result() == whole
    command.remove()
    return code


def here(words: list[str]) -> None:
    """A command in this process."""
    with redirect_stdout(io.StringIO()):
        assert status_of(*words) == 0


def ran(words: list[str], arm: Callable[[], object]) -> tuple[int, str, int]:
    """A command in a process of its own: exit code, what it says on stderr, calls to the disk."""

    def work(pipe: int) -> None:
        os.dup2(pipe, 2)  # what a library says at its end is heard too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["znnpy", *words]
        leave, count = os._exit, preloaded().called

        def end(code: int) -> None:
            WRITE(pipe, b"\0%d" % count())
            leave(code)

        os._exit = end  # type: ignore[assignment]
        arm()
        znnpy()

    code, said = forked(work)
    told, _, calls = said.decode().partition("\0")
    return code, told, int(calls)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
