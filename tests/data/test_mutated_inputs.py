"""Files damaged at random, the same each time: they open and read, or are refused by one error."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import zarr

from znnpy.data.source import open_volume
from znnpy.errors import VolumeError

CUBE = np.random.default_rng(0).integers(0, 255, (4, 6, 8)).astype(np.uint8)
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**63, 2**64, 1e308, float("nan"), "", "/", "..", "\0", "é", [], {}, [[]],
    [0], [0, 0, 0], [-1] * 3, [2**40] * 3, {"name": "gzip"}, {"name": []}, "float64", "<f8", "|O",
]  # fmt: skip


def opened_or_refused(path: Path) -> bool:
    """Whether it could be read; any error but the one for people fails the test."""
    refusal = None
    try:
        with open_volume(path) as volume:
            assert len(volume.shape) == 4
            volume.read_all()
    except VolumeError as error:
        refusal = str(error)
    assert refusal is None or path.name in refusal
    return refusal is None


def write_image(path: Path, form: int) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=form)  # type: ignore[arg-type]
    more: dict[str, Any] = {"shards": (4, 6, 8)} if form == 3 else {}
    made = group.create_array("0", data=CUBE, chunks=(2, 3, 4), **more)
    made.attrs.update({"resolution": [4, 4, 4], "offset": [0, 0, 0]})
    steps = [
        {"type": "scale", "scale": [4, 4, 4]},
        {"type": "translation", "translation": [0, 0, 0]},
    ]
    axes = [{"name": n, "type": "space", "unit": "nanometer"} for n in "zyx"]
    entry = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": steps}]}
    found = {"multiscales": [entry]}
    group.attrs.update(found if form == 2 else {"ome": {"version": "0.5", **found}})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Keys of all values within a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = [path] if path else []
    for key, inside in items:
        found += places(inside, (*path, key))
    return found


def mutate(metadata: dict[str, Any], choose: random.Random) -> None:
    *above, key = choose.choice(places(metadata))
    here: Any = metadata
    for step in above:
        here = here[step]
    if choose.random() < 0.2:
        del here[key]
    else:
        here[key] = choose.choice(STRANGE)


@pytest.mark.parametrize("form", [2, 3])
def test_zarr_metadata(tmp_path: Path, form: int) -> None:
    path, choose = tmp_path / "a.zarr", random.Random(form)
    write_image(path, form)
    files = sorted(f for f in path.rglob("*") if f.name in ("zarr.json", ".zarray", ".zattrs"))
    outcomes = set()
    for _ in range(150):
        file = choose.choice(files)
        whole = file.read_text()
        metadata = json.loads(whole)
        mutate(metadata, choose)
        file.write_text(json.dumps(metadata))
        outcomes.add(opened_or_refused(path))
        file.write_text(whole)
    assert outcomes == {True, False}
    assert opened_or_refused(path)


def damaged(data: bytes, choose: random.Random) -> bytes:
    """A few bytes changed, cut off, or doubled."""
    place, size = choose.randrange(len(data)), choose.choice((1, 1, 2, 4, 8))
    kind = choose.random()
    if kind < 0.15:
        return data[:place]
    if kind < 0.25:
        return data[:place] + data[place : place + size] + data[place:]
    return data[:place] + choose.randbytes(size) + data[place + size :]


@pytest.mark.parametrize("form", [2, 3])
def test_zarr_bytes(tmp_path: Path, form: int) -> None:
    path, choose = tmp_path / "a.zarr", random.Random(form)
    write_image(path, form)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for _ in range(120):
        file = choose.choice(files)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, choose))
        opened_or_refused(path)
        file.write_bytes(whole)
    assert opened_or_refused(path)


@pytest.mark.parametrize("options", [{}, {"imagej": True}, {"compression": "zlib"}, {"ome": True}])
def test_tiff_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    path, choose = tmp_path / "a.tif", random.Random(0)
    tifffile.imwrite(path, CUBE, photometric="minisblack", metadata={"axes": "ZYX"}, **options)
    whole = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(whole, choose))
        opened_or_refused(path)


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 3, 4), "compression": "gzip"}])
def test_hdf5_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    path, choose = tmp_path / "a.h5", random.Random(0)
    with h5py.File(path, "w") as file:
        made = file.create_dataset("volumes/raw", data=CUBE, **options)
        made.attrs.update({"resolution": [4.0, 4.0, 4.0], "offset": [0, 0, 0]})
    whole = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(whole, choose))
        opened_or_refused(path)
