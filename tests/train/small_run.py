"""A tiny volume and config, and commands: in this process, in a fork of it, or as words for one of their own."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from called import status_of

from znnpy.config import load_config
from znnpy.config.models import Config

CONFIG = """
network:
  layers:
    - conv: {{channels: 4, size: [1, 3, 3], norm: batch, function: relu}}
    - dropout: 0.8
    - max_filter: [1, 2, 2]
    - conv: {{channels: 1, size: [3, 2, 2]}}
data:
  train: [{{image: data.h5:raw, labels: data.h5:labels}}]
  validation: [{{image: data.h5:raw, labels: data.h5:labels}}]
training:
  iterations: {iterations}
  batch: 2
  output_shape: [4, 6, 6]
  rebalance: patch
  optimizer: adam
  learning_rate: 0.002
  schedule: {{kind: exponential, every: 50, factor: 0.5}}
  conv: direct
  validation: {{every: 30, patches: 3}}
run: {{directory: run, threads: 2, checkpoint: {{every: 20, keep: 2}}, log_every: 1}}
"""


def write_config(folder: Path, iterations: int = 100) -> Path:
    """Data and config in a folder; returns the config's path."""
    rng = np.random.default_rng(0)
    blocks = rng.integers(1, 20, (4, 5, 5)).astype(np.uint32)
    labels = blocks.repeat(5, 0).repeat(5, 1).repeat(5, 2)
    labels[:, ::5] = 0
    raw = (labels == 0) * 100 + rng.integers(0, 100, labels.shape)
    with h5py.File(folder / "data.h5", "w") as file:
        file["raw"], file["labels"] = raw.astype(np.uint8), labels
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(iterations=iterations))
    return path


def command(*words: object) -> list[str]:
    """A command as a process of its own, which imports everything anew."""
    return [sys.executable, "-c", "from znnpy.cli import main; main()", *map(str, words)]


HELD = """
import sys, time
from pathlib import Path
from znnpy.cli import main
from znnpy.train.loop import Loop
submit, iteration, go_on = Loop._submit, int(sys.argv[1]), Path(sys.argv[2])
def held(self):
    while self._submitted >= iteration and not go_on.exists():
        time.sleep(0.005)
    submit(self)
Loop._submit = held
main(["train", *sys.argv[3:]])
"""


def held(iteration: int, go_on: Path, *words: object) -> list[str]:
    """A training as a process of its own that goes no further before a file is there, however late that comes."""
    return [sys.executable, "-c", HELD, str(iteration), str(go_on), *map(str, words)]


def znnpy(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process and check its exit status."""
    line = [str(word) for word in words]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        ended = status_of(*line)
    assert ended == code, out.getvalue() + errors.getvalue()
    return subprocess.CompletedProcess(line, ended, out.getvalue(), errors.getvalue())


class Forked:
    """A command in a fork of this process, which has imported everything already; waited for like a `Popen`.

    `before` is called in the child, before the command.
    """

    def __init__(self, *words: object, before: Callable[[], None] | None = None) -> None:
        self.returncode: int | None = None
        self._said = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        self._pid = os.fork()
        if self._pid == 0:
            self._run([str(word) for word in words], before)

    def _run(self, words: list[str], before: Callable[[], None] | None) -> None:
        code = 1
        try:
            for number, said in enumerate(self._said, 1):
                os.dup2(said.fileno(), number)
            sys.stdout, sys.stderr = (open(n, "w", 1, closefd=False) for n in (1, 2))  # noqa: SIM115
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if before:
                before()
            code = status_of(*words)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self._pid, number)

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Wait for the end; what was written to stdout and stderr."""
        until = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < until, "no end in time"
            time.sleep(0.005)
        for said in self._said:
            said.seek(0)
        out, errors = (said.read() for said in self._said)
        return out, errors

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.send_signal(signal.SIGKILL)
        self.communicate()
        for said in self._said:
            said.close()


def apart(*words: object, before: Callable[[], None] | None = None) -> tuple[int | None, str, str]:
    """Run a command to its end in a fork: exit status, stdout and stderr."""
    with Forked(*words, before=before) as process:
        said = process.communicate()
        return process.returncode, *said


def untimed(log: Path) -> str:
    """A log without the times of its records."""
    return re.sub(r', "time": [0-9.e+]+', "", log.read_text())


def state(run: Path) -> tuple[str, bytes, str]:
    """What must be bitwise the same: newest checkpoint and its name, log."""
    newest = max((run / "checkpoints").glob("*.npz"))
    return newest.name, newest.read_bytes(), untimed(run / "log.jsonl")


SHORT = (
    "training.iterations=4",
    "training.validation={every: 2, patches: 1}",
    "run.checkpoint.every=2",
    "run.threads=1",
)


def short(folder: Path, run: Path) -> Config:
    """The config of a few updates, three checkpoints and two validations."""
    return load_config(write_config(folder), (*SHORT, f"run.directory={run}"))


def final(run: Path) -> tuple[Any, ...]:
    """All that must be the same in the end; timings are not, and damage may have been set aside."""
    best = [(path.name, path.read_bytes()) for path in sorted((run / "best").glob("*"))]
    left = {path.name for path in run.iterdir() if ".damaged-" not in path.name}
    small = [(run / name).read_bytes() for name in ("plan.json", "versions.json", "result.json")]
    shown = {"run.html", "looks.jsonl", "slices.json"}  # as often as there was time for
    return state(run), best, sorted(left - {"lock"} - shown), small
