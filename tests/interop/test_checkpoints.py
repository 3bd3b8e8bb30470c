"""Files of weights whose network is said within or beside them: torch-em, pytorch-3dunet, an architecture in YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import status_of
from class_states import SHAPES, VALUES, drawn
from torch_files import Call, Named, pickled, save, write

from znnpy.config import load_config
from znnpy.errors import ModelFileError
from znnpy.interop.run import write_run
from znnpy.interop.source import is_model, read_model
from znnpy.weights.safetensors import read_safetensors
from znnpy.weights.safetensors_writing import write_safetensors

STATE = {name: np.asarray(tensor.array()) for name, tensor in drawn(SHAPES).items()}
EM_SHAPES = {
    f"{name}.block.{place}.{part}": shape
    for name, x, n in (("encoder.blocks.0", 1, 2), ("base", 2, 4), ("decoder.blocks.0", 4, 2))
    for place, y in ((1, x), (4, n))
    for part, shape in {"weight": (n, y, 3, 3, 3), "bias": (n,)}.items()
} | {
    "decoder.samplers.0.conv.weight": (2, 4, 1, 1, 1), "decoder.samplers.0.conv.bias": (2,),
    "out_conv.weight": (1, 2, 1, 1, 1), "out_conv.bias": (1,),
}  # fmt: skip
EM_STATE = {name: np.asarray(tensor.array()) for name, tensor in drawn(EM_SHAPES).items()}
EM = {"in_channels": 1, "out_channels": 1, "depth": 1, "initial_features": 2}


def weights(folder: Path) -> Path:
    path = folder / "net.safetensors"
    with path.open("wb") as file:
        write_safetensors(file, STATE, {})
    return path


def said(folder: Path, **more: Any) -> Path:
    """An architecture in YAML; JSON is that, too."""
    path = folder / "net.yaml"
    path.write_text(json.dumps({"class": "pytorch3dunet.UNet3D", "arguments": VALUES, **more}))
    return path


def trained(folder: Path, **config: Any) -> Path:
    """A folder of pytorch-3dunet."""
    folder.mkdir(exist_ok=True)
    state = {f"module.{name}": array for name, array in STATE.items()}
    save(folder / "best_checkpoint.pytorch", state, key="model_state_dict", num_epochs=3)
    whole = {"model": {"name": "UNet3D", **VALUES}, "device": "cpu", **config}
    (folder / "train_config.yml").write_text(json.dumps(whole))
    return folder


def em(folder: Path, **init: Any) -> Path:
    """A checkpoint of torch-em."""
    place = Call("torch_em.model.unet", "ConvBlock3d", ())
    given = {"model_class": "torch_em.model.unet.UNet3d", "model_kwargs": EM, "loss": place, **init}
    state = {f"_orig_mod.{name}": array for name, array in EM_STATE.items()}
    save(folder / "best.pt", state, key="model_state", init=given, epoch=3)
    return folder


def test_an_architecture_beside_the_weights(tmp_path: Path) -> None:
    architecture = said(tmp_path, normalize="range", window=[16, 32, 32])
    model = read_model(weights(tmp_path), architecture)
    assert model.title == "net.safetensors: pytorch-3dunet UNet3D"
    assert not model.notes
    write_run(model, tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    assert config.data.normalize.kind == "range"
    assert config.inference.window == config.training.output_shape == (16, 32, 32)


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = weights(tmp_path), tmp_path / "run"
    assert status_of("import", path, "--output", run) == 1
    assert "does not say their network" in capsys.readouterr().err
    assert not run.exists()
    assert status_of("import", path, "--architecture", said(tmp_path), "--output", run) == 0
    assert "data.normalize is none" in capsys.readouterr().err
    np.save(tmp_path / "image.npy", np.random.default_rng(0).random((8, 12, 12), np.float32))
    made = tmp_path / "made.h5"
    assert status_of("predict", run, "--input", tmp_path / "image.npy", "--output", made) == 0
    assert made.exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"class": "monai.SwinUNETR"}, "net.yaml: class: networks of class monai.SwinUNETR"),
        ({"class": 3}, "class must be a text; found 3"),
        ({"arguments": [1]}, "arguments must be an object"),
        ({"kwargs": {}}, "kwargs: .* is not supported; known are class, arguments"),
        ({"window": [3, 32, 32]}, r"net.yaml: windows of \[3, 32, 32\] voxels"),
        ({"window": [16]}, "window must hold three sizes"),
        ({"normalize": "much"}, "cannot be said as a config"),
    ],
)
def test_wrong_architectures(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        write_run(read_model(weights(tmp_path), said(tmp_path, **more)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.system ['true']", "class: !mine x", "- 1", "a: [", "\x00"]
)
def test_an_architecture_that_is_no_data(text: str, tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(text)
    with pytest.raises(ModelFileError, match=r"net\.yaml"):
        read_model(weights(tmp_path), tmp_path / "net.yaml")


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ([{"name": "Standardize"}, {"name": "ToTensor", "expand_dims": True}], {"kind": "mean_std"}),
        ([{"name": "Standardize", "mean": 3, "std": 2}], {"kind": "fixed", "mean": [3], "deviation": [2]}),
        ([{"name": "PercentileNormalizer", "pmin": 2}], {"kind": "percentiles", "low": 2, "high": 99.6}),
        ([{"name": "Normalize", "min_value": 0, "max_value": 255}],
         {"kind": "clip", "low": [0], "high": [255], "mean": [127.5], "deviation": [127.5]}),
        ([{"name": "Normalize", "norm01": True}], {"kind": "range"}),
        ([{"name": "RandomFlip"}, {"name": "ToTensor"}], {"kind": "mean_std"}),
    ],
)  # fmt: skip
def test_what_pytorch3dunet_does_before_its_net(raw: Any, wanted: Any, tmp_path: Path) -> None:
    loaders = {"val": {"transformer": {"raw": raw}, "slice_builder": {"patch_shape": [8, 16, 32]}}}
    write_run(read_model(trained(tmp_path / "m", loaders=loaders)), tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    found = config.data.normalize.model_dump(mode="json")
    assert {key: found[key] for key in wanted} == wanted
    assert config.inference.window == (8, 16, 32)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ([{"name": "Cellpose"}], "raw: Cellpose: name must be Standardize"),
        ([{"name": "Normalize"}], "min_value and max_value must be said"),
        ([{"name": "Standardize"}, {"name": "ToTensor", "normalize": True}], "normalises once more"),
        ([{"name": "Normalize", "min_value": 9, "max_value": 9}], "must be below max_value, 9"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_it(raw: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_model(trained(tmp_path / "m", loaders={"test": {"transformer": {"raw": raw}}}))


def test_several_configs_beside_a_checkpoint(tmp_path: Path) -> None:
    folder = trained(tmp_path / "m")
    (folder / "train_config.yml").rename(folder / "a.yaml")
    assert read_model(folder).title == "best_checkpoint.pytorch: pytorch-3dunet UNet3D"
    (folder / "broken.yml").write_text("{")
    assert read_model(folder).title
    (folder / "b.yml").write_text((folder / "a.yaml").read_text())
    with pytest.raises(ModelFileError, match=r"several configs that say a network, a.yaml, b.yml"):
        read_model(folder)


def test_torch_em_says_its_network(tmp_path: Path) -> None:
    usual = Named("torch_em.model.unet", "ConvBlock3d")
    kwargs = {**EM, "final_activation": "Sigmoid", "conv_block_impl": usual}
    model = read_model(em(tmp_path, model_kwargs=kwargs))
    assert model.title == "best.pt: torch-em UNet3d"
    found = model.members["weights"]()
    assert np.array_equal(found["out_conv"], EM_STATE["out_conv.weight"])
    other = {**kwargs, "conv_block_impl": Named("mine", "ConvBlock3d")}
    with pytest.raises(ModelFileError, match="a value of type Name is no argument"):
        read_model(em(tmp_path, model_kwargs=other))


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ({"model_class": "torch_em.model.unetr.UNETR"}, "init: model_class: networks of class .*UNETR are not"),
        ({"model_kwargs": {**EM, "norm": Call("os", "system", ("true",))}}, "a value of type Inert is no argument"),
        ({"model_class": None}, "init must hold model_class"),
        ({"model_kwargs": {**EM, "postprocessing": "mine"}}, "postprocessing must be one of affinities"),
    ],
)  # fmt: skip
def test_what_is_refused_of_torch_em(init: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_model(em(tmp_path, **init))


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", {}, key="something")
    with pytest.raises(ModelFileError, match=r"a.pt holds weights and does not say their network"):
        read_model(tmp_path / "a.pt")
    with pytest.raises(ModelFileError, match="holds something, and no state dict"):
        read_model(tmp_path / "a.pt", said(tmp_path))
    with pytest.raises(ModelFileError, match=r"b.pt does not exist"):
        read_model(tmp_path / "b.pt", said(tmp_path))
    with pytest.raises(ModelFileError, match="is no file of weights"):
        read_model(tmp_path, said(tmp_path))
    write(tmp_path / "c.pt", pickled(Call("torch.nn", "Conv3d", ())), {})
    with pytest.raises(
        ModelFileError, match=r"an object of class torch.nn.Conv3d, whose code is not run"
    ):
        read_model(tmp_path / "c.pt")
    assert not is_model(tmp_path)


def exported(run: Path, *more: str) -> Any:
    """The state dict of a run."""
    out = run.parent / "back.safetensors"
    line = ["export", run, "--format", "safetensors", "--output", out, "--overwrite", *more]
    assert status_of(*line) == 0
    return {name: np.asarray(tensor.array()) for name, tensor in read_safetensors(out).items()}


def test_weights_go_back_by_the_names_of_the_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    write_run(read_model(weights(tmp_path), said(tmp_path)), run)
    found = exported(run)
    assert "names of weights are those of the class pytorch3dunet.UNet3D" in capsys.readouterr().err
    assert list(found) == list(STATE)
    for name, array in STATE.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_wrong_origins_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    write_run(read_model(weights(tmp_path), said(tmp_path)), run)
    path, line = run / "class.json", ["export", run, "--format", "state-dict", "--output"]
    good = json.loads(path.read_text())
    for wrong in (
        {},
        good | {"class": "os.system"},
        good | {"class": ["monai.UNet"]},
        good | {"tensors": [["a", [-1]]]},
        good | {"tensors": [1]},
        good | {"tensors": {}},
        good | {"left": {"a": [1.0]}},
        good | {"left": {next(iter(STATE)): [1.0]}},
    ):
        path.write_text(json.dumps(wrong))
        assert status_of(*line, tmp_path / "a.pth") == 1
        assert "class.json is damaged: " in capsys.readouterr().err
    path.write_text(json.dumps(good | {"arguments": VALUES | {"f_maps": 4}}))
    assert status_of(*line, tmp_path / "a.pth") == 1
    assert "no state dict of pytorch3dunet.UNet3D: " in capsys.readouterr().err
    path.write_text(json.dumps(good | {"tensors": [*good["tensors"], ["more", [3]]]}))
    assert status_of(*line, tmp_path / "a.pth") == 1
    assert "the class has none, with these arguments" in capsys.readouterr().err
    path.write_text(json.dumps(good | {"tensors": [["huge", [1 << 39]]]}))
    assert status_of(*line, tmp_path / "a.pth") == 1
    assert "the run has far fewer parameters" in capsys.readouterr().err
    path.unlink()
    assert status_of(*line, tmp_path / "a.pth") == 0
    assert "of the class Net of znnpy export" in capsys.readouterr().err
