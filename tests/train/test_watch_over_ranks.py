"""What is said of the first updates over ranks is what one process says, and no bit of training changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from ranked import SECONDS, mpiexec
from small_run import command, state

CONFIG = """
network:
  layers:
    - conv: {channels: 8, size: 3, function: relu, norm: instance}
    - conv: {channels: 8, size: 3, function: relu}
    - conv: {channels: 1, size: 1}
data: {train: [{image: "v.h5:raw", labels: "v.h5:labels"}]}
augment: {swaps: none}
training:
  iterations: 200
  batch: 3
  microbatch: 1
  output_shape: [6, 12, 12]
  optimizer: adamw
  learning_rate: 0.01
  conv: direct
run: {threads: 1, checkpoint: {every: 1000}}
"""
RUN = """
import sys
from znnpy.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.kron(np.arange(1, 65).reshape(4, 4, 4), np.ones((6, 12, 12), int))
    walls = np.zeros(labels.shape, bool)
    for axis in range(3):
        walls |= np.roll(labels, 1, axis) != labels
    raw = (100 - 60 * walls + rng.normal(0, 10, labels.shape)).astype(np.uint8)
    with h5py.File("v.h5", "w") as file:
        file["raw"], file["labels"] = raw, labels.astype(np.uint32)
        file["shifted"] = np.roll(labels, (0, 4, 4), (0, 1, 2)).astype(np.uint32)
        file["none"] = np.zeros(labels.shape, np.float32)
        file["one"] = np.ones(labels.shape, np.uint32)
        file["noise"] = rng.permutation(raw.ravel()).reshape(raw.shape)
    Path("c.yaml").write_text(CONFIG)


def said(ranks: int, name: str, *sets: str) -> list[str]:
    given = (*sets, f"run.directory={name}")
    words = ["train", "c.yaml", *(word for it in given for word in ("--set", it))]
    line = [*command(*words)] if ranks == 1 else mpiexec(ranks, sys.executable, "-c", RUN, *words)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return [it for it in done.stderr.splitlines() if "warning: after 200 updates" in it]


FAULTS = {
    "hold no boundary to learn": ('data.train=[{image: "v.h5:raw", labels: "v.h5:one"}]',),
    "nothing was learned of the image": (
        'data.train=[{image: "v.h5:noise", labels: "v.h5:labels"}]',
    ),
    "fitted the image better when shifted": (
        'data.train=[{image: "v.h5:raw", labels: "v.h5:shifted"}]',
    ),
    "all targets of output 'more' were 0": (
        "network={unet: {widths: [4, 8], norm: instance, function: elu, heads: {more: 1}}}",
        'data.train=[{image: "v.h5:raw", labels: {output: "v.h5:labels", more: "v.h5:none"}}]',
        "training.outputs={more: {loss: square, target: {kind: image}}}",
        "training.output_shape=[4, 8, 8]",
    ),
    "are dead": ("training.learning_rate=0.5",),
    "all filters are where they were": ("training.learning_rate=1e-8",),
    "": (),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("fault", FAULTS)
def test_ranks_say_what_one_process_says(fault: str) -> None:
    alone = said(1, "alone", *FAULTS[fault])
    over = said(2, "over", *FAULTS[fault])
    assert over == alone
    assert any(fault in it for it in alone) if fault else not alone
    assert state(Path("over")) == state(Path("alone"))
