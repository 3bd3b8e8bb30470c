"""Patterns and folders in `data`: which volumes they are, and what does not pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from znnpy.config import dump, load_config
from znnpy.config.loading import config_from
from znnpy.errors import ConfigError

NETWORK = {"layers": [{"conv": {"channels": 1, "size": 3}}]}
TRAINING = {"output_shape": 4, "iterations": 1}


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def train(folder: Path, *entries: dict[str, Any], key: str = "train") -> list[dict[str, str]]:
    data = {"train": [], key: list(entries)}
    config = config_from({"network": NETWORK, "data": data, "training": TRAINING}, folder)
    sections = getattr(config.data, key)
    groups = ({k: getattr(s, k) for k in ("image", "labels", "mask")} for s in sections)
    return [
        {
            f"{role}{node and ':'}{node}": str(source).removeprefix(f"{folder}/")
            for role, group in found.items()
            for node, source in (group or {}).items()
        }
        for found in groups
    ]


@pytest.mark.parametrize("key", ["train", "validation", "test"])
def test_names_are_paired_by_what_varies(tmp_path: Path, key: str) -> None:
    made(tmp_path, *(f"t/s{n}_{what}.tif" for n in (1, 2, 10) for what in ("raw", "labels")))
    made(tmp_path, "t/.s3_raw.tif", "t/notes.txt")
    wanted = [{"image": f"t/s{n}_raw.tif", "labels": f"t/s{n}_labels.tif"} for n in (1, 2, 10)]
    assert train(tmp_path, {"image": "t/*_raw.tif", "labels": "t/*_labels.tif"}, key=key) == wanted


def test_datasets_nodes_and_masks(tmp_path: Path) -> None:
    made(tmp_path, "a1.h5", "a2.h5", "m/a1.h5", "m/a2.h5", "single.h5")
    entries = (
        {"image": "a?.h5:raw", "labels": "a?.h5:volumes/labels", "mask": "m/a?.h5"},
        {"image": {"ct": "a[12].h5:ct", "mr": "m/a[12].h5"}},
        {"image": "single.h5"},
    )
    assert train(tmp_path, *entries) == [
        *(
            {"image": f"a{n}.h5:raw", "labels": f"a{n}.h5:volumes/labels", "mask": f"m/a{n}.h5"}
            for n in (1, 2)
        ),
        *({"image:ct": f"a{n}.h5:ct", "image:mr": f"m/a{n}.h5"} for n in (1, 2)),
        {"image": "single.h5"},
    ]


def test_names_of_nnunet(tmp_path: Path) -> None:
    made(
        tmp_path,
        "imagesTr/b_0000.nii.gz",
        "imagesTr/a_0000.nii.gz",
        "labelsTr/a.nii.gz",
        "labelsTr/b.nii.gz",
    )
    found = train(tmp_path, {"image": "imagesTr/*_0000.nii.gz", "labels": "labelsTr/*.nii.gz"})
    assert [entry["labels"] for entry in found] == ["labelsTr/a.nii.gz", "labelsTr/b.nii.gz"]
    assert [entry["image"] for entry in found] == [
        "imagesTr/a_0000.nii.gz",
        "imagesTr/b_0000.nii.gz",
    ]


def test_folders(tmp_path: Path) -> None:
    made(tmp_path, "raw/a.nii.gz", "raw/b.nii", "raw/notes.txt", "truth/a.mha", "truth/b.h5")
    made(tmp_path, "deep/x/1/r.h5", "deep/y/r.h5", "deep/x/1/l.h5", "deep/y/l.h5")
    assert train(tmp_path, {"image": "raw", "labels": "truth"}) == [
        {"image": "raw/a.nii.gz", "labels": "truth/a.mha"},
        {"image": "raw/b.nii", "labels": "truth/b.h5"},
    ]
    assert train(tmp_path, {"image": "deep/**/r.h5", "labels": "deep/**/l.h5"}) == [
        {"image": "deep/x/1/r.h5", "labels": "deep/x/1/l.h5"},
        {"image": "deep/y/r.h5", "labels": "deep/y/l.h5"},
    ]


def test_what_is_one_volume_stays_one(tmp_path: Path) -> None:
    made(tmp_path, "planes/1.tif", "planes/2.tif", "planes/a.h5", "a.zarr/zarr.json", "a.zarr/x.h5")
    made(
        tmp_path, "group/.zgroup", "group/x.h5", "odd[1]*.h5", "pictures/1.PNG", "nothing/notes.txt"
    )
    for name in ("planes", "a.zarr", "group", "odd[1]*.h5", "pictures", "nothing", "missing.h5"):
        assert train(tmp_path, {"image": name}) == [{"image": name}]


def test_a_set_is_kept_as_its_files(tmp_path: Path) -> None:
    made(tmp_path, "a1.h5", "a2.h5")
    (tmp_path / "c.yaml").write_text(
        "network: {layers: [{conv: {channels: 1, size: 3}}]}\ndata: {train: [{image: 'a*.h5'}]}\n"
        "training: {output_shape: 4, iterations: 1}\n"
    )
    text = dump(load_config(tmp_path / "c.yaml"))
    assert f"{tmp_path}/a1.h5" in text
    assert "*" not in text


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"image": "x*.h5"}, ["entry 1: no file is named", "x*.h5"]),
        ({"image": "*_raw.h5", "labels": "*_lab.h5"}, ["_raw.h5 names 3, ", "_lab.h5 2; ",
         "no labels for 2_raw.h5, 3_raw.h5;", "no image for 9_lab.h5."]),
        ({"image": "*_raw.h5", "labels": "1_lab.h5"}, ["no labels for 1_raw.h5, 2_raw.h5, 3_raw.h5"]),
        ({"image": "*_raw.h5", "mask": "[z-a]_raw.h5"}, ["is no pattern"]),
        ({"image": {"a": "*_raw.h5", "b": "*_lab.h5"}}, ["no image of b for 2_raw.h5"]),
        ({"image": "many", "labels": "few"}, ["no labels for f0.h5, f1.h5, f2.h5, f3.h5, f4.h5 and 1 more"]),
        ({"image": "twice"}, ["files of one name and several suffixes"]),
    ],
)  # fmt: skip
def test_what_does_not_pair(tmp_path: Path, entry: dict[str, Any], words: list[str]) -> None:
    made(tmp_path, "1_raw.h5", "2_raw.h5", "3_raw.h5", "1_lab.h5", "9_lab.h5", "few/g.h5")
    made(tmp_path, *(f"many/f{n}.h5" for n in range(6)), "twice/a.h5", "twice/a.nii")
    with pytest.raises(ConfigError) as caught:
        train(tmp_path, entry)
    assert "data.train" in str(caught.value)
    for word in words:
        assert word in str(caught.value)
