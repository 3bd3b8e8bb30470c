"""Images with a label each, from files to accuracy, as a user trains on them."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from image_files import squares, write_cifar, write_idx

from znnpy.cli import main
from znnpy.config import load_config
from znnpy.config.data_section import DataSection, Source
from znnpy.data.config_volumes import open_source
from znnpy.errors import ZnnpyError
from znnpy.network import trained_network
from znnpy.train.progress import Quiet
from znnpy.train.session import train
from znnpy.train.survey import survey

CONFIG = """
network:
  input: {channels}
  layers:
    - conv: {{channels: 8, size: [1, 3, 3], padding: [0, 1, 1], function: relu}}
    - max_pool: {{size: [1, 3, 3], stride: [1, 2, 2], padding: [0, [0, 1], [0, 1]]}}
    - conv: {{channels: 4, size: [1, {rest}, {rest}]}}
data:
  train: [{train}]
  validation: [{test}]
  target: labels
  normalize: {{kind: fixed, mean: 100, deviation: 60}}
augment: {{enabled: false}}
training:
  iterations: 60
  batch: 10
  order: shuffled
  output_shape: 1
  loss: softmax
  learning_rate: 0.02
  schedule: {{kind: inv, gamma: 0.01}}
  conv: direct
  validation: {{every: 30, patches: 30}}
inference: {{window: [15, 1, 1], overlap: 0}}
run: {{directory: run, threads: 1, log_every: 10}}
"""


def write(folder: Path, *pairs: dict[str, str], size: int = 8, channels: int = 1) -> Path:
    train, test = (json.dumps(pair) for pair in pairs)
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(train=train, test=test, rest=size // 2, channels=channels))
    return path


def idx(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """200 images to train on and 30 to test, as MNIST comes."""
    pairs = []
    for name, count, seed in (("train", 200, 0), ("t10k", 30, 1)):
        images, labels = squares(count, 8, seed)
        write_idx(folder / f"{name}-images.gz", images)
        write_idx(folder / f"{name}-labels.gz", labels)
        pairs.append({"image": f"{name}-images.gz", "labels": f"{name}-labels.gz"})
    return pairs[0], pairs[1]


def accuracy(folder: Path) -> float:
    (evaluation,) = json.loads((folder / "run/result.json").read_text())["evaluations"]
    assert set(evaluation["scores"]) == {"network", "predicting the mean"}
    assert evaluation["scores"]["predicting the mean"]["accuracy"] < 0.5
    return float(evaluation["scores"]["network"]["accuracy"])


def trained(path: Path, *settings: str) -> float:
    assert train(load_config(path, settings), reporter=Quiet()).finished
    return accuracy(path.parent)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that succeeds prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert not end.value.code
    return capsys.readouterr().out


def test_from_idx_files_to_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, *idx(tmp_path))
    (volume, *_) = survey(load_config(path), trained_network(load_config(path)))
    assert (volume["shape"], volume["positions"]) == ((1, 200, 8, 8), 200)
    shown = said(capsys, "train", path)
    assert "accuracy" in shown
    assert "picture" not in shown
    assert accuracy(tmp_path) == 1
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    validations = [record["validation"] for record in log if "validation" in record]
    assert [set(record) for record in validations] == [{"loss", "voxel_error", "accuracy"}] * 2
    assert validations[-1]["accuracy"] == 1
    assert "accuracy" in said(capsys, "evaluate", tmp_path / "run")
    output, images = tmp_path / "classes.h5", tmp_path / "t10k-images.gz"
    said(capsys, "predict", tmp_path / "run", "--input", images, "--output", output)
    with h5py.File(output) as file:
        found = file["prediction"][:]
    assert found.shape == (4, 30, 1, 1)
    assert np.array_equal(found[:, :, 0, 0].argmax(0), squares(30, 8, 1)[1])


def test_the_same_images_in_any_format_give_the_same_bits(tmp_path: Path) -> None:
    """HDF5 and npz, with the channel where it may stand."""
    idx(tmp_path)
    data, forms = {}, {}
    for name, count, seed in (("train", 200, 0), ("test", 30, 1)):
        data[f"x_{name}"], data[f"y_{name}"] = squares(count, 8, seed)
    np.savez_compressed(tmp_path / "a.npz", **data)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for key, array in data.items():
            file[key] = array if key[0] == "y" else array[:, None]
    for form in ("npz", "h5"):
        forms[form] = [
            {"image": f"a.{form}:x_{name}", "labels": f"a.{form}:y_{name}"}
            for name in ("train", "test")
        ]
    found = []
    first = idx(tmp_path)
    for number, (pairs, axes) in enumerate(
        [(first, "czyx"), (forms["npz"], "zyxc"), (forms["h5"], "zcyx")]
    ):
        path = write(tmp_path, *pairs)
        settings = [f"data.axes={axes}", f"run.directory={tmp_path}/{number}", "data.test=[]"]
        train(load_config(path, [*settings, "training.iterations=3"]), reporter=Quiet())
        with np.load(tmp_path / f"{number}/checkpoints/iteration-000000003.npz") as saved:
            found.append({key: saved[key] for key in saved.files if "conv" in key})
    assert found[0]
    for other in found[1:]:
        assert all(np.array_equal(found[0][key], other[key]) for key in found[0])


def test_cifars_files_train(tmp_path: Path) -> None:
    """Files of the exact layout, of photographs of noise whose brightest quarter is the class."""
    for name, count, seed in (
        ("data_batch_1", 100, 0),
        ("data_batch_2", 100, 2),
        ("test_batch", 30, 1),
    ):
        images, labels = squares(count, 32, seed)
        write_cifar(tmp_path / f"{name}.bin", np.repeat(images[:, None], 3, 1), labels)
    files = [f"{name}.bin" for name in ("data_batch_1", "test_batch")]
    first, test = ({"image": name, "labels": name} for name in files)
    path = write(tmp_path, first, test, size=32, channels=3)
    second = str(tmp_path / "data_batch_2.bin")
    both = json.dumps(
        [{"image": str(tmp_path / f), "labels": str(tmp_path / f)} for f in (files[0], second)]
    )
    assert trained(path, f"data.train={both}", "training.learning_rate=0.002") > 0.95


def refused(path: Path, words: str) -> None:
    """By `znnpy check` and by training, before anything is written."""
    config = load_config(path)
    for command in (lambda: survey(config, trained_network(config)), lambda: train(config)):
        with pytest.raises(ZnnpyError) as found:
            command()
        assert words in str(found.value)
    assert not (path.parent / "run/checkpoints").exists()


@pytest.mark.parametrize("kind", ["labels", "classes", "cut", "pickle"])
def test_what_cannot_be_learned_from_is_refused(tmp_path: Path, kind: str) -> None:
    pair, test = idx(tmp_path)
    labels, words = tmp_path / pair["labels"], ""
    match kind:
        case "labels":
            write_idx(labels, squares(199, 8)[1])
            words = "has 199 labels, one an image, but"
        case "classes":
            found = squares(200, 8)[1]
            found[[7, 9]] = 4
            write_idx(labels, found)
            words = "values are from 0 to 4, and 2 of them fit no target, the first 4 at (z, y, x) = (7, 0, 0)"
        case "cut":
            labels.write_bytes(labels.read_bytes()[:-20])
            words = "train-labels.gz: its gzip data are cut or damaged"
        case "pickle":
            labels.write_bytes(b"\x80\x02}q\x01(U\x0bbatch_labelq")
            words = "train-labels.gz is a Python pickle"
    refused(write(tmp_path, pair, test), words)


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        (
            "{kind: fixed, mean: [1, 2, 3]}",
            "config.yaml:12: data.normalize.mean: has 3 numbers, but input 'input' takes 1 channel(s): give one",
        ),
        ("{kind: fixed, mean: 1, deviation: [1, 2]}", "data.normalize.deviation: has 2 numbers"),
    ],
)
def test_numbers_that_are_no_channels_are_refused(
    tmp_path: Path, normalize: str, words: str
) -> None:
    path = write(tmp_path, *idx(tmp_path))
    text = path.read_text().replace("{kind: fixed, mean: 100, deviation: 60}", normalize)
    path.write_text(text)
    refused(path, words)


@pytest.mark.parametrize("form", ["npz", "h5", "zarr"])
@pytest.mark.parametrize(("axes", "moved"), [("zcyx", (1, 0, 2, 3)), ("zyxc", (1, 2, 3, 0))])
@pytest.mark.parametrize("count", [1, 5])
def test_axes_are_those_that_the_config_names_of_one_image_too(
    tmp_path: Path, form: str, axes: str, moved: tuple[int, ...], count: int
) -> None:
    images = np.random.default_rng(0).integers(0, 255, (3, count, 4, 6)).astype(np.uint8)
    path, array = tmp_path / f"a.{form}", images.transpose(moved)
    match form:
        case "npz":
            np.savez(path, raw=array)
        case "h5":
            with h5py.File(path, "w") as file:
                file["raw"] = array
        case "zarr":
            zarr.save_array(path, array)
    source = Source.model_validate(str(path) if form == "zarr" else f"{path}:raw")
    with open_source(source, DataSection.model_validate({"axes": axes}), "raw") as volume:
        assert np.array_equal(volume.read_all(), images)


def test_axes_are_those_that_a_file_names(tmp_path: Path) -> None:
    """CIFAR's order is known, so `data.axes` is for other volumes."""
    images = np.random.default_rng(0).integers(0, 255, (3, 3, 32, 32)).astype(np.uint8)
    path = write_cifar(tmp_path / "TEST_BATCH.BIN", images, np.arange(3))
    data = DataSection.model_validate({"axes": "zyxc"})
    with open_source(Source.model_validate(str(path)), data, "raw") as volume:
        assert np.array_equal(volume.read_all().swapaxes(0, 1), images)


def test_labels_of_another_shape_are_told_with_what_is_expected(tmp_path: Path) -> None:
    images, labels = squares(200, 8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = images, np.eye(4)[labels]
    pair = {"image": "a.h5:x", "labels": "a.h5:y"}
    refused(
        write(tmp_path, pair, pair),
        "Labels of a list of images are 1 number for each image",
    )


def warned(path: Path, *settings: str) -> list[str]:
    """What `znnpy check` and training warn of, each in one line."""
    config = load_config(path, ["training.iterations=1", *settings])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        survey(config, trained_network(config))
        checked = len(found)
        train(config, reporter=Quiet())
    words = [str(warning.message) for warning in found]
    assert bool(words[:checked]) == bool(words[checked:])
    return words


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("factor", "normalize", "words"),
    [
        (1, "{kind: fixed, mean: 100, deviation: 60}", ""),
        (1, "{kind: fixed, mean: 0, deviation: 256}", ""),
        (1 / 255, "{kind: fixed, mean: 0.4, deviation: 0.2}", ""),
        (1, "{kind: fixed, mean: 0.4, deviation: 0.2}", "values from 0 to 199 to -2 to 993, where"),
        (1 / 255, "{kind: fixed, mean: 100, deviation: 60}", "to -1.667 to -1.654, where networks"),
    ],
)
def test_numbers_of_other_values_are_doubted(
    tmp_path: Path, factor: float, normalize: str, words: str
) -> None:
    pair = idx(tmp_path)[0]
    if factor != 1:
        write_idx(tmp_path / pair["image"], (squares(200, 8)[0] * factor).astype(np.float32))
    found = warned(write(tmp_path, pair, pair), f"data.normalize={normalize}")
    assert bool(found) == bool(words)
    assert all(words in said for said in found)


def test_a_network_that_sees_several_images_at_once_is_doubted(tmp_path: Path) -> None:
    path = write(tmp_path, *idx(tmp_path))
    deep = ("network.layers.0.conv.size=3", "data.test=[]")
    assert all("sees 3 of them at once" in said for said in warned(path, *deep))
    assert warned(path, *deep, "run.directory=" + str(tmp_path / "other"))


@pytest.mark.parametrize("form", ["h5", "npz"])
def test_gzip_of_other_files_is_told(tmp_path: Path, form: str) -> None:
    images, labels = squares(20, 8)
    path = tmp_path / f"a.{form}"
    if form == "npz":
        np.savez(path, x=images, y=labels)
    else:
        with h5py.File(path, "w") as file:
            file["x"], file["y"] = images, labels
    path.write_bytes(gzip.compress(path.read_bytes()))
    pair = {"image": f"a.{form}:x", "labels": f"a.{form}:y"}
    refused(
        write(tmp_path, pair, pair),
        f"a.{form} is compressed by gzip, which only idx files may be",
    )


def test_images_without_labels_are_refused(tmp_path: Path) -> None:
    pair = {"image": idx(tmp_path)[0]["image"]}
    refused(write(tmp_path, pair, pair), "comes without labels for output 'output'; given: none")
