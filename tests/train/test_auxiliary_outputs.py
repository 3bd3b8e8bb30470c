"""A second output that learns something else beside the first, as local shape descriptors beside affinities."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_run import write_config, znnpy

from znnpy.config import load_config
from znnpy.data.config_volumes import make_targets, open_scene
from znnpy.data.sampling.shape_descriptors import LsdTarget, descriptors
from znnpy.data.sampling.targets import AffinityTarget
from znnpy.errors import ConfigError
from znnpy.evaluation.volume import observe
from znnpy.infer.config_model import Weights
from znnpy.network import trained_network

CONFIG = """
network:
  unet: {widths: [4, 8], down: 2, outputs: 3, heads: {lsds: 10}}
data:
  train: [{image: data.h5:raw, labels: data.h5:labels}]
  validation: [{image: data.h5:raw, labels: data.h5:labels}]
  target: affinity
training:
  iterations: 12
  output_shape: [4, 8, 8]
  outputs: {lsds: {weight: 0.5, target: {kind: lsd, sigma: [1, 2, 2]}}}
  optimizer: adam
  validation: {every: 6, score: average_precision}
inference: {window: [8, 16, 16]}
run: {directory: run, threads: 2, log_every: 1}
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    write_config(folder)
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace(old, new))
    return path


def test_each_output_has_its_target(tmp_path: Path) -> None:
    config = load_config(written(tmp_path))
    network = trained_network(config)
    made = make_targets(config, network)
    assert made == {"output": AffinityTarget(), "lsds": LsdTarget((1.0, 2.0, 2.0))}
    scene = open_scene(config.data.train[0], config.data, network)
    seen = observe(Weights(config, network, None, {}), scene, predicted=False)
    scene.close()
    with h5py.File(tmp_path / "data.h5") as file:
        wanted = descriptors(file["labels"][()], (1.0, 2.0, 2.0))
    np.testing.assert_allclose(seen.known["lsds"].target, wanted, atol=1e-6)
    assert seen.known["output"].target.shape[0] == 3


def test_trained_evaluated_and_predicted(tmp_path: Path) -> None:
    znnpy("train", "--quiet", written(tmp_path))
    run, image = tmp_path / "run", f"{tmp_path / 'data.h5'}:raw"
    found = json.loads((run / "result.json").read_text())["evaluations"]
    scores = {it["output"]: it["scores"]["network"] for it in found}
    assert scores["output"]["average_precision"] > 0
    assert scores["lsds"]["squared_error"] < 0.3
    words = ["predict", run, "--input", image]
    for node, channels in (("output", 3), ("lsds", 10)):
        out = tmp_path / f"{node}.h5"
        znnpy(*words, "--node", node, "--output", out)
        with h5py.File(out) as file:
            assert file["prediction"].shape[0] == channels
            assert ("offsets" in file["prediction"].attrs) == (node == "output")
    said = znnpy(
        *words, "--node", "lsds", "--output", tmp_path / "x.h5", "--augment", "flips", code=1
    )
    assert "flips change what affinities and shape descriptors mean" in said.stderr
    znnpy("segment", f"{tmp_path / 'output.h5'}:prediction", "--output", tmp_path / "objects.h5")
    assert znnpy("view", run, "--output", tmp_path / "run.png").returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lsds: 10", "lsds: 9", r"training.outputs.lsds.target: output 'lsds' has 9 .* needs 10$"),
        (
            ", target: {kind: lsd, sigma: [1, 2, 2]}",
            "",
            r"'lsds' .* needs 3; training.outputs.lsds.target gives it",
        ),
        ("kind: lsd, ", "kind: affinity, ", "sigma"),
        ("lsds: 10", "output: 10", "begins with no input, output"),
        ("sigma: [1, 2, 2]", "sigma: 1000", "must be at most 64 voxels; found 1000"),
        ("  optimizer", "  loss: softmax\n  optimizer", "softmax lets one channel of a voxel win"),
    ],
)
def test_refusals(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = written(tmp_path, old, new)

    def targets() -> None:
        config = load_config(path)
        make_targets(config, trained_network(config))

    with pytest.raises(ConfigError, match=words):
        targets()
