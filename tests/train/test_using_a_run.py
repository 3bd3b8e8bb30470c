"""What is done with a finished run: `predict` and `evaluate` as their users call them."""

import json

import h5py
import numpy as np
import pytest
from small_run import write_config, znnpy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    znnpy("train", write_config(folder, iterations=40))
    return folder


def predicted(path, dataset="prediction"):
    with h5py.File(path) as file:
        return file[dataset][:], dict(file[dataset].attrs)


def test_predict_by_blocks_equals_one_piece(folder, tmp_path):
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    znnpy(*words, tmp_path / "one.h5")
    znnpy(*words, f"{tmp_path / 'blocks.h5'}:volumes/p", "--block", "5,7,6", "--threads", 1)
    one, attributes = predicted(tmp_path / "one.h5")
    blocks, _ = predicted(tmp_path / "blocks.h5", "volumes/p")
    assert one.dtype == np.float32
    assert one.shape == (1, 18, 20, 20)
    assert np.array_equal(one, blocks)
    assert one.min() >= 0
    assert one.max() <= 1
    assert attributes["iteration"] == 40
    assert attributes["offset"].tolist() == [1, 2, 2]
    znnpy(*words, tmp_path / "mirror.h5", "--border", "mirror", "--uint8")
    mirrored, _ = predicted(tmp_path / "mirror.h5")
    assert mirrored.shape == (1, 20, 25, 25)
    inner = mirrored[:, 1:19, 2:22, 2:22]
    assert np.array_equal(inner, np.rint(one * 255).astype(np.uint8))


def test_predict_refuses_without_leaving_anything(folder, tmp_path):
    words = ["predict", folder / "run", "--input", f"{folder / 'data.h5'}:raw", "--output"]
    znnpy(*words, tmp_path / "there.h5")
    before = (tmp_path / "there.h5").read_bytes()
    done = znnpy(*words, tmp_path / "there.h5", code=1)
    assert "exists already" in done.stderr
    znnpy(*words, tmp_path / "block.h5", "--block", "0,1,2", code=2)
    done = znnpy(*words[:3], f"{folder / 'data.h5'}:labelz", "--output", tmp_path / "x.h5", code=1)
    assert "labelz" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["there.h5"]
    assert (tmp_path / "there.h5").read_bytes() == before


def test_evaluate_repeats_what_training_found(folder):
    done = znnpy("evaluate", folder / "run", "--json")
    found = json.loads(done.stdout)
    assert found == json.loads((folder / "run/result.json").read_text())
    network = found["evaluations"][0]["scores"]["network"]
    assert {"voxel_error", "average_precision", "adapted_rand_error", "voi"} <= set(network)


def test_evaluate_on_a_volume_given_in_the_line(folder):
    data = folder / "data.h5"
    words = ["evaluate", folder / "run", "--volume", f"{data}:raw", "--labels", f"{data}:labels"]
    done = znnpy(*words, "--json", "--threshold", 0.3, "--set", "data.border=mirror")
    scores = json.loads(done.stdout)["evaluations"][0]["scores"]
    assert scores["network"]["threshold"] == 0.3
    assert "average precision" in znnpy(*words).stdout
    assert "go together" in znnpy(*words[:4], code=2).stderr
