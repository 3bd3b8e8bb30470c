"""The window of `normalize: ct` beside NumPy; a run keeps it, and all commands use it."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from small_run import write_config, znnpy

from znnpy.config import load_config
from znnpy.config.normalize_section import ClipNormalize
from znnpy.errors import ZnnpyError
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train
from znnpy.train.survey import survey

CT = "data.normalize=ct"


def second(folder: Path) -> None:
    """A volume of another type, with labels of a part of it, a mask, and values that are not finite."""
    random = np.random.default_rng(5)
    raw = random.normal(100, 30, (14, 22, 22)).astype(np.float32)
    raw[4, 10, 10] = np.nan
    labels = np.ones((12, 20, 20), np.uint8)
    labels[:, :, ::3] = 0
    mask = np.ones(labels.shape, np.uint8)
    mask[:, :9] = 0
    with h5py.File(folder / "second.h5", "w") as file:
        for name, array, first in (("raw", raw, 0), ("labels", labels, 1), ("mask", mask, 1)):
            file[name] = array
            file[name].attrs["resolution"] = (1, 1, 1)
            file[name].attrs["offset"] = (first, first, first)


def both(folder: Path) -> str:
    first = f"{{image: {folder}/data.h5:raw, labels: {folder}/data.h5:labels}}"
    keys = {"image": "raw", "labels": "labels", "mask": "mask"}
    names = ", ".join(f"{key}: {folder}/second.h5:{name}" for key, name in keys.items())
    return f"data.train=[{first}, {{{names}}}]"


def labelled(folder: Path) -> np.ndarray:
    with h5py.File(folder / "data.h5") as file:
        found = file["raw"][()][file["labels"][()] != 0].astype(np.float64)
    with h5py.File(folder / "second.h5") as file:
        inner = file["raw"][1:13, 1:21, 1:21]
        more = inner[(file["labels"][()] != 0) & (file["mask"][()] != 0)]
    return np.concatenate([found, more[np.isfinite(more)]])


def test_a_run_keeps_the_window_of_labelled_voxels(tmp_path: Path) -> None:
    path = write_config(tmp_path, iterations=4)
    second(tmp_path)
    settings = [CT, both(tmp_path), "data.replace_nonfinite=true", "training.validation.every=4"]
    train(load_config(path, settings), reporter=Quiet())
    normalize = load_config(tmp_path / "run" / "config.yaml").data.normalize
    assert isinstance(normalize, ClipNormalize)
    values = labelled(tmp_path)
    found = [normalize.low, normalize.high, normalize.mean, normalize.deviation]
    wanted = [*np.percentile(values, (0.5, 99.5)), values.mean(), values.std()]
    np.testing.assert_allclose(np.array(found)[:, 0], wanted, rtol=1e-9)
    # The same command goes on with the run's numbers, whatever the volumes hold by then.
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["raw"][0] = 255
    train(load_config(path, [*settings, "training.iterations=6"]), reporter=Quiet())
    assert load_config(tmp_path / "run" / "config.yaml").data.normalize == normalize
    run, given = tmp_path / "run", f"{tmp_path}/data.h5:raw"
    znnpy("predict", run, "--input", given, "--output", tmp_path / "p.h5")
    assert "loss" in znnpy("evaluate", run).stdout


def test_it_is_clip_with_the_same_numbers(tmp_path: Path) -> None:
    path = write_config(tmp_path, iterations=4)
    train(load_config(path, [CT]), reporter=Quiet())
    run = tmp_path / "run" / "config.yaml"
    given = load_config(run).data.normalize.model_dump()
    log = (tmp_path / "run" / "log.jsonl").read_text()
    clip = f"data.normalize={json.dumps(given)}"
    train(load_config(path, [clip, f"run.directory={tmp_path}/again"]), reporter=Quiet())
    losses = [
        [json.loads(line).get("loss") for line in text.splitlines()]
        for text in (log, (tmp_path / "again" / "log.jsonl").read_text())
    ]
    assert losses[0] == losses[1]


def test_check_reads_no_labels_for_it(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path), [CT])
    assert survey(config, trained_network(config))[0]["highest"] > 100


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("labels", "all labels are 0"),
        ("raw", "in channel 0 all are 7; take clip"),
    ],
)
def test_no_window_is_an_error_that_leaves_no_run(tmp_path: Path, change: str, words: str) -> None:
    path = write_config(tmp_path)
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file[change][...] = 0 if change == "labels" else 7
    with pytest.raises(ZnnpyError, match=words):
        train(load_config(path, [CT]), reporter=Quiet())
    assert not (tmp_path / "run").exists()


def test_images_are_no_labels(tmp_path: Path) -> None:
    settings = [CT, "data.target=image", "training.loss=square", "training.rebalance=none"]
    config = load_config(write_config(tmp_path), settings)
    with pytest.raises(
        ZnnpyError, match=r"data\.normalize: ct takes labelled voxels, and target image"
    ):
        train(config, reporter=Quiet())


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        (
            "{kind: percentiles, low: 99, high: 1}",
            "data.normalize.low: must be below high, which is 1",
        ),
        ("{kind: percentiles, low: -1}", "data.normalize.low"),
        ("{kind: clip, low: 2, high: 2}", "data.normalize.low: must be below high, which is 2"),
        (
            "{kind: clip, low: [1, 2], high: [3, 4, 5]}",
            "data.normalize.low: has 2 numbers, and high 3",
        ),
        ("{kind: range, per: plane}", "data.normalize.per"),
        ("{kind: ct, low: 3}", "data.normalize.low"),
        ("percentile_range", "did you mean 'percentiles'"),
    ],
)
def test_malformed_normalisations_are_named(tmp_path: Path, normalize: str, words: str) -> None:
    with pytest.raises(ZnnpyError) as refused:
        load_config(write_config(tmp_path), [f"data.normalize={normalize}"])
    assert words in str(refused.value)
