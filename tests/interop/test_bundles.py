"""Bundles of MONAI: what their configs say as data, and what is refused or named: expressions are never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from monai_bundles import NET, WINDOWS, before, bundle

from znnpy.config import load_config
from znnpy.errors import ModelFileError
from znnpy.interop.monai.references import Bundle, UnreadError
from znnpy.interop.run import write_run
from znnpy.interop.source import is_model, read_model


def step(name: str, **more: Any) -> dict[str, Any]:
    return {"_target_": name, "keys": ["image"], **more}


def test_a_run_says_what_the_bundle_says(tmp_path: Path) -> None:
    steps = (
        step("LoadImaged"), step("Orientationd", axcodes="LPS"), step("EnsureTyped", device="$device"),
        step("Spacingd", pixdim=[1.0, -1, 2.5], mode=["bilinear"]),
        step("ScaleIntensityRanged", a_min=-100, a_max=300, b_min=-1, b_max=1),
        {"_target_": "AsDiscreted", "keys": "label"}, step("RandFlipd", _disabled_=True),
    )  # fmt: skip
    model = read_model(bundle(tmp_path / "b", preprocessing=before(*steps)))
    assert model.title == "MONAI bundle b: MONAI UNet"
    assert list(model.notes) == []
    write_run(model, tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    prepare, inference = config.data.prepare, config.inference
    assert prepare is not None
    assert (prepare.orient, prepare.crop) == ("LPS", False)
    assert prepare.spacing == (1e6, None, 2.5e6)
    assert prepare.resample.grid == prepare.restore.grid == "centres"
    assert config.data.normalize.model_dump(mode="json") == {
        "kind": "fixed", "mean": [100], "deviation": [200],
    }  # fmt: skip
    assert inference.window == config.training.output_shape == (8, 16, 16)
    assert (inference.blend, inference.overlap, inference.regions) == (
        "constant",
        (0.25,) * 3,
        None,
    )


def test_what_cannot_be_mapped_is_named(tmp_path: Path) -> None:
    steps = (
        step("CropForegroundd"), step("NormalizeIntensityd", nonzero="$True"), step("ScaleIntensityd", minv=0, maxv=2),
        step("ScaleIntensityd"), step("NormalizeIntensityd"), step("HistogramNormalized"),
        step("Spacingd", pixdim=2.0, mode=3),
    )  # fmt: skip
    after = before(
        {"_target_": "Activationsd", "sigmoid": True}, {"_target_": "AsDiscreted", "threshold": 0.3},
        {"_target_": "KeepLargestConnectedComponentd", "keys": "pred"}, {"_target_": "SaveImaged"},
    )  # fmt: skip
    folder = bundle(tmp_path / "b", preprocessing=before(*steps), postprocessing=after)
    model = read_model(folder)
    notes = "\n".join(model.notes)
    for words in (
        "preprocessing::transforms::0: CropForeground: is left out: all of the scan is predicted",
        "preprocessing::transforms::1::nonzero: '$True' is an expression, which is not run",
        "2: ScaleIntensity: is left out: from 0 to 1 is supported",
        "4: NormalizeIntensity: is left out: images are normalised once",
        "5: HistogramNormalize: is left out",
        "6: Spacing: interpolates linearly, and not by mode 3",
        "postprocessing::transforms::1: AsDiscrete: threshold 0.3 is a half here",
        "2: KeepLargestConnectedComponent: is left out",
        "a voxel in several channels gets the number of the last",
    ):
        assert words in notes
    assert "SaveImage" not in notes
    assert model.config["inference"]["regions"] == [1, 2, 3]
    assert model.config["data"]["normalize"] == "range"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"network_def": {**NET, "channels": "$list(range(3))"}},
         r"inference.json: network_def::channels: '\$list\(range\(3\)\)' is an expression, which is not run"),
        ({"network_def": {**NET, "channels": [2, "$4"]}}, r"network_def::channels::1: '\$4' is an expression"),
        ({"network_def": {**NET, "_target_": "$__import__('os')"}}, "network_def::_target_: .* is an expression"),
        ({"network_def": {**NET, "_target_": "builtins.exec"}}, "networks of class builtins.exec are not supported"),
        ({"network_def": {**NET, "out_channels": "@many"}}, "has no many"),
        ({"classes": "@classes"}, "refers to itself"),
        ({"classes": "%other.json::a"}, "is a macro"),
        ({"network_def": None}, "has no network_def or network"),
        ({"network_def": None, "network": "$@network_def.to(@device)"}, "network names no class"),
        ({"network_def": {**NET, "_mode_": "callable"}}, "_mode_ callable is not supported"),
        ({"classes": 4}, r"model.2.conv.weight has shape \(6, 3, 3, 3, 3\), and \(6, 4, 3, 3, 3\)"),
        ({"inferer": {**WINDOWS, "roi_size": [8, 16]}}, "roi_size must hold 3 numbers"),
        ({"inferer": {**WINDOWS, "roi_size": "$[8, 8, 8]"}}, "inferer::roi_size: .* is an expression"),
        ({"inferer": {**WINDOWS, "roi_size": [7, 16, 16]}}, "windows of .7, 16, 16. voxels"),
        ({"inferer": {**WINDOWS, "overlap": 1}}, "overlap must be from 0 to below 1"),
        ({"inferer": {**WINDOWS, "mode": "linear"}}, "mode must be constant or gaussian"),
        ({"inferer": {"_target_": "SliceInferer"}}, "SliceInferer: is not supported: SlidingWindowInferer"),
    ],
)  # fmt: skip
def test_what_is_refused(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_model(bundle(tmp_path / "b", **more))


def test_yaml_and_a_folder_without_weights(tmp_path: Path) -> None:
    folder = bundle(
        tmp_path / "b",
        text=f"network_def: {json.dumps({**NET, 'out_channels': 3})}\n",
        name="inference.yaml",
    )
    notes = "\n".join(read_model(folder).notes)
    assert "has no preprocessing: images go in as they are" in notes
    assert "has no inferer" in notes
    (folder / "models/model.pt").rename(folder / "models/model.ts")
    with pytest.raises(ModelFileError, match=r"has no models/model.pt.*TorchScript is not read"):
        read_model(folder)
    (folder / "configs/inference.yaml").write_text("a: !!python/name:os.system x")
    with pytest.raises(ModelFileError, match=r"inference.yaml"):
        read_model(folder)
    (folder / "configs/inference.yaml").unlink()
    assert not is_model(folder)


def test_references() -> None:
    deep: Any = "@a"
    values = {
        "a": {"b": [1, {"c": "@d"}]},
        "d": "@e#1",
        "e": [0, "x"],
        "f": deep,
        "loop": ["@loop"],
    }
    said = Bundle(values, "here")
    assert said.data("f::b::1::c") == said.data("f#b#1#c") == "x"
    assert said.data("a") == {"b": [1, {"c": "x"}]}
    assert said.first("g", "a::b::7", "e::0") == "e::0"
    with pytest.raises(UnreadError, match="refers to itself, or holds too much"):
        said.data("loop")
    wide: dict[str, Any] = {f"l{n}": [f"@l{n + 1}"] * 10 for n in range(20)} | {"l20": 1}
    with pytest.raises(UnreadError, match="holds too much"):
        Bundle(wide, "here").data("l0")
