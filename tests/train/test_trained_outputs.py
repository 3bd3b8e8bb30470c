"""A logistic output trains, predicts and is evaluated as a linear one, by the command line."""

import json

import h5py
import numpy as np
import pytest
from small_run import write_config, znnpy


@pytest.mark.slow
def test_logistic_outputs_are_linear_ones_shown_as_probabilities(tmp_path):
    path = write_config(tmp_path, iterations=8)
    linear = path.read_text()
    logistic = linear.replace("size: [3, 2, 2]", "size: [3, 2, 2], function: logistic")
    volumes = {}
    for name, text in {"linear": linear, "logistic": logistic}.items():
        path.write_text(text.replace("directory: run", f"directory: {name}"))
        znnpy("train", path)
        for words in ([], ["--logits"]):
            out = tmp_path / f"{name}{len(words)}.h5"
            raw = f"{tmp_path / 'data.h5'}:raw"
            znnpy("predict", tmp_path / name, "--input", raw, "--output", out, *words)
            with h5py.File(out) as file:
                volumes[name, len(words)] = file["prediction"][:]
    for kind in (0, 1):
        assert np.array_equal(volumes["linear", kind], volumes["logistic", kind])
    assert volumes["logistic", 1].min() < 0
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("linear", "logistic")
    ]
    for one, other in zip(*logs, strict=True):
        assert (one.get("loss"), one.get("voxel_error")) == (
            other.get("loss"),
            other.get("voxel_error"),
        )


@pytest.mark.slow
def test_check_and_train_warn_of_outputs_that_hinder_training(tmp_path):
    path = write_config(tmp_path, iterations=1)
    given = path.read_text()
    path.write_text(given.replace("size: [3, 2, 2]", "size: [3, 2, 2], function: tanh"))
    wanted = "warning: output 'output' shows the function tanh"
    (line,) = [line for line in znnpy("check", path).stdout.splitlines() if "warning" in line]
    assert line.startswith(wanted)
    (text,) = json.loads(znnpy("check", path, "--json").stdout)["warnings"]
    assert text.endswith("it should be linear or logistic")
    done = znnpy("train", path)
    assert wanted in " ".join((done.stdout + done.stderr).split())
    path.write_text(
        given.replace(
            "channels: 1, size: [3, 2, 2]", "channels: 2, size: [3, 2, 2], function: softmax"
        )
    )
    done = znnpy("check", path, code=1)
    assert "'output' has the function softmax, which fits loss softmax" in done.stderr


ZNN = """\
nodes input
type input
size 1

edges conv1
type conv
init uniform
size 1,4,4
repeat 1,2,2
fft 0
input input
output n1

nodes n1
type transfer
function tanh
function_args 1.7159,0.6666
size 3

edges pool1
type max_filter
size 1,2,2
stride 1,2,2
input n1
output n2

nodes n2
type sum
function rectify_linear
size 3

edges conv2
type conv
init msra
size 3,2,2
input n2
output output

nodes output
type transfer
function logistics
size 1
"""


@pytest.mark.slow
def test_a_znn_file_trains_and_goes_on_without_the_file(tmp_path):
    path = write_config(tmp_path, iterations=4)
    text = path.read_text()
    (tmp_path / "net.znn").write_text(ZNN)
    text = text[text.index("data:") :]
    path.write_text("network: {znn: net.znn}\n" + text)
    assert "warning" not in znnpy("train", path).stderr
    checkpoint = max((tmp_path / "run" / "checkpoints").glob("*.npz"))
    with np.load(checkpoint) as file:
        filters = next(a for a in map(file.get, file.files) if a.shape == (3, 1, 1, 4, 4))
    blocks = filters.reshape(3, 1, 1, 2, 2, 2, 2)
    assert np.array_equal(blocks, np.broadcast_to(blocks[..., :1, :, :1], blocks.shape))
    (tmp_path / "net.znn").unlink()
    raw, out = f"{tmp_path / 'data.h5'}:raw", tmp_path / "p.h5"
    znnpy("predict", tmp_path / "run", "--input", raw, "--output", out)
    with h5py.File(out) as file:
        values = file["prediction"][:]
    assert 0 < values.min() < values.max() < 1
