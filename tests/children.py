"""Child processes that are killed at a call to the disk."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
from collections.abc import Callable

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


def forked(work: Callable[[int], None], seconds: float = 0.0) -> tuple[int, bytes]:
    """Run in a child, which gets a pipe; its exit status and what it wrote into the pipe.

    A child that is not done within `seconds`, if any, says where each of its threads is, and fails.
    """
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        gc.freeze()  # what the parent left over may wait, when it ends, for threads that are not here
        if seconds:
            faulthandler.dump_traceback_later(seconds, exit=True)
        with contextlib.suppress(BaseException):
            work(into)
            code = 0
        os._exit(code)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said
