"""Deep supervision: coarser outputs are trained on the lattice of their voxels, and predict nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from called import status_of

from znnpy import Hardware, Model, Training
from znnpy.config import config_from, load_config
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.errors import ConfigError, ZnnpyError
from znnpy.geometry.finest_outputs import finest
from znnpy.interactive.run import open_run
from znnpy.network import trained_network, training_losses
from znnpy.train.patch_sources import make_sampler
from znnpy.train.session import train

NETWORK = """
network:
  nodes:
    raw: {kind: input, channels: 1}
    fine: {kind: transfer, channels: 3, function: tanh}
    pooled: {kind: sum, channels: 3}
    coarse: {kind: transfer, channels: 4, function: tanh}
    side: {kind: transfer, channels: 1}
    grown: {kind: sum, channels: 4}
    both: {kind: concat, channels: 7}
    out: {kind: transfer, channels: 1}
  edges:
    c1: {kind: conv, from: raw, to: fine, size: [1, 3, 3], padding: same}
    down: {kind: max_pool, from: fine, to: pooled, size: [1, 2, 2], stride: [1, 2, 2]}
    c2: {kind: conv, from: pooled, to: coarse, size: [1, 3, 3], padding: same}
    c3: {kind: conv, from: coarse, to: side, size: 1}
    up: {kind: upsample, from: coarse, to: grown, factor: [1, 2, 2]}
    skip: {kind: identity, from: fine, to: both}
    grow: {kind: identity, from: grown, to: both}
    c4: {kind: conv, from: both, to: out, size: [1, 3, 3], padding: same}
"""
CONFIG = (
    NETWORK
    + """
data:
  train: [&v {image: data.h5:raw, labels: data.h5:labels}]
  validation: [*v]
  target: mask
training: {iterations: 3, output_shape: [2, 8, 8], conv: direct, loss: bce_dice,
           outputs: {side: {weight: 0.25}}, learning_rate: 0.01, validation: {every: 1, patches: 2}}
augment: {enabled: false}
run: {directory: run, threads: 2, log_every: 1}
"""
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config with its volume, as the current directory."""
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(6, 24, 24)).astype(np.float32)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["raw"], file["labels"] = raw, (raw > 0.2).astype(np.uint8)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def znnpy(*words: str) -> None:
    """A command that must succeed."""
    assert status_of(*words) == 0, words


def test_the_loss_is_the_weighted_sum_over_outputs(folder: Path) -> None:
    config = load_config("config.yaml")
    network = trained_network(config)
    rng = np.random.default_rng(1)
    found: dict[Any, Any] = {}
    for factors in ({"side": 1.0, "out": 0.0}, {"side": 0.0, "out": 1.0}, {"side": 0.25}):
        for precision in ("float32", "float64"):
            with Model(network, (2, 8, 8), batch=2, threads=2, conv="direct", seed=1, loss="bce_dice",
                       training=Training(factors=factors),
                       hardware=Hardware(precision=precision)) as model:  # fmt: skip
                shapes = model.geometry.output_shapes
                assert shapes == {"side": (2, 4, 4), "out": (2, 8, 8)}
                if not found:
                    x = rng.standard_normal((2, 1, 2, 8, 8))
                    t = {n: (rng.random((2, 1, *s)) < 0.4) * 1.0 for n, s in shapes.items()}
                found[factors["side"], precision] = model.loss_and_gradients(x, t)
    for precision in ("float32", "float64"):
        side, out, both = (found[s, precision] for s in (1.0, 0.0, 0.25))
        assert both[0] == pytest.approx(0.25 * side[0] + out[0], rel=1e-5)
        for name, gradient in both[1].items():
            wanted = 0.25 * side[1][name] + out[1][name]
            np.testing.assert_allclose(gradient, wanted, atol=1e-6, rtol=1e-5)
    for name, gradient in found[0.25, "float64"][1].items():
        np.testing.assert_allclose(found[0.25, "float32"][1][name], gradient, atol=1e-6, rtol=1e-4)


def test_factors_of_no_output_are_refused(folder: Path) -> None:
    network = trained_network(load_config("config.yaml"))
    with pytest.raises(ZnnpyError, match=r"no output 'sides'; this network has \['side', 'out'\]"):
        Model(network, (2, 8, 8), training=Training(factors={"sides": 1}))
    with pytest.raises(ZnnpyError, match=r"training\.factors\.side: "):
        Model(network, (2, 8, 8), training=Training(factors={"side": -1}))


@pytest.mark.parametrize("flips", [False, True])
def test_targets_of_coarser_outputs_lie_on_their_lattice(folder: Path, flips: bool) -> None:
    """Labels that number the voxels say which each target voxel is of."""
    text = CONFIG.replace("loss: bce_dice", "loss: square")
    (folder / "config.yaml").write_text(text)
    config = load_config(
        "config.yaml", [f"augment.enabled={str(flips).lower()}", "data.target=image"]
    )
    number = np.arange(6 * 24 * 24, dtype=np.float32).reshape(6, 24, 24)
    volume = ArrayVolume(number[None], "numbers")
    scene = Scene({"raw": volume}, {"side": volume, "out": volume})
    sampler = make_sampler(config, trained_network(config), [scene], training=True)
    norm = sampler.normalisations[0]["raw"]
    for index in range(8):
        patch = sampler.sample(index)
        assert patch.targets["side"].shape == (1, 2, 4, 4)
        seen = norm.apply(patch.targets["out"].copy())
        np.testing.assert_allclose(seen, patch.images["raw"], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(patch.targets["side"], patch.targets["out"][..., ::2, ::2])


@pytest.mark.slow
def test_runs_train_validate_go_on_and_predict_the_finest_output(folder: Path) -> None:
    znnpy("train", "config.yaml")
    records = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in records if "loss" in r]
    losses += [r["validation"]["loss"] for r in records if "validation" in r]
    assert len(losses) == 6
    assert np.isfinite(losses).all()
    scores = json.loads(Path("run/result.json").read_text())
    assert "out" in json.dumps(scores)
    assert "side" not in json.dumps(scores)
    znnpy("evaluate", "run")
    znnpy("view", "run", "--output", "pictures")
    znnpy("check", "config.yaml")
    znnpy("predict", "run", "--input", "data.h5:raw", "--output", "out.h5")
    with h5py.File("out.h5") as file:
        assert file["prediction"].shape[0] == 1
        assert np.isfinite(file["prediction"][...]).all()


def test_validation_is_the_loss_that_is_trained(folder: Path) -> None:
    """One patch, as large as the volume: what validates is what is trained on."""
    given = ["output_shape=[6, 24, 24]", "learning_rate=1e-30", "validation.patches=1"]
    train(load_config("config.yaml", [f"training.{key}" for key in given]))
    records = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in records if "loss" in r]
    validated = [r["validation"]["loss"] for r in records if "validation" in r]
    np.testing.assert_allclose(validated, losses[0], rtol=1e-5)
    shares = [r["voxel_error"] for r in records if "voxel_error" in r]
    validated = [r["validation"]["voxel_error"] for r in records if "validation" in r]
    np.testing.assert_allclose(validated, shares[0], rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_error_is_one_share_of_all_outputs(folder: Path, precision: Any) -> None:
    network = trained_network(load_config("config.yaml"))
    rng, x, errors = np.random.default_rng(1), None, list[float]()
    for factors in (
        {"side": 1.0, "out": 0.0},
        {"side": 0.0, "out": 2.0},
        {"side": 3.0, "out": 2.0},
    ):
        with Model(network, (2, 8, 8), threads=2, conv="direct", seed=1, loss="bce_dice",
                   training=Training(factors=factors), hardware=Hardware(precision=precision)) as model:  # fmt: skip
            if x is None:
                x = rng.standard_normal((1, 1, 2, 8, 8))
                t = {n: np.ones((1, 1, *s)) for n, s in model.geometry.output_shapes.items()}
            errors.append(model.result(model.submit(x, t, learning_rate=1e-30)).error)
    side, out, both = errors
    assert min(side, out) > 0
    assert max(side, out) <= 1
    assert both == pytest.approx((3 * side + 2 * out) / 5, rel=1e-5)


def test_the_finest_network_is_the_rest_without_coarser_outputs(folder: Path) -> None:
    network = trained_network(load_config("config.yaml"))
    found = finest(network)
    assert [node.name for node in found.outputs] == ["out"]
    assert {edge.name for edge in network.edges} - {edge.name for edge in found.edges} == {"c3"}
    assert finest(found) is found


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ("{sides: {weight: 1}}", "no such output; it has side, out"),
        ("{side: {weight: 0}, out: {weight: 0}}", "every weight is 0"),
    ],
)
def test_outputs_that_are_none_are_refused_with_their_line(
    folder: Path, outputs: str, words: str
) -> None:
    (folder / "config.yaml").write_text(CONFIG.replace("{side: {weight: 0.25}}", outputs))
    with pytest.raises(ConfigError, match=rf"config.yaml:\d+: training.outputs.*{words}"):
        training_losses(load_config("config.yaml"), trained_network(load_config("config.yaml")))


def test_weights_are_not_negative(folder: Path) -> None:
    import yaml

    data = yaml.safe_load(CONFIG)
    data["training"]["outputs"]["side"]["weight"] = -1
    with pytest.raises(ConfigError, match=r"training\.outputs\.side\.weight"):
        config_from(data)


def test_a_coarser_output_has_a_loss_of_its_own(folder: Path) -> None:
    """One patch, as large as the volume: the terms follow from values before training and every second label."""
    given = ["output_shape=[6, 24, 24]", "learning_rate=1e-30", "validation.patches=1"]
    own = "outputs={side: {weight: 0.25, loss: square}, out: {loss: binomial_cross_entropy}}"
    config = load_config("config.yaml", [f"training.{key}" for key in (*given, own)])
    train(config)
    records = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    run = open_run("run")
    with h5py.File("data.h5") as file:
        raw, labels = file["raw"][()], file["labels"][()].astype(float)
    raw = (raw - raw.mean()) / raw.std()
    losses = {"side": "square", "out": "square"}  # which take values as they are
    with Model(
        trained_network(run.config), (6, 24, 24), loss=losses, threads=1, conv="direct"
    ) as model:
        model.set_parameters(run.parameters)
        found: Any = model.forward(raw[None, None])
    cross = np.logaddexp(0, found["out"][0, 0]) - labels * found["out"][0, 0]
    wanted = {
        "loss.side": 0.25 * np.mean((found["side"][0, 0] - labels[:, ::2, ::2]) ** 2),
        "loss.out": cross.mean(),
    }
    for record in (records[0], records[-1]["validation"]):
        for key, loss in wanted.items():
            assert record[key] == pytest.approx(loss, rel=1e-4)
        assert record["loss"] == pytest.approx(sum(wanted.values()), rel=1e-4)
