"""FILE:DATASET is cut in one way, wherever it stands, and what is no file of this machine is refused."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

from znnpy.config.data_section import VolumeSection
from znnpy.config.training_section import RunSection
from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.dataset_path import address, joined, split, split_source
from znnpy.errors import VolumeError

NAMES = {
    "a.h5": ("a.h5", None),
    "a.h5:x/y": ("a.h5", "x/y"),
    "a.HDF5:/x//./y/": ("a.HDF5", "x/y"),
    "a.h5://x": ("a.h5", "x"),
    "run:1/a.h5:raw:2": ("run:1/a.h5", "raw:2"),
    "out put:1.h5": ("out put:1.h5", None),
    "out put:1.h5:x": ("out put:1.h5", "x"),
    "a.zarr/": ("a.zarr/", None),
    "a.zarr/:x": ("a.zarr", "x"),
    "b/a.ome.zarr:labels/0": ("b/a.ome.zarr", "labels/0"),
    "a:b.tif": ("a:b.tif", None),
    "c:d.h5": ("c:d.h5", None),
}
ELSEWHERE = {
    "abfs://bucket/p.zarr": "is a URL.*name the path of a copy here",
    "ftp://host/p.h5:x": "is a URL",
    "precomputed://gs://bucket/volume": "begins as Neuroglancer.s names do: name gs://bucket/volume",
    "zarr://https://host/a.zarr|zarr3:": r"name https://host/a\.zarr(?!\|)",
    "file:///data/p.h5": "name the path /data/p.h5",
    "file:/data/p.h5": "name the path /data/p.h5",
    "C:\\data\\p.h5": "a path of Windows.*under WSL it is /mnt/c/data/p.h5",
    "c:/data/p.h5:x": "a path of Windows.*under WSL it is /mnt/c/data/p.h5:x",
    "\\\\host\\share\\p.h5": "a path of Windows",
    "a.h5:": "no dataset is named after the colon",
    "a.h5:/": "no dataset is named after the colon",
    "": "names no file|must be a path",
    ":raw": "':raw' names no file",
    "a\0b.h5": "names no file|must be a path",
}


@pytest.mark.parametrize("name", NAMES)
def test_one_way_of_cutting(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, dataset = NAMES[name]
    assert split(name) == (path, dataset)
    assert split(joined(path, dataset or "")) == (path, dataset)
    source = VolumeSection.model_validate({"image": name}).image[""]
    assert (str(source.path), source.dataset) == (str(Path(path)), dataset)
    if not path.endswith(".tif"):
        there = Destination.named(name, "usual")
        usual = "" if there.format.name == "zarr" else "usual"
        assert (there.path, there.dataset) == (Path(path), dataset or usual)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_names_no_file_is_refused_everywhere(name: str) -> None:
    for use in (split, open_volume, lambda text: Destination.named(text, "p")):
        with pytest.raises(VolumeError, match=ELSEWHERE[name]):
            use(name)
    with pytest.raises(ValidationError, match=ELSEWHERE[name]):
        VolumeSection.model_validate({"image": name})


ADDRESSES = {
    "s3://bucket/p.zarr": ("s3://bucket/p.zarr", None),
    "gs://bucket/a/b.n5:raw/s0": ("gs://bucket/a/b.n5", "raw/s0"),
    "http://host:8080/volume": ("http://host:8080/volume", None),
    "https://host/volume:4_4_40": ("https://host/volume", "4_4_40"),
    "HTTPS://host/a.zarr/:0/": ("https://host/a.zarr/", "0"),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_addresses_are_cut_too(name: str, tmp_path: Path) -> None:
    url, dataset = ADDRESSES[name]
    assert split(name) == (url, dataset)
    path, _ = split_source(name)
    assert address(path) == url.rstrip("/")
    assert split(joined(path, dataset or "")) == (url.rstrip("/"), dataset)
    section = VolumeSection.model_validate({"image": name}, context={"folder": tmp_path})
    source = section.image[""]
    assert (source.path, source.dataset) == (path, dataset)
    again = VolumeSection.model_validate({"image": str(source)}, context={"folder": tmp_path})
    assert again.image[""] == source
    if url.startswith("http"):
        with pytest.raises(VolumeError, match="is read, not written: name a file here"):
            Destination.named(name, "p")
        return
    found = Destination.named(name, "p")
    assert (found.url, found.dataset, found.place) == (url, dataset or "", url)
    assert found.path.parent == Path.cwd()
    assert found.path.suffix == Path(url).suffix


@pytest.mark.parametrize("name", ["s3://bucket/run", "C:\\run", "file:///run"])
def test_other_paths_of_configs_are_of_this_machine_too(name: str) -> None:
    with pytest.raises(ValidationError, match=r"must be a path; .* is a "):
        RunSection.model_validate({"directory": name})


def test_names_that_cannot_be_looked_for_are_cut_too() -> None:
    for path in ("x" * 5000 + ".h5", "~nobody_there/a.h5"):
        assert split(f"{path}:raw") == (path, "raw")


def test_what_is_there_decides_where_suffixes_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("noname", "w") as file:
        file["x:y"] = np.zeros((2, 3, 4))
    assert split("noname:x:y") == ("noname", "x:y")
    assert split("other:x") == ("other:x", None)
    assert open_volume("noname:x:y").extent == (2, 3, 4)
    Path("a.h5:x").touch()
    assert split("a.h5:x") == ("a.h5:x", None)
    Path("s3").touch()
    with pytest.raises(VolumeError, match="is a URL"):
        split("ftp://bucket/p.zarr")
    section = VolumeSection.model_validate({"image": "noname:x:y"}, context={"folder": tmp_path})
    assert section.image[""].path == tmp_path / "noname"
    monkeypatch.chdir("/")
    context = {"folder": tmp_path}
    section = VolumeSection.model_validate({"image": "noname:x:y"}, context=context)
    assert section.image[""].dataset == "x:y"


def test_text_is_split_and_a_path_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert split_source("~/a.h5:x/y") == (Path("/home/me/a.h5"), "x/y")
    assert split_source(Path("a.h5:x")) == (Path("a.h5:x"), None)
    with pytest.raises(VolumeError, match="names a home that is not known"):
        split_source("~nobody_there/a.h5")
