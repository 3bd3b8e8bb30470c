"""A tiny volume and config, and commands: in this process, or as words for one of their own."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from znnpy.cli import main
from znnpy.config import load_config
from znnpy.config.models import Config

CONFIG = """
network:
  layers:
    - conv: {{images: 4, size: [1, 3, 3], norm: batch, function: relu}}
    - dropout: 0.8
    - max_filter: [1, 2, 2]
    - conv: {{images: 1, size: [3, 2, 2]}}
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


def znnpy(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process and check its exit status."""
    line, ended = [str(word) for word in words], 0
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        try:
            main(line)
        except SystemExit as end:
            ended = int(end.code or 0)
    assert ended == code, out.getvalue() + errors.getvalue()
    return subprocess.CompletedProcess(line, ended, out.getvalue(), errors.getvalue())


def state(run: Path) -> tuple[str, bytes, str]:
    """What must be bitwise the same: newest checkpoint and its name, log."""
    newest = max((run / "checkpoints").glob("*.npz"))
    return newest.name, newest.read_bytes(), (run / "log.jsonl").read_text()


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
    left = {path.name for path in run.iterdir() if ".damaged-" not in path.name}
    small = [(run / name).read_bytes() for name in ("plan.json", "versions.json", "result.json")]
    return state(run), sorted(left - {"lock"}), small
