"""Networks that were exported as ONNX come back with what their runs did to images, and damaged words about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
from called import status_of
from exported_runs import run_of

from znnpy.config import config_from, load_config
from znnpy.errors import ModelFileError
from znnpy.interop.onnx.model import read_model
from znnpy.interop.onnx.own_file import own_file
from znnpy.network import build_network, trained_network

NET = {"unet": {"widths": [2, 3], "down": [[1, 2, 2]], "norm": "batch", "function": "relu"}}


def exported(folder: Path, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> Path:
    monkeypatch.chdir(folder)
    run_of(folder / "run", NET, **sections)
    assert status_of("export", "run", "--format", "onnx") == 0
    return folder / "run.onnx"


def write_image() -> None:
    with h5py.File("image.h5", "w") as file:
        file["raw"] = np.random.default_rng(0).integers(0, 255, (9, 20, 30)).astype("u1")


def predicted(run: str, *more: str) -> np.ndarray:
    line = ("predict", run, "--input", "image.h5", "--output", f"{run}.h5", "--threads", 1)
    assert status_of(*line, *more) == 0
    with h5py.File(f"{run}.h5") as file:
        values: np.ndarray = file["prediction"][:]
    return values


def test_predictions_are_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    percentiles = {"kind": "percentiles", "low": 2, "clip": True}
    window = {"window": [4, 8, 12]}
    exported(tmp_path, monkeypatch, data={"normalize": percentiles}, inference=window)
    write_image()
    assert status_of("import", "run.onnx", "--output", "back") == 0
    said = capsys.readouterr().err
    assert "znnpy export wrote this file" in said
    assert "data.normalize is none" not in said
    wanted = predicted("run")
    assert wanted.std() > 0.01
    np.testing.assert_allclose(predicted("back"), wanted, rtol=1e-4, atol=1e-5)


AFFINITIES = {"kind": "affinity", "offsets": [[-1, 0, 0], [0, -3, 0]]}
TWO = {
    "nodes": {
        "input": {"kind": "input", "channels": 1},
        "near": {"kind": "transfer", "channels": 2, "function": "logistic"},
        "shape": {"kind": "transfer", "channels": 10, "function": "logistic"},
    },
    "edges": {
        "a": {"kind": "conv", "from": "input", "to": "near", "size": 1},
        "b": {"kind": "conv", "from": "input", "to": "shape", "size": 1},
    },
}


@pytest.mark.parametrize("file", ["run.onnx", "run.zip"])
@pytest.mark.parametrize(("logits", "apart"), [(False, False), (True, False), (False, True)])
def test_targets_and_losses_are_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, logits: bool, apart: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    training: dict[str, Any] = {
        "output_shape": [4, 6, 6],
        "loss": "binomial_cross_entropy" if logits else {"kind": "focal", "gamma": 1.5},
        "outputs": {"shape": {"target": {"kind": "lsd", "sigma": [1, 2, 2]}, "weight": 0.5}},
    }
    if apart:
        training["outputs"]["shape"]["loss"] = {"kind": "square"}
    run_of(tmp_path / "run", TWO, data={"target": AFFINITIES}, training=training)
    more = ("--logits",) if logits else ()
    assert status_of("export", "run", "--output", file, *more) == 0
    assert status_of("import", file, "--output", "back") == 0
    run, back = (load_config(tmp_path / name / "config.yaml") for name in ("run", "back"))
    near, shape = (node.name for node in build_network(back.network).outputs)
    assert (near, shape) == ("near", "shape")
    assert back.training.weight(near) == 1
    assert back.training.weight(shape) == 0.5
    assert (back.target(near), back.target(shape)) == (run.target("near"), run.target("shape"))
    assert back.training.loss_of(near) == run.training.loss_of("near")
    assert back.training.loss_of(shape) == run.training.loss_of("shape")
    write_image()
    for name, node in {"run": "near", "back": near}.items():
        line = ("--input", "image.h5", "--output", f"{name}.h5", "--threads", 1)
        assert status_of("predict", name, *line, "--node", node) == 0
    with h5py.File("back.h5") as made, h5py.File("run.h5") as wanted:
        assert made["prediction"].attrs["offsets"].tolist() == AFFINITIES["offsets"]
        np.testing.assert_allclose(made["prediction"], wanted["prediction"], rtol=1e-4, atol=1e-5)


def test_scans_are_prepared_as_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"normalize": "none", "prepare": {"spacing": [None, 1.5, 1.5], "crop": False}}
    exported(tmp_path, monkeypatch, data=data)
    assert status_of("import", "run.onnx", "--output", "back") == 0
    run, back = (load_config(tmp_path / name / "config.yaml").data for name in ("run", "back"))
    assert run.prepare is not None
    assert (back.prepare, back.normalize) == (run.prepare, run.normalize)


HALVED = {"conv": {"channels": 2, "size": 1, "stride": [1, 2, 2]}}


def _resized(factor: Any, divisor: Any = 1, mode: str = "nearest", more: Any = 0) -> list[Any]:
    """A resize, and a convolution that takes the growth back: outputs lie whole voxels apart."""
    keys = {"factor": factor, "divisor": divisor, "mode": mode, "more": more}
    return [{"resize": keys}, {"conv": {"channels": 2, "size": factor, "stride": factor}}]


GROWN = {
    "nearest": _resized([1, 4, 2], [1, 3, 1]),
    "nearest_exact": _resized([1, 2, 5], [1, 3, 3], "nearest_exact"),
    "more": _resized(1, more=[0, 3, -2]),
    "less": _resized(1, [1, 2, 2], "nearest_exact", [1, 0, 1]),
    "linear": _resized([1, 4, 4], [1, 3, 3], "linear", [0, 4, -4]),
    "corners": _resized([1, 4, 4], [1, 3, 3], "corners"),
    **{
        f"upsample, {mode}": [HALVED, {"upsample": {"factor": [1, 2, 2], "mode": mode}}]
        for mode in ("nearest", "linear", "corners")
    },
    "one after the other": [*_resized([1, 4, 4], [1, 3, 3]), *_resized([1, 2, 3], [1, 1, 2])],
    "of different axes": [
        {"resize": {"factor": [1, 4, 1], "divisor": [1, 3, 1]}},
        {"resize": {"factor": [1, 1, 3], "divisor": [1, 1, 2], "mode": "nearest_exact"}},
        {"conv": {"channels": 2, "size": [1, 4, 3], "stride": [1, 4, 3]}},
    ],
}


@pytest.mark.parametrize("case", GROWN)
def test_resizes_come_back_as_they_were(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same edges, so the same values in windows of any size."""
    monkeypatch.chdir(tmp_path)
    last = {"conv": {"channels": 1, "size": 1}}
    trained = run_of(tmp_path / "run", {"layers": [*GROWN[case], last]})
    assert status_of("export", "run", "--format", "onnx") == 0
    assert status_of("import", "run.onnx", "--output", "back") == 0
    assert "do not fit" not in capsys.readouterr().err
    back = trained_network(load_config(tmp_path / "back" / "config.yaml"))
    kinds = ("resize", "upsample")
    edges, wanted = (
        [(it.kind, it.factor, it.divisor, it.more, it.mode) for it in net.edges if it.kind in kinds]
        for net in (back, trained.saved.network)
    )
    assert edges == wanted
    write_image()
    np.testing.assert_allclose(predicted("back"), predicted("run"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("normalize", "{", "metadata normalize are '{', and must be an object of JSON"),
        ("normalize", "[" * 9999, "must be an object of JSON"),
        ("targets", "{}", "metadata targets are '{}', and must be a list of JSON"),
        ("targets", '["mask", "mask"]', "targets are 2, and the network has 1 outputs"),
        ("losses", "7", "metadata losses are"),
        ("losses", '["square", "square"]', "losses are 2, and the network has 1 outputs"),
        ("prepare", '"x"', "metadata prepare are"),
        ("output_shapes", "{}", "output_shapes are empty"),
        ("output_shapes", '{"output": [4, 8, true]}', "must hold three sizes, z, y, x"),
    ],
)
def test_damaged_metadata(
    key: str, text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported(tmp_path, monkeypatch)
    model = onnx.load(path)
    facts = {it.key: it.value for it in model.metadata_props} | {key: text}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    with pytest.raises(ModelFileError, match=f"run.onnx: .*{words}"):
        read_model(path)


def test_the_target_of_one_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thick = {"kind": "boundary", "thickness": 3}
    exported(tmp_path, monkeypatch, data={"target": thick})
    assert status_of("import", "run.onnx", "--output", "back") == 0
    config = load_config(tmp_path / "back" / "config.yaml")
    assert config.data.target.model_dump() == thick
    assert not config.training.outputs


def test_a_window_that_does_not_fit_becomes_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a resize by voxels more, which is read with the ratio that it has at one size once its names are lost."""
    resized = {"factor": 1, "divisor": [1, 2, 2], "more": [0, 1, 1], "mode": "linear"}
    grown = {"factor": [1, 2, 2], "more": [0, -2, -2], "mode": "linear"}
    last = {"conv": {"channels": 1, "size": 1}}
    network = {"layers": [{"resize": resized}, {"resize": grown}, last]}
    monkeypatch.chdir(tmp_path)
    normalize = {"kind": "range", "per": "slice"}
    run_of(tmp_path / "run", network, data={"normalize": normalize})
    assert status_of("export", "run", "--format", "onnx") == 0
    model = onnx.load("run.onnx")
    for it in model.graph.initializer:
        it.name = it.name.replace(".few", ".a")
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = name.replace(".few", ".a")
    onnx.save(model, "run.onnx")
    assert status_of("import", "run.onnx", "--output", "back") == 0
    said = capsys.readouterr().err
    assert "windows of [4, 6, 6] voxels (z, y, x) do not fit" in said
    assert "become [4, 192, 192]" in said
    config = load_config(tmp_path / "back" / "config.yaml")
    assert config.inference.window == (4, 192, 192)
    assert config.data.normalize.model_dump() == normalize | {"nonzero": False}
    write_image()
    wanted = predicted("run", "--set", "inference.window=[4,192,192]")
    np.testing.assert_allclose(predicted("back"), wanted, rtol=1e-4, atol=1e-5)


def test_a_wrong_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, monkeypatch)
    model = onnx.load(path)
    facts = {it.key: it.value for it in model.metadata_props}
    onnx.helper.set_model_props(model, facts | {"normalize": json.dumps({"kind": "magic"})})
    onnx.save(model, path)
    assert status_of("import", "run.onnx", "--output", "back") == 1
    assert "data.normalize.kind: is 'magic'" in capsys.readouterr().err
    assert not Path("back").exists()


def test_files_of_others_say_nothing() -> None:
    assert own_file({}) is None
    assert own_file({"normalize": "{}"}) is None


@pytest.mark.parametrize(
    ("what", "numbers"),
    [("few", [1, 300, 1]), ("many", [1, 0, 2]), ("more", [-(10**12)] * 3), ("many", [1, 4]), ("few", [1.0, 3.0, 1.0])],
)  # fmt: skip
def test_damaged_numbers_of_a_resize(
    what: str, numbers: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says another size than the file's operators make is not believed; an error, or the ratio at one size."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path / "run", {"layers": _resized([1, 4, 2], [1, 3, 1])})
    assert status_of("export", "run", "--format", "onnx") == 0
    model = onnx.load("run.onnx")
    for it in model.graph.initializer:
        if it.name.endswith(f".{what}"):
            it.CopyFrom(onnx.numpy_helper.from_array(np.array(numbers), it.name))
    onnx.save(model, "run.onnx")
    assert status_of("import", "run.onnx", "--output", "back") in (0, 1)


def test_numbers_that_the_operators_do_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants by the names that say how voxels grow, beside those by which they do."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path / "run", {"layers": _resized([1, 4, 2], [1, 3, 1])})
    assert status_of("export", "run", "--format", "onnx") == 0
    model = onnx.load("run.onnx")
    (many,) = (it for it in model.graph.initializer if it.name.endswith(".many"))
    other = onnx.numpy_helper.from_array(np.array([1, 8, 2]), many.name)
    for node in model.graph.node:
        node.input[:] = ["other" if name == many.name else name for name in node.input]
    many.name = "other"
    model.graph.initializer.append(other)
    onnx.save(model, "run.onnx")
    found = trained_network(config_from(dict(read_model(Path("run.onnx")).config)))
    (edge,) = (it for it in found.edges if it.kind == "resize")
    assert (edge.factor, edge.divisor) == ((1, 4, 2), (1, 3, 1))
