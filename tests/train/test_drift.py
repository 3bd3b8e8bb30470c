"""Training and validation that drift apart are named once, also where a run goes on; others hear nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.config import load_config
from znnpy.train.drift import Drift
from znnpy.train.progress import Quiet
from znnpy.train.session import train

FALLING = [1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2]


def records(training: Sequence[float], validation: Sequence[float]) -> list[dict]:
    """As a log has them: two losses of training before each validation."""
    found = []
    for number, (one, other) in enumerate(zip(training, validation, strict=True), start=1):
        found += [{"iteration": 10 * number + at, "loss": one * (1 + at)} for at in (-0.1, 0.1)]
        found.append({"iteration": 10 * number, "validation": {"loss": other}})
    return found


def said(*losses: Sequence[float]) -> list[str]:
    drift = Drift()
    return [text for record in records(*losses) if (text := drift.take(record))]


def test_apart() -> None:
    (found,) = said(FALLING, [1.0, 0.8, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2])
    assert found.startswith("iteration 70: training and validation drift apart: since iteration 30")
    assert "fell from 0.633 to 0.317 in training, and rose from 0.7 to 1.1 in validation" in found


@pytest.mark.parametrize(
    ("training", "validation"),
    [
        (FALLING, FALLING),
        (FALLING, [1.0, 0.8, 0.7, 0.72, 0.74, 0.76, 0.78, 0.8]),  # little worse
        (FALLING, [1.0, 0.8, 0.7, 1.0, 1.1, 0.75, 1.0, 1.0]),  # no three in a row
        ([0.5] * 8, [1.0, 0.8, 0.7, 0.9, 0.9, 0.9, 0.9, 0.9]),  # both restless
        (FALLING[::-1], FALLING[::-1]),  # both diverge
        (FALLING[:3], [0.7, 0.9, 1.0]),  # too few
    ],
)
def test_together(training: list[float], validation: list[float]) -> None:
    assert said(training, validation) == []


def test_a_run_that_goes_on_repeats_nothing_and_forgets_nothing() -> None:
    all_of = records(FALLING, [1.0, 0.8, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2])
    for cut in range(len(all_of)):
        drift = Drift(all_of[:cut])
        later = [text for record in all_of[cut:] if (text := drift.take(record))]
        assert len(later) == (cut <= 20)  # the seventh validation is record 20


def test_scores_alone_or_nothing_finite_are_left_alone() -> None:
    drift = Drift([{"iteration": 1, "loss": 1.0}])
    for record in ({"iteration": 2, "validation": {}}, {"iteration": 3, "changed": "all"}):
        assert drift.take(record) is None


CONFIG = """
network:
  layers:
    - conv: {channels: 12, size: 3, function: relu, norm: batch}
    - conv: {channels: 12, size: 3, function: relu, norm: batch}
    - conv: {channels: 1, size: 1}
data:
  train: [{image: "v.h5:raw", labels: "v.h5:one"}]
  validation: [{image: "v.h5:raw", labels: "v.h5:other"}]
  target: {kind: mask}
augment: {enabled: false}
training:
  iterations: 240
  output_shape: [4, 8, 8]
  optimizer: adamw
  learning_rate: 0.02
  conv: direct
  validation: {every: 20, patches: 4}
run: {threads: 1, checkpoint: {every: 1000}}
"""


class Heard(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        if "drift apart" in text:
            self.notes.append(text)


def test_a_net_that_learns_noise_by_heart(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        for name in ("raw", "one", "other"):
            file[name] = random.integers(0, 256 if name == "raw" else 2, (8, 12, 12), np.uint8)
    (tmp_path / "c.yaml").write_text(CONFIG)
    reporter = Heard()
    assert train(load_config(tmp_path / "c.yaml"), reporter=reporter).finished
    assert len(reporter.notes) == 1
    assert reporter.notes[0].startswith("warning: iteration ")
    lines = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    scores = [it["validation"]["loss"] for it in lines if "validation" in it]
    assert scores[-1] > 1.2 * min(scores)
