"""Packages of bioimage.io as runs: what they say, their own tests, digests, and paths that leave them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bioimage_packages import state, written, zipped
from called import status_of
from class_states import SHAPES, VALUES, drawn
from exported_runs import run_of
from torch_files import save

from znnpy import Model
from znnpy.config import load_config
from znnpy.errors import ModelFileError
from znnpy.geometry import fit_input
from znnpy.interop.bioimageio.normalising import normalize_key
from znnpy.interop.bioimageio.steps import Step, applied
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import CLASSES
from znnpy.interop.described import Described
from znnpy.interop.export.formats import export
from znnpy.interop.run import write_run
from znnpy.interop.source import is_model, read_model
from znnpy.weights.torch_file import read_torch

STATE = {name: np.asarray(tensor.array()) / 2 for name, tensor in drawn(SHAPES).items()}
SIGMOID, DEVIATION = (
    {"name": "sigmoid"},
    {"name": "zero_mean_unit_variance", "kwargs": {"axes": "zyx"}},
)
LOGITS = {**VALUES, "is_segmentation": False}


def made(path: Path, arguments: Any, image: Any) -> Any:
    """What the net makes of an image."""
    found = network_of(
        CLASSES["pytorch3dunet.UNet3D"], arguments, read_torch(path)["state_dict"], "a"
    )
    shapes = fit_input(found.network, image.shape[2:]).output_shapes
    with Model(found.network, shapes, threads=1, training=False, loss="square") as model:
        model.set_parameters(found.parameters)
        return np.asarray(model.forward(image.astype(np.float32)))


_MADE: dict[str, Any] = {}
"""What the net makes of the image, by its arguments: always the same."""


def package(
    folder: Path, *, new: bool = True, named: str = "", arguments: Any = LOGITS, **more: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    save(folder / "net.pt", STATE, key="state_dict")
    rng = np.random.default_rng(0)
    image = (rng.standard_normal((1, 1, 8, 12, 16)) * 9 + 50).astype(np.float32)
    ready = (image - image.mean()) / (image.std() + 1e-6)
    wanted = _MADE.setdefault(str(arguments), None)
    if wanted is None:
        wanted = _MADE[str(arguments)] = made(folder / "net.pt", arguments, ready)
    weights = state("net.pt", "UNet3D", arguments, new=new, package=named)
    more = {"before": [DEVIATION], "after": [SIGMOID], **more}
    wanted = 1 / (1 + np.exp(-wanted)) if SIGMOID in more["after"] else wanted
    return written(folder, weights, image, [wanted], new=new, **more)


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_a_run_says_what_the_package_says(new: bool, packed: bool, tmp_path: Path) -> None:
    folder = package(tmp_path / "p", new=new, named="plantseg.models")
    path = zipped(folder) if packed else folder
    assert is_model(path)
    model = read_model(path)
    assert model.title == "bioimage.io A net: pytorch-3dunet UNet3D"
    (note,) = model.notes
    assert "its test tensors are met to" in note
    write_run(model, tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    assert (config.data.normalize.kind, config.data.target.kind) == ("mean_std", "unknown")
    network = config.network.nodes
    assert network is not None
    assert model.config["network"]["nodes"]["output"]["function"] == "logistic"


def test_by_commands(tmp_path: Path) -> None:
    path = zipped(package(tmp_path / "p", fixed=True))
    run = tmp_path / "run"
    assert status_of("import", path, "--output", run) == 0
    assert load_config(run / "config.yaml").inference.window == (8, 12, 16)
    np.save(tmp_path / "image.npy", np.random.default_rng(0).random((9, 14, 16), np.float32))
    found = tmp_path / "a.h5"
    assert status_of("predict", path, "--input", tmp_path / "image.npy", "--output", found) == 0
    assert found.exists()


def test_packages_that_are_exported_come_back(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    layers = [
        {"conv": {"size": 3, "channels": 3, "padding": "same"}},
        {"conv": {"size": 1, "channels": 1}},
    ]
    trained = run_of(tmp_path / "run", {"input": 2, "layers": layers})
    export(trained, "bioimageio", tmp_path / "net.zip")
    model = read_model(tmp_path / "net.zip")
    (shape,) = trained.geometry.output_shapes.values()
    assert model.config["inference"]["window"] == list(shape)
    assert "ONNX" in model.title
    assert "its test tensors are met to" in model.notes[0]
    ours = trained.saved.weights.parameters
    found = model.members["weights"]()
    assert sorted(a.size for a in found.values()) == sorted(a.size for a in ours.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.update(format_version="0.3.2"), "format_version must be 0.4 or 0.5; found '0.3.2'"),
        (lambda s: s.update(type="dataset"), "type must be model"),
        (lambda s: s["inputs"].append(s["inputs"][0]), "nets of one input are supported; it has 2"),
        (lambda s: s["weights"]["pytorch_state_dict"].update(sha256="0" * 64), "net.pt has another sha256"),
        (lambda s: s["inputs"][0]["test_tensor"].update(sha256="0" * 64), "image.npy has another sha256"),
        (lambda s: s["weights"].update(pytorch_state_dict={"source": "x"}), "architecture must be an object"),
        (lambda s: s.update(weights={"torchscript": {"source": "x"}}), "has torchscript: pytorch_state_dict or onnx"),
        (lambda s: s["weights"]["pytorch_state_dict"].update(source="../net.pt"), "lies outside of the package"),
        (lambda s: s["weights"]["pytorch_state_dict"].update(source="/etc/passwd"), "lies outside of the package"),
        (lambda s: s["weights"]["pytorch_state_dict"].update(source="https://a.b/c"), "lies at https://a.b/c"),
        (lambda s: s["weights"]["pytorch_state_dict"].update(source="net.txt"), "there is no file net.txt"),
        (lambda s: s["weights"]["pytorch_state_dict"]["architecture"].update(callable="Mine"),
         "no code of a package is run, and the class Mine is not known"),
        (lambda s: s["inputs"][0]["axes"].append({"type": "time", "id": "time"}), "axes must be batch, channel"),
        (lambda s: s["inputs"][0]["axes"].pop(), "its test tensor has shape"),
        (lambda s: s["inputs"][0]["preprocessing"].append({"id": "mine"}), "mine: is not known"),
        (lambda s: s.update(config={"znnpy": {"window": [8, 8]}}), "znnpy: window must be three sizes"),
        (lambda s: s.update(config={"znnpy": {"window": [8, 8, 0]}}), "znnpy: window"),
        (lambda s: s.update(config={"znnpy": {"window": [8, 8, 1 << 40]}}), "znnpy: window must be whole numbers"),
        (lambda s: s.update(config={"znnpy": {"targets": "mask"}}), "znnpy: targets must be a list"),
        (lambda s: s["inputs"][0].update(preprocessing=[]), "of its range away from the test tensor: it is another"),
    ],
)  # fmt: skip
def test_what_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_model(package(tmp_path / "p", change=change))


def test_without_tests_a_bare_name_is_no_class(tmp_path: Path) -> None:
    def untested(said: Any) -> None:
        del said["inputs"][0]["test_tensor"]

    with pytest.raises(
        ModelFileError, match="has no test tensors, which would tell whether UNet3D is"
    ):
        read_model(package(tmp_path / "p", change=untested))
    model = read_model(package(tmp_path / "q", change=untested, named="pytorch3dunet.unet3d.model"))
    assert "the net was not checked" in model.notes[0]


def test_damaged_and_unsafe_packages(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    (folder / "image.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + b"{" * 118)
    with pytest.raises(ModelFileError, match="has another sha256"):
        read_model(folder)
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"PK\x03\x04" + bytes(99))
    with pytest.raises(ModelFileError, match="is no sound zip"):
        read_model(bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(ModelFileError, match=r"is no package of bioimage\.io"):
        read_model(bad)
    np.save(folder / "image.npy", np.array([{}], object), allow_pickle=True)

    def unsigned(said: Any) -> None:
        said["inputs"][0]["test_tensor"] = {"source": "pickled.npy"}

    np.save((tmp_path / "q").with_suffix(".npy"), np.zeros(2))
    folder = package(tmp_path / "q", change=unsigned)
    np.save(folder / "pickled.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ModelFileError, match=r"pickled.npy is no sound \.npy file"):
        read_model(folder)
    (folder / "pickled.npy").unlink()
    (folder / "pickled.npy").symlink_to(tmp_path / "q.npy")
    with pytest.raises(ModelFileError, match="lies outside of the package"):
        read_model(folder)


def steps(*given: tuple[str, Any]) -> list[Step]:
    return [Step(name, Described(kwargs, f"here: {name}")) for name, kwargs in given]


WHOLE = {"axes": ["channel", "z", "y", "x"]}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (steps(), "none"),
        (steps(("zero_mean_unit_variance", WHOLE)), {"kind": "mean_std"}),
        (steps(("zero_mean_unit_variance", {"axes": "yx"})), {"kind": "mean_std", "per": "slice"}),
        (steps(("zero_mean_unit_variance", {"mode": "fixed", "mean": 4, "std": 2})),
         {"kind": "fixed", "mean": [4], "deviation": [2]}),
        (steps(("scale_linear", {"gain": 0.5, "offset": -3})), {"kind": "fixed", "mean": [6], "deviation": [2]}),
        (steps(("scale_linear", {"gain": 0.5}), ("fixed_zero_mean_unit_variance", {"mean": 1, "std": 0.25})),
         {"kind": "fixed", "mean": [2], "deviation": [0.5]}),
        (steps(("clip", {"min": 0, "max": 200}), ("scale_linear", {"gain": 0.01, "offset": -1})),
         {"kind": "clip", "low": 0, "high": 200, "mean": [100], "deviation": [100]}),
        (steps(("scale_range", WHOLE), ("ensure_dtype", {"dtype": "float32"})), {"kind": "range"}),
        (steps(("scale_range", {"min_percentile": 1, "max_percentile": 99.8}), ("clip", {"min": 0, "max": 1})),
         {"kind": "percentiles", "low": 1, "high": 99.8, "clip": True}),
    ],
)  # fmt: skip
def test_what_comes_before_a_net(given: list[Step], wanted: Any) -> None:
    found, notes = normalize_key(given, 1, flat=False)
    assert not notes
    if isinstance(wanted, dict) and "mean" in wanted:
        for key in ("mean", "deviation"):
            assert found[key] == pytest.approx(wanted[key])
        found, wanted = (
            {k: v for k, v in it.items() if k not in ("mean", "deviation")}
            for it in (found, wanted)
        )
    assert found == wanted


@pytest.mark.parametrize(
    "given",
    [
        steps(("zero_mean_unit_variance", {"axes": "czyx"})),
        steps(("scale_range", {"reference_tensor": "other", "axes": "zyx"})),
        steps(("binarize", {"threshold": 1})),
        steps(("scale_linear", {"gain": -1})),
        steps(("scale_range", {"axes": "zyx"}), ("scale_linear", {"gain": 2})),
        steps(("clip", {"min": 0})),
        steps(("sigmoid", {})),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_named(given: list[Step]) -> None:
    found, (note,) = normalize_key(given, 2, flat=False)
    assert found == "none"
    assert f"here: {given[-1].name}: cannot be said by data.normalize" in note


def test_steps_beside_their_formulas() -> None:
    x = np.random.default_rng(0).normal(3, 2, (1, 2, 3, 4, 5))
    over = (2, 3, 4)
    mean, deviation = x.mean(over, keepdims=True), x.std(over, keepdims=True)
    low, high = np.percentile(x, [5, 90], (3, 4), keepdims=True)
    column = np.reshape([1.0, 2.0], (-1, 1, 1, 1))
    raised = np.exp(x)
    for given, wanted in (
        (("zero_mean_unit_variance", {"axes": "zyx", "eps": 0.5}), (x - mean) / (deviation + 0.5)),
        (("scale_range", {"axes": ["y", "x"], "min_percentile": 5, "max_percentile": 90, "eps": 0.1}),
         (x - low) / (high - low + 0.1)),
        (("fixed_zero_mean_unit_variance", {"mean": [1, 2], "std": 3}), (x - column) / 3),
        (("scale_linear", {"gain": [1, 2], "offset": 1}), x * column + 1),
        (("clip", {"min": 2}), np.maximum(x, 2)),
        (("binarize", {"threshold": 3}), x > 3),
        (("sigmoid", {}), 1 / (1 + np.exp(-x))),
        (("softmax", {"axis": "channel"}), raised / raised.sum(1, keepdims=True)),
    ):  # fmt: skip
        np.testing.assert_allclose(applied(x, steps(given)), wanted, rtol=1e-12)
