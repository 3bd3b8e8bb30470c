"""Weighted classes shift logits by what is known of them; predictions and scores undo it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from small_run import znnpy

from znnpy import load_network
from znnpy.config import load_config
from znnpy.config.models import AffinityTarget, BoundaryTarget
from znnpy.data.sampling.sample import Patch
from znnpy.errors import RunError
from znnpy.interactive.run import open_run
from znnpy.network import trained_network
from znnpy.train.calibration import (
    found_shifts,
    kept_shifts,
    recalibrated,
    recalibrated_outputs,
    remark,
)
from znnpy.train.progress import Quiet
from znnpy.train.session import train
from znnpy.train.start import read_run

CONFIG = """
network: {layers: [{conv: {channels: 1, size: 1, function: logistic}}]}
data:
  train: [{image: "v.h5:raw", labels: "v.h5:labels"}]
  test: [{image: "v.h5:raw", labels: "v.h5:labels"}]
  target: {kind: mask}
training:
  iterations: 300
  batch: 4
  output_shape: [4, 24, 24]
  optimizer: adam
  learning_rate: 0.1
  schedule: poly
  rebalance: patch
  conv: direct
run: {threads: 1, checkpoint: {every: 1000}}
"""
SOFTMAX = (
    "network={layers: [{conv: {channels: 2, size: 1, function: softmax}}]}",
    "data.target={kind: labels, first: 0}",
    "training.loss=softmax",
)
WEIGHTED = "training.loss={kind: softmax, class_weights: [1, 9]}"


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Values of three kinds, of which 2, 10 and 40 % are ones: a net of two numbers can say no more than the share."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    raw = random.integers(0, 3, (16, 48, 48)).astype(np.uint8)
    labels = random.random(raw.shape) < np.array([0.02, 0.1, 0.4])[raw]
    with h5py.File("v.h5", "w") as file:
        file["raw"], file["labels"] = raw, labels.astype(np.uint8)
    Path("c.yaml").write_text(CONFIG)
    return labels


def settings(*sets: str) -> list[str]:
    return [word for it in sets for word in ("--set", it)]


@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("training.rebalance=volume",),
        SOFTMAX,
        (*SOFTMAX, "training.rebalance=none", WEIGHTED),
    ],
    ids=["patch", "volume", "softmax", "class_weights"],
)
def test_calibrated_scores_are_no_worse_than_always_no(
    volume: np.ndarray, sets: tuple[str, ...]
) -> None:
    assert "predictions and scores undo that" in znnpy("train", "c.yaml", *settings(*sets)).stderr
    share = float(volume.mean())
    shifts = json.loads(Path("run/calibration.json").read_text())
    (found,) = shifts.values()
    wanted = np.log(9) if WEIGHTED in sets else np.log((1 - share) / share)
    assert found[-1] - (found[0] if len(found) > 1 else 0) == pytest.approx(wanted, rel=0.02)
    with h5py.File("v.h5") as file:
        raw = np.array(file["raw"])
    undone = open_run("run").predict(raw, quiet=True)[-1]
    shifted = open_run("run", overrides=["inference.recalibrate=false"]).predict(raw, quiet=True)
    assert np.mean((undone > 0.5) != volume) <= share
    assert np.mean((shifted[-1] > 0.5) != volume) > 1.3 * share
    assert undone.mean() == pytest.approx(share, rel=0.15)
    assert shifted[-1].mean() > 2 * share
    # The scores at the end of training are those of what is predicted.
    (told,) = json.loads(Path("run/result.json").read_text())["evaluations"]
    error = {name: it["voxel_error"] for name, it in told["scores"].items()}
    assert error["network"] == pytest.approx(np.mean((undone > 0.5) != volume), abs=1e-3)
    assert error["network"] <= error["predicting the mean"]


def drawn(rows: list[tuple[Any, Any]]) -> Any:
    """Patches of targets and weights by number, over and over."""
    arrays = [[np.array(it, np.float32)[:, None, None] for it in row] for row in rows]

    def sample(index: int) -> Patch:
        target, weight = arrays[index % len(rows)]
        return Patch({}, {"layer1": target}, {"layer1": weight})

    return SimpleNamespace(sample=sample)


def shifts(source: Any, *sets: str) -> Any:
    config = load_config("c.yaml", sets)
    network = trained_network(config)
    (output,) = network.outputs
    renamed = SimpleNamespace(
        sample=lambda i: Patch({}, *({output.name: it["layer1"]} for it in (
            source.sample(i).targets, source.sample(i).weights)))
    )  # fmt: skip
    found = found_shifts(config, network, renamed)
    return found.get(output.name, found)


def test_the_shift_is_where_the_weighted_loss_is_least() -> None:
    """By SciPy, of a logit that all voxels share."""
    random, rows = np.random.default_rng(0), []
    for share in (0.1, 0.3, 0.2):
        target = (random.random((1, 400)) < share).astype(float)
        weight = np.where(target > 0.5, 0.5 / target.mean(), 0.5 / (1 - target.mean()))
        target[:, :20], weight[:, :20] = 1, 0  # masked
        rows.append((target, weight))
    t, w = (np.concatenate([row[n].ravel() for row in rows]) for n in (0, 1))

    def least(weight: np.ndarray) -> float:
        loss = lambda y: np.sum(weight * (np.logaddexp(0, y) - t * y))  # noqa: E731
        return float(minimize_scalar(loss, (-1, 1)).x)

    whole = [rows[n % 3] for n in range(3 * 21 + 1)]
    assert len(whole) == 64  # as many as are looked at, nearly three alike
    (found,) = shifts(drawn(rows))
    assert found == pytest.approx(least(w) - least((w > 0) * 1.0), abs=0.02)


ONES, ALIKE = [[0, 1, 0, 0]], [[1, 3, 1, 1]]
GOOD = [(ONES, ALIKE)]


@pytest.mark.parametrize(
    ("rows", "sets"),
    [
        (GOOD, ("training.loss=focal",)),
        (GOOD, ("training.loss=bce_dice",)),
        (GOOD, ("training.loss=square",)),
        (
            GOOD,
            (
                "network={layers: [{conv: {channels: 1, size: 1, function: logistic, norm: batch}}]}",
            ),
        ),
        (
            GOOD,
            (
                "network={layers: [{conv: {channels: 1, size: 1, function: logistic, bias: false}}]}",
            ),
        ),
        ([([[0, 0.5, 1, 0]], ALIKE)], ()),
        ([([[0, 0, 0, 0]], ALIKE)], ()),
        ([([[1, 1, 1, 1]], ALIKE)], ()),
        (GOOD, ("training.rebalance=none",)),
    ],
)
def test_nothing_is_known(rows: Any, sets: tuple[str, ...]) -> None:
    assert shifts(drawn(GOOD)) == pytest.approx([np.log(3)])
    assert shifts(drawn(rows), *sets) == {}


def test_classes_have_a_shift_each() -> None:
    target = np.eye(3)[:, [0, 0, 0, 1, 2, 2]]
    weight = np.array([0.5, 4.0, 2.0]) @ target * np.ones_like(target)
    weights = "training.loss={kind: softmax, class_weights: [2, 1, 3]}"
    net = "network={layers: [{conv: {channels: 3, size: 1, function: softmax}}]}"
    sets = (net, "data.target={kind: labels, first: 0}", weights)
    found = shifts(drawn([(target, weight)]), *sets)
    assert found == pytest.approx(np.log([1.0, 4.0, 6.0]))
    alone = shifts(drawn([]), *sets, "training.rebalance=none")
    assert alone == pytest.approx(np.log([2.0, 1.0, 3.0]))
    smooth = "training.loss={kind: softmax, class_weights: [2, 1, 3], label_smoothing: 0.1}"
    assert shifts(drawn([]), *sets, smooth, "training.rebalance=none") == {}
    never = "training.loss={kind: softmax, class_weights: [2, 0, 3]}"
    assert shifts(drawn([]), *sets, never, "training.rebalance=none") == {}


def test_what_is_unknown_is_said_and_plain_training_says_nothing() -> None:
    short = settings("training.iterations=2", "run.directory=other")
    said = znnpy("train", "c.yaml", *short, "--set", "training.loss=dice").stderr
    assert "it is not known by how much" in said
    assert not Path("other/calibration.json").exists()
    plain = settings("training.iterations=2", "run.directory=plain", "training.rebalance=none")
    assert "weighs classes" not in znnpy("train", "c.yaml", *plain).stderr
    assert not Path("plain/calibration.json").exists()


def said_of(shifts: dict[str, list[float]], *more: str) -> str:
    network = "network={unet: {widths: [2, 2], down: 2, heads: {lsds: 10, other: 1}}}"
    targets = "training.outputs={lsds: {target: {kind: lsd}}}"
    config = load_config("c.yaml", [network, targets, *more])
    found = remark(config, trained_network(config), shifts)
    assert found is not None
    return found


def test_of_several_outputs_those_are_named_that_stay_shifted() -> None:
    """Shape descriptors are no probabilities, and none of them."""
    both = said_of({"output": [1.0], "other": [1.0]})
    assert both.endswith("undo that (inference.recalibrate)")
    assert said_of({"output": [1.0]}).endswith(
        "but for other, of which it is not known by how much"
    )
    assert "nothing undoes that" in said_of({})
    assert "predictions keep that" in said_of({}, "inference.recalibrate=false")


class Stopped(Quiet):
    """Hears what is said."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_run_keeps_its_shifts_and_damage_is_named() -> None:
    few = ["training.iterations=3"]
    train(load_config("c.yaml", few), reporter=Quiet())
    path = Path("run/calibration.json")
    before = path.read_text()
    reporter = Stopped()
    train(load_config("c.yaml", ["training.iterations=5"]), reporter=reporter)
    assert path.read_text() == before
    assert sum("predictions and scores undo that" in it for it in reporter.notes) == 1
    saved = read_run(Path("run"), Quiet())
    (name,) = saved.shifts
    moved = saved.checkpoint.parameters[name] - saved.weights.parameters[name]
    np.testing.assert_allclose(moved, saved.shifts[name], rtol=1e-5)
    assert saved.parameters["conv1"] is saved.checkpoint.parameters["conv1"]
    assert not read_run(Path("run"), Quiet(), which=0).shifts  # first weights have learned nothing
    for damage in ('{"other": [1.0]}', f'{{"{name}": [1.0, 2.0]}}', f'{{"{name}": ["1"]}}', "[]"):
        path.write_text(damage)
        with pytest.raises(RunError, match=r"calibration\.json is damaged"):
            read_run(Path("run"), Quiet())
    undone = "inference.recalibrate=false"
    assert not read_run(Path("run"), Quiet(), [undone]).shifts
    # As the message says, it is a way on; the numbers are measured anew.
    train(load_config("c.yaml", ["training.iterations=7", undone]), reporter=Quiet())
    assert path.read_text() == before
    path.unlink()
    assert kept_shifts(Path("run"), saved.network) == {}


def test_biases_move_and_nothing_else() -> None:
    given = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    found = recalibrated(given, {"a": [0.5, -1.0]})
    np.testing.assert_array_equal(found["a"], np.array([0.5, 2.0], np.float32))
    assert found["a"].dtype == np.float32
    assert found["b"] is given["b"]
    assert (given["a"] == 1).all()


@pytest.mark.parametrize(
    ("target", "wanted", "expected"),
    [
        (BoundaryTarget(kind="boundary"), None, True),
        (BoundaryTarget(kind="boundary"), False, False),
        (AffinityTarget(kind="affinity"), None, False),
        (AffinityTarget(kind="affinity"), True, True),
    ],
)
def test_affinities_are_left_as_they_were_trained(
    target: object, wanted: bool | None, expected: bool
) -> None:
    inference, network = (
        {"recalibrate": wanted},
        load_network({"layers": [{"conv": {"channels": 3, "size": 3}}]}),
    )
    config: Any = SimpleNamespace(
        inference=SimpleNamespace(**inference), target=lambda output: target
    )
    assert bool(recalibrated_outputs(config, network)) is expected
