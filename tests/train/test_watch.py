"""Each fault is named within 200 updates; healthy runs hear nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from znnpy.config import load_config
from znnpy.config.augment_section import DISTORTIONS
from znnpy.train.progress import Quiet
from znnpy.train.session import train

SAMPLE = Path(__file__).parents[2] / "volumes" / "fibsem"
CONFIG = """
network:
  layers:
    - conv: {channels: 8, size: 3, function: relu, norm: batch}
    - conv: {channels: 8, size: 3, function: relu, norm: batch}
    - conv: {channels: 1, size: 1}
data: {train: [{image: "v.h5:raw", labels: "v.h5:labels"}]}
training:
  iterations: 200
  output_shape: [8, 20, 20]
  optimizer: adamw
  learning_rate: 0.01
  conv: direct
run: {threads: 1, checkpoint: {every: 1000}}
"""


class Heard(Quiet):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        if "warning" in text:
            self.notes.append(text)


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    monkeypatch.chdir(tmp_path)
    with h5py.File(SAMPLE / "train-image.h5") as file:
        raw = file["stack"][:32, :80, :120]
    with h5py.File(SAMPLE / "train-gt.lzf.h5") as file:
        labels = file["stack"][:32, :80, :120]
    write(raw, labels)
    Path("c.yaml").write_text(CONFIG)
    return raw, labels


def write(raw: np.ndarray, labels: np.ndarray) -> None:
    with h5py.File("v.h5", "w") as file:
        file["raw"], file["labels"] = raw, labels.astype(np.uint32)


def heard(*settings: str) -> str:
    reporter = Heard()
    assert train(load_config("c.yaml", settings), reporter=reporter).finished
    return "\n".join(reporter.notes)


WITHOUT_NORM = "network.layers=[" + ", ".join(
    ["{conv: {channels: 8, size: 3, function: relu}}"] * 2 + ["{conv: {channels: 1, size: 1}}]"]
)
UNET = "network={unet: {widths: [8, 16], norm: batch, function: elu}}"
HEALTHY: tuple[tuple[str, ...], ...] = (
    (),
    ("training.seed=1",),
    ("training.optimizer=adam", "training.learning_rate=0.003", WITHOUT_NORM),
    ("training.optimizer=sgd", "training.learning_rate=0.05"),
    ("training.loss=bce_dice",),
    ("training.loss=square",),
    ("training.rebalance=patch",),
    (UNET, "training.learning_rate=0.003", "training.schedule={kind: cosine, warmup: 100}"),
    (UNET, "data.target={kind: affinity}", "network.unet.outputs=3"),
    ("training.schedule=one_cycle", "training.ema=0.99", "augment.enabled=false"),
    (
        "data.train.0.slices=[0, 18]",
        "data.validation=[{image: 'v.h5:raw', labels: 'v.h5:labels', slices: [18, 32]}]",
        "training.validation.every=20",
    ),
    tuple(f"augment.{name}={{}}" for name in DISTORTIONS),
)


@pytest.mark.quick(1)
@pytest.mark.parametrize("settings", HEALTHY, ids=lambda it: str(it)[:40])
def test_a_healthy_run_hears_nothing(settings: tuple[str, ...]) -> None:
    assert heard(*settings) == ""


def test_dead_layers() -> None:
    """Steps as long as filters are: most relus see nothing any more."""
    assert "of the 8 channels of 'layer2' are dead" in heard(
        WITHOUT_NORM, "training.learning_rate=0.3"
    )


@pytest.mark.slow
def test_exploding_gradients() -> None:
    linear = WITHOUT_NORM.replace("relu", "linear")
    settings = ("training.loss=square", "training.optimizer={kind: sgd, momentum: 0}")
    rates = [f"training.learning_rate={rate}" for rate in (0.3, 0.2, 0.15, 0.1)]
    seen = []
    for rate in rates:
        try:
            seen.append(heard(linear, *settings, rate, "training.clip_norm=30"))
        except Exception as error:
            seen.append(str(error))
    assert any("gradients explode" in it for it in seen), seen


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_learning_rate_at_which_nothing_moves(kind: str) -> None:
    found = heard(f"training.optimizer={kind}", "training.learning_rate=1e-8")
    assert "all filters are where they were" in found
    assert "1e-08 by now, is too low" in found
    assert "nothing was learned" not in found  # said once


def test_a_schedule_that_ends_long_before_training() -> None:
    found = heard("training.schedule={kind: cosine, every: 60}")
    assert "few are left that learn: from update 61 of 200 on" in found


@pytest.mark.slow
def test_of_several_outputs_rates_are_watched() -> None:
    nets = "network={unet: {widths: [8, 12, 16], norm: batch, function: elu, supervise: 1}}"
    assert "all filters are where they were" in heard(nets, "training.learning_rate=1e-9")
    assert heard(nets, "training.learning_rate=0.003") == ""


HEADS = "network={unet: {widths: [8, 16], norm: batch, function: elu, heads: {noise: 1, none: 1}}}"
TRUE, NOISE = "v.h5:labels", "v.h5:noise"


@pytest.mark.parametrize("weight", [0.25, 0.0])
def test_of_several_outputs_each_loss_is_watched(
    volume: tuple[np.ndarray, np.ndarray], weight: float
) -> None:
    """One learns what it sees, one noise, and one has no labels; what weighs 0 is not said to learn nothing."""
    with h5py.File("v.h5", "r+") as file:
        file["noise"] = np.random.default_rng(0).random(volume[1].shape).astype(np.float32)
        file["none"] = np.zeros(volume[1].shape, np.float32)
    sources = f"{{output: {TRUE!r}, noise: {NOISE!r}, none: 'v.h5:none'}}"
    own = "loss: square, target: {kind: image}"
    found = heard(
        HEADS,
        f"data.train=[{{image: 'v.h5:raw', labels: {sources}}}]",
        f"training.outputs={{noise: {{{own}, weight: {weight}}}, none: {{{own}}}}}",
    )
    assert ("the loss of output 'noise' is 0.08" in found) == bool(weight)
    assert "all targets of output 'none' were 0: the labels hold nothing" in found
    assert "look at training.outputs.none.target and the labels" in found
    assert "output 'output'" not in found


def test_labels_without_boundary(volume: tuple[np.ndarray, np.ndarray]) -> None:
    raw, labels = volume
    write(raw, np.ones_like(labels))
    assert "hold no boundary to learn" in heard()


def test_labels_of_another_image(volume: tuple[np.ndarray, np.ndarray]) -> None:
    raw, labels = volume
    noise = np.random.default_rng(0).permutation(raw.ravel()).reshape(raw.shape)
    write(noise, labels)
    assert "nothing was learned of the image" in heard()


def test_labels_of_another_place(volume: tuple[np.ndarray, np.ndarray]) -> None:
    """Each patch fits somewhere, but all of them nowhere."""
    raw, labels = volume
    write(raw, labels[::-1, ::-1, ::-1])
    found = heard("training.loss=bce_dice")
    assert "fitted the image no better where they lie than elsewhere" in found
    assert "shifted" not in found


def test_voxels_of_labels_that_are_shuffled(volume: tuple[np.ndarray, np.ndarray]) -> None:
    raw, labels = volume
    write(raw, np.random.default_rng(0).permutation(labels.ravel()).reshape(labels.shape))
    assert "hold no boundary to learn" in heard()


def test_worse_than_always_no() -> None:
    """Above the loss of the shares of the classes, and it stays there."""
    rate = ("training.optimizer=sgd", "training.learning_rate=1")
    assert "where the shares of the classes alone give" in heard(WITHOUT_NORM, *rate)


@pytest.mark.parametrize("shift", [(0, 0, 4), (0, 4, 4)])
def test_labels_that_are_shifted(
    volume: tuple[np.ndarray, np.ndarray], shift: tuple[int, int, int]
) -> None:
    raw, labels = volume
    write(raw, np.roll(labels, shift, (0, 1, 2)))
    found: Any = heard("augment.swaps=none")
    assert "fitted the image better when shifted by about" in found
    named = [int(it) for it in found.split("shifted by about [")[1].split("]")[0].split(",")]
    assert max(abs(a - b) for a, b in zip(named, shift, strict=True)) <= 1
