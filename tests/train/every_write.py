"""Fails training at each of its calls to the disk, one at a time; run with `dying.c` preloaded.

Arguments: an empty folder; "full", "broken" or "short": the error of the call that fails, of whose bytes
half are written, or that it only writes half of them; and every how many calls one fails. Prints calls,
and runs that did not come to their end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from children import WRITE, forked
from small_run import final, short

from znnpy.config.models import Config
from znnpy.errors import ZnnpyError
from znnpy.train import loop
from znnpy.train.progress import Quiet
from znnpy.train.session import train
from znnpy.train.start import read_run

NEVER = 1 << 40
FAILURES = {"full": errno.ENOSPC, "broken": errno.EIO}
WORDS = ("the disk is full", "No space left on device", "Input/output error")


def main(folder: Path, mode: str, step: int) -> None:
    loop.TIMING_INTERVAL = 0.0  # every update has its line
    config = short(folder, folder / "run")
    run = Path(config.run.directory)
    train(config, reporter=Quiet())  # kernels are compiled and loaded
    whole = final(run)
    shutil.rmtree(run)
    shim: Any = ctypes.CDLL(None)
    for name in ("arm", "arm_once"):
        getattr(shim, name).argtypes = [ctypes.c_long, ctypes.c_int]
    shim.arm_short.argtypes = [ctypes.c_long]
    calls = int(trained(config, partial(shim.arm, NEVER, 0), shim.called))
    shutil.rmtree(run)
    ended = 0
    for number in range(0, calls, step):
        arm = (
            partial(shim.arm_short, number)
            if mode == "short"
            else partial(shim.arm_once, number, FAILURES[mode])
        )
        said = trained(config, arm)
        check(said, run, mode, number)
        ended += bool(said)
        assert not trained(config, lambda: None), number
        assert final(run) == whole, number
        shutil.rmtree(run)
    print(calls, ended)


def trained(config: Config, arm: Any, count: Any = None) -> str:
    """Train in a process of its own; what it says: an error, or what `count` returns."""

    def work(pipe: int) -> None:
        os.dup2(pipe, 2)  # what a library says at its end is heard too
        arm()
        try:
            train(config, reporter=Quiet())
        except ZnnpyError as error:
            WRITE(pipe, str(error).encode())
        if count is not None:
            WRITE(pipe, str(count()).encode())

    code, said = forked(work)
    assert code == 0, said.decode()
    return said.decode()


def check(said: str, run: Path, mode: str, number: int) -> None:
    """One line that names a file of the run; what was saved is whole."""
    assert "\n" not in said, (number, said)
    if said:
        assert mode != "short", (number, said)
        assert str(run) in said, (number, said)
        assert any(word in said for word in WORDS), (number, said)
    saved = sorted((run / "checkpoints").glob("*.npz"))
    if saved:
        found = read_run(run, Quiet())
        assert saved[-1].name == f"iteration-{found.checkpoint.iteration:09d}.npz", number
    if "all 4 iterations" in said:
        assert saved[-1].name == "iteration-000000004.npz", number


main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
