"""Zarr folders of unknown origin: each is refused with one error that names folder and array."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

CUBE = np.arange(4 * 6 * 8, dtype=np.uint8).reshape(4, 6, 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image of one level, format 3."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    group.create_array("0", data=CUBE, chunks=(2, 3, 4))
    axes = [{"name": n, "type": "space", "unit": "nanometer"} for n in "zyx"]
    steps = [{"type": "scale", "scale": [40, 4, 4]}]
    entry = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": steps}]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [entry]}
    return tmp_path / "a.zarr"


def refused(source: object, *words: str, **options: Any) -> str:
    with pytest.raises(VolumeError) as caught, open_volume(str(source), **options) as volume:
        volume.read_all()
    text = str(caught.value)
    for word in words:
        assert word in text
    assert len(text) < 1000
    return text


def change(path: Path, make: Callable[[dict[str, Any]], object]) -> None:
    metadata = json.loads(path.read_text())
    make(metadata)
    path.write_text(json.dumps(metadata))


def grid(*chunk: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": chunk}}


def gzip(level: Any) -> dict[str, Any]:
    return {"name": "gzip", "configuration": {"level": level}}


def keys(separator: str) -> dict[str, Any]:
    return {"name": "default", "configuration": {"separator": separator}}


ARRAYS: dict[str, tuple[Callable[[dict[str, Any]], object], list[str]]] = {
    "no shape": (lambda m: m.pop("shape"), ["shape", "whole numbers"]),
    "negative": (lambda m: m.update(shape=[4, -6, 8]), ["shape", "-6"]),
    "floats": (lambda m: m.update(shape=[4.0, 6, 8]), ["shape", "4.0"]),
    "huge": (lambda m: m.update(shape=[1 << 20] * 3), ["declares", "TiB"]),
    "beyond integers": (lambda m: m.update(shape=[1 << 70] * 3), ["shape"]),
    "empty": (lambda m: m.update(shape=[0, 6, 8]), ["empty"]),
    "2-D, of axes z, y, x": (lambda m: m.update(shape=[6, 8], chunk_grid=grid(3, 4)), ["(z, y, x) of shape (6, 8)"]),
    "1-D": (lambda m: m.update(shape=[6], chunk_grid=grid(3)), ["1 axes"]),
    "text": (lambda m: m.update(data_type="string"), ["plain numbers", "string"]),
    "complex": (lambda m: m.update(data_type="complex64"), ["plain numbers"]),
    "other codec": (lambda m: m["codecs"].append({"name": "numcodecs.pickle"}), ["numcodecs.pickle", "only"]),
    "no codecs": (lambda m: m.update(codecs=[]), ["codecs"]),
    "codecs of another kind": (lambda m: m.update(codecs=7), ["codecs"]),
    "no array codec": (lambda m: m.update(codecs=[gzip(1)]), ["malformed"]),
    "wrong level": (lambda m: m["codecs"].append(gzip("x")), ["malformed"]),
    "chunk grid": (lambda m: m.update(chunk_grid={"name": "rectilinear"}), ["chunk grid", "rectilinear"]),
    "chunk of other axes": (lambda m: m.update(chunk_grid=grid(2, 3)), ["chunk_shape"]),
    "huge chunk": (lambda m: m.update(chunk_grid=grid(1 << 12, 1 << 12, 1 << 12)), ["chunks of shape"]),
    "keys": (lambda m: m.update(chunk_key_encoding=keys("/../")), ["chunk_key_encoding"]),
    "codec of another kind": (lambda m: m.update(codecs=[{"name": 7}]), ["a name and a configuration"]),
    "odd settings": (lambda m: m.update(codecs=[{"name": "bytes", "configuration": 3}]), ["a name and a conf"]),
    "transformers": (lambda m: m.update(storage_transformers=[{"name": "x"}]), ["storage transformers"]),
    "group": (lambda m: m.update(node_type="group"), ["is no array"]),
    "version": (lambda m: m.update(zarr_format=4), ["zarr_format 3", "found 4"]),
    "attributes": (lambda m: m.update(attributes=[1]), ["damaged"]),
    "axes": (lambda m: m.update(shape=[4, 6, 8, 2], chunk_grid=grid(1, 1, 1, 1)), ["axes (z, y, x)", "expected"]),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays(folder: Path, make: Callable[[dict[str, Any]], object], words: list[str]) -> None:
    change(folder / "0" / "zarr.json", make)
    refused(folder, "a.zarr", *words)


def ome(entry: dict[str, Any]) -> Callable[[dict[str, Any]], object]:
    return lambda m: m["attributes"]["ome"]["multiscales"][0].update(entry)


def steps(*made: Any) -> Callable[[dict[str, Any]], object]:
    return ome({"datasets": [{"path": "0", "coordinateTransformations": list(made)}]})


IMAGES: dict[str, tuple[Callable[[dict[str, Any]], object], list[str]]] = {
    "xyz": (ome({"axes": ["x", "y", "z"]}), ["axes (x, y, z)", "(z, y, x)"]),
    "too few": (ome({"axes": ["y", "x"], "datasets": [{"path": "0"}]}), ["axes (y, x)"]),
    "nameless axis": (ome({"axes": [{"unit": "nanometer"}] * 3}), ["no name"]),
    "axes of another kind": (ome({"axes": "zyx"}), ["axes"]),
    "unit": (ome({"axes": [{"name": n, "unit": "furlong"} for n in "zyx"]}), ["furlong", "axis z", "nanometer"]),
    "no datasets": (ome({"datasets": []}), ["no datasets"]),
    "no path": (ome({"datasets": [{}]}), ["without a path"]),
    "out": (ome({"datasets": [{"path": "../b.zarr"}]}), ["'../b.zarr/zarr.json'", "inside"]),
    "absolute": (ome({"datasets": [{"path": "/etc"}]}), ["names"[:4]]),
    "missing": (ome({"datasets": [{"path": "1"}]}), ["no array"]),
    "affine": (steps({"type": "affine"}), ["affine", "scale and translation"]),
    "zero": (steps({"type": "scale", "scale": [0, 1, 1]}), ["scale", "above 0"]),
    "two sizes": (steps({"type": "scale", "scale": [1, 1]}), ["scale", "each axis"]),
    "no number": (steps({"type": "scale", "scale": [1, 1, "x"]}), ["scale"]),
    "infinite": (steps({"type": "scale", "scale": [1, 1, float("inf")]}), ["finite"]),
    "overflow": (steps(*[{"type": "scale", "scale": [1e300] * 3}] * 2), ["finite"]),
    "no list": (ome({"datasets": [{"path": "0", "coordinateTransformations": 7}]}), ["list"]),
    "multiscales": (lambda m: m["attributes"]["ome"].update(multiscales={}), ["multiscales"]),
}  # fmt: skip


@pytest.mark.quick(8)
@pytest.mark.parametrize(("make", "words"), IMAGES.values(), ids=IMAGES.keys())
def test_images(folder: Path, make: Callable[[dict[str, Any]], object], words: list[str]) -> None:
    change(folder / "zarr.json", make)
    refused(folder, "a.zarr", *words)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "[" * 100_000, "\xff", '{"a": ' + "9" * 9999 + "}"]
)
def test_metadata_that_are_no_json_object(folder: Path, text: str) -> None:
    (folder / "0" / "zarr.json").write_text(text, encoding="latin-1")
    refused(folder, "a.zarr/0/zarr.json", "damaged")


def test_format_2(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"

    def made(**more: Any) -> None:
        zarr.create_array(path, data=CUBE, zarr_format=2, overwrite=True)
        change(path / ".zarray", lambda m: m.update(more))

    made(compressor={"id": "pickle"})
    refused(path, "'pickle'", "only blosc", "are read: write it again with one")
    made(filters=[{"id": "delta", "dtype": "u1"}])
    refused(path, "filters", "delta", "again with filters=None")
    for dtype in ("|O", "<c8", "<U4", [["a", "<i4"]], "?!", None):
        made(dtype=dtype)
        refused(path, "a.zarr", "plain numbers")
    made(dimension_separator="..")
    refused(path, "dimension_separator")


def test_links(folder: Path) -> None:
    outside = folder.parent / "secret"
    outside.write_bytes((folder / "0/c/0/0/0").read_bytes())
    (folder / "0/c/0/0/0").unlink()
    (folder / "0/c/0/0/0").symlink_to(outside)
    refused(folder, "0/c/0/0/0", "leads out", "allow_external_links")
    with open_volume(folder, allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


def test_linked_array_and_metadata(folder: Path) -> None:
    array = (folder / "0").rename(folder.parent / "elsewhere")
    (folder / "0").symlink_to(array)
    refused(folder, "leads out")
    (folder / "0").unlink()
    (folder / "own").symlink_to("0")
    array.rename(folder / "0")
    with open_volume(f"{folder}:own") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)
    (folder / "0/zarr.json").unlink()
    (folder / "0/zarr.json").symlink_to("/etc/passwd")
    refused(folder, "leads out")


def test_a_link_to_the_folder_is_the_users_own(folder: Path) -> None:
    (folder.parent / "b.zarr").symlink_to(folder)
    with open_volume(folder.parent / "b.zarr") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


@pytest.mark.parametrize("name", ["..", "../a.zarr/0", "0/../../x"])
def test_paths_that_leave_the_folder(folder: Path, name: str) -> None:
    refused(f"{folder}:{name}", "inside the Zarr folder")


def test_special_files_and_folders_instead_of_chunks(folder: Path) -> None:
    (folder / "0/c/0/0/0").unlink()
    os.mkfifo(folder / "0/c/0/0/0")
    refused(folder, "no plain file")
    (folder / "0/c/0/0/0").unlink()
    (folder / "0/c/0/0/0").mkdir()
    refused(folder, "a folder where a file was expected")


def test_chunk_file_much_larger_than_a_chunk(folder: Path) -> None:
    with (folder / "0/c/0/0/0").open("wb") as file:
        file.truncate(1 << 40)
    refused(folder, "1.0 TiB", "at most")
    with (folder / "0/c/0/0/0").open("wb") as file:
        file.truncate(1 << 20)
    refused(folder, "1.0 MiB", "at most 64.0 KiB")


@pytest.mark.parametrize("content", [b"", b"no zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 20])
def test_damaged_chunk(folder: Path, content: bytes) -> None:
    (folder / "0/c/1/1/1").write_bytes(content)
    refused(folder, "a.zarr:0", "damaged")


def test_damaged_index_of_a_shard(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=CUBE, chunks=(2, 3, 4), shards=CUBE.shape)
    shard = tmp_path / "a.zarr/c/0/0/0"
    data = bytearray(shard.read_bytes())
    data[-30] ^= 0xFF
    shard.write_bytes(data)
    refused(tmp_path / "a.zarr", "a.zarr", "damaged")


def test_shard_of_too_many_chunks(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=CUBE, chunks=(2, 3, 4), shards=CUBE.shape)

    def many(metadata: dict[str, Any]) -> None:
        metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 10] * 3
        metadata["codecs"][0]["configuration"]["chunk_shape"] = [1, 1, 1]

    change(tmp_path / "a.zarr/zarr.json", many)
    refused(tmp_path / "a.zarr", "chunks a shard", max_bytes=1 << 40)


def test_never_written(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", shape=(9, 9, 9), chunks=(3, 3, 3), dtype="u1")
    refused(tmp_path / "a.zarr", "no data was ever written")


def test_limit_of_the_caller(folder: Path) -> None:
    refused(folder, "at most 191 B", max_bytes=191)
    open_volume(folder, max_bytes=192).close()


def test_names(folder: Path) -> None:
    refused(f"{folder}:00", "a.zarr", "no array 00", "It holds: 0")
    refused(folder.parent, "no Zarr, N5 or precomputed one")
    (folder.parent / "b.zarr").mkdir()
    refused(folder.parent / "b.zarr", "no Zarr folder", "zarr.json")
    zarr.open_group(folder.parent / "c.zarr", mode="w")
    refused(folder.parent / "c.zarr", "holds no array")
    group = zarr.open_group(folder.parent / "d.zarr", mode="w")
    for name in ("one", "two"):
        group.create_array(name, data=CUBE)
    refused(folder.parent / "d.zarr", "one, two", "FOLDER:ARRAY")


@pytest.mark.parametrize("value", [[4, 4], [4, 0, 4], "4 4 4", [4, None, 4], [1e301] * 3, {}])
def test_wrong_resolution(tmp_path: Path, value: Any) -> None:
    made = zarr.create_array(tmp_path / "a.zarr", data=CUBE)
    made.attrs["resolution"] = value
    refused(tmp_path / "a.zarr", "a.zarr")


def test_series_in_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = {"ome": {"version": "0.5", "bioformats2raw.layout": 3}}
    text = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": series})
    monkeypatch.chdir(tmp_path)
    for _ in range(50):
        Path("zarr.json").write_text(text)
        Path("0").mkdir()
        os.chdir("0")
    for role in ("raw", "labels"):
        refused(tmp_path, "in each other; name the array", role=role)
