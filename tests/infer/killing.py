"""Predictions in child processes that end or fail at a call to the disk, and are run again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import Small

from znnpy.data.outputs import journal_of
from znnpy.data.scene import Scene
from znnpy.errors import ZnnpyError
from znnpy.infer.log import log_of
from znnpy.infer.write import run_job

CALLS = ("open", "pwrite", "write", "fdatasync", "fsync", "posix_fallocate", "ftruncate")
MOVES = ("rename", "replace", "unlink")
KILLED = -signal.SIGKILL
WRITE = os.write


def counted(limit: int) -> list[int]:
    """From now on this process is killed at its call number `limit` to the disk, if Python makes it."""
    calls = [0]

    def wrap(call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **more: object) -> object:
            calls[0] += 1
            if calls[0] > limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **more)

        return wrapped

    for name in (*CALLS, *MOVES):
        setattr(os, name, wrap(getattr(os, name)))
    return calls


def forked(work: Callable[[int], None]) -> tuple[int, bytes]:
    """Run in a child, which gets a pipe; its exit status and what it wrote into the pipe."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            work(into)
            code = 0
        os._exit(code)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def predict(
    tiny: Small,
    name: str,
    said: int | None = None,
    arm: Callable[[], object] | None = None,
    **changes: Any,
) -> None:
    """Predict to a file; each finished block is a byte in the pipe. `arm` is called before writing."""
    with tiny.scene().reference as volume:
        job = tiny.job(Scene({"input": volume}, {}), name, **changes)
        show = (lambda _: WRITE(said, b".") and None) if said is not None else None
        if arm is not None:
            arm()
        run_job(job, tiny.folder / name, "p", show=show)


def killed_and_continued(
    tiny: Small, name: str, arm: Callable[[], object], whole: dict[str, bytes], **changes: Any
) -> bool:
    """Run armed, run again, compare; whether the first run came to its end."""
    code, said = forked(lambda pipe: predict(tiny, name, pipe, arm, **changes))
    assert code in (0, KILLED)
    continued(tiny, name, said.count(b"."), whole, **changes)
    return code == 0


def failed_and_continued(
    tiny: Small, name: str, arm: Callable[[], object], whole: dict[str, bytes], **changes: Any
) -> str:
    """Run armed to fail, run again, compare; the error of the first run, "" if it came to its end.

    The process ends as all do, through what its libraries do last.
    """

    def work(pipe: int) -> None:
        try:
            predict(tiny, name, pipe, arm, **changes)
        except ZnnpyError as error:
            WRITE(pipe, b"!" + str(error).encode())
        except BaseException:
            WRITE(pipe, b"!" + traceback.format_exc().encode())
            raise
        ctypes.CDLL(None).exit(0)

    code, said = forked(work)
    done, _, error = said.partition(b"!")
    assert code == 0, f"ended with {code}: {error.decode()}"
    continued(tiny, name, len(done), whole, **changes)
    return error.decode()


def continued(tiny: Small, name: str, done: int, whole: dict[str, bytes], **changes: Any) -> None:
    """Run again after a run that told of so many finished blocks, compare.

    No block that was finished is computed again, and nothing is left but the output and its log.
    """
    path = tiny.folder / name
    if not path.exists() or journal_of(path).exists():
        again, computed = forked(lambda pipe: predict(tiny, name, pipe, **changes))
        assert again == 0
        assert done + computed.count(b".") <= blocks(tiny, name, **changes)
    assert content(path) == whole
    assert sorted(tiny.folder.glob(f"*{name}*")) == [path, log_of(path)]
    remove(path)


def blocks(tiny: Small, name: str, **changes: Any) -> int:
    """How many a prediction has."""
    with tiny.scene().reference as volume:
        return len(tiny.job(Scene({"input": volume}, {}), name, **changes).order)


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
