"""Predictions in child processes that end or fail at a call to the disk, and are run again."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import KILLED, WRITE, forked
from jobs import Small

from znnpy.data.scene import Scene
from znnpy.data.writing.destination import Destination, journal_of
from znnpy.errors import ZnnpyError
from znnpy.infer.block_writer import run_job
from znnpy.infer.job import Job
from znnpy.infer.log import log_of


@dataclass(frozen=True)
class Planned:
    """A prediction to a file that is planned once, for many processes that are forked to make it."""

    job: Job
    path: Path

    def write(self, said: int | None = None, arm: Callable[[], object] | None = None) -> None:
        """Make the file; each finished block is a byte in the pipe. `arm` is called before."""
        show = (lambda _: WRITE(said, b".") and None) if said is not None else None
        if arm is not None:
            arm()
        run_job(self.job, Destination(self.path, "p"), show=show)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return len(self.job.order)


@contextlib.contextmanager
def planned(tiny: Small, name: str, **changes: Any) -> Iterator[Planned]:
    """A prediction to a file named so, with its input open."""
    with tiny.scene().reference as volume:
        yield Planned(tiny.job(Scene({"input": volume}, {}), name, **changes), tiny.folder / name)


def predict(
    tiny: Small,
    name: str,
    said: int | None = None,
    arm: Callable[[], object] | None = None,
    **changes: Any,
) -> None:
    """Plan a prediction and make its file."""
    with planned(tiny, name, **changes) as prediction:
        prediction.write(said, arm)


def killed_and_continued(
    prediction: Planned, arm: Callable[[], object], whole: dict[str, bytes]
) -> bool:
    """Run armed, run again, compare; whether the first run came to its end."""
    code, said = forked(lambda pipe: prediction.write(pipe, arm))
    assert code in (0, KILLED)
    continued(prediction, said.count(b"."), whole)
    return code == 0


def failed_and_continued(
    prediction: Planned, arm: Callable[[], object], whole: dict[str, bytes]
) -> str:
    """Run armed to fail, run again, compare; the error of the first run, "" if it came to its end.

    The process ends as all do, through what its libraries do last.
    """

    def work(pipe: int) -> None:
        try:
            prediction.write(pipe, arm)
        except ZnnpyError as error:
            WRITE(pipe, b"!" + str(error).encode())
        except BaseException:
            WRITE(pipe, b"!" + traceback.format_exc().encode())
            raise
        ctypes.CDLL(None).exit(0)

    code, said = forked(work)
    done, _, error = said.partition(b"!")
    assert code == 0, f"ended with {code}: {error.decode()}"
    if prediction.path.exists():
        assert b"cannot be written" not in error, error
    continued(prediction, len(done), whole)
    return error.decode()


def continued(prediction: Planned, done: int, whole: dict[str, bytes]) -> None:
    """Run again after a run that told of so many finished blocks, compare.

    No block that was finished is computed again, and nothing is left but the output and its log.
    """
    path = prediction.path
    if not path.exists() or journal_of(path).exists():
        again, computed = forked(prediction.write)
        assert again == 0
        assert done + computed.count(b".") <= prediction.blocks
    assert content(path) == whole
    assert sorted(path.parent.glob(f"*{path.name}*")) == [path, log_of(path)]
    remove(path)


def content(path: Path) -> dict[str, bytes]:
    """Bytes of a file, or of all files in a folder by path."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def remove(path: Path) -> None:
    """An output and its log."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    log_of(path).unlink()
