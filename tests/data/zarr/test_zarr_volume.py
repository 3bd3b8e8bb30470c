"""Zarr folders, formats 2 and 3, plain and with OME metadata, written by zarr itself."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from znnpy.data.opening import open_volume
from znnpy.data.zarr.store import ZarrFolder
from znnpy.errors import VolumeError

CUBE = np.random.default_rng(0).integers(0, 60000, (7, 20, 24)).astype(np.uint16)
TRANSFORMS = "coordinateTransformations"
SCALE = {"type": "scale", "scale": [0.04, 0.008, 0.004]}
AXES = [{"name": n, "type": "space", "unit": "micrometer"} for n in "zyx"]


def image(path: Path, form: int, array: Any = CUBE, axes: Any = None, **more: Any) -> None:
    """An OME image of two levels; `more` replaces entries of its metadata."""
    group = zarr.open_group(path, mode="w", zarr_format=form)
    for name, values in (("s0", array), ("s1", array[..., ::2, ::2])):
        chunks = (*(1,) * (array.ndim - 3), 4, 8, 8)
        group.create_array(name, data=np.ascontiguousarray(values), chunks=chunks)
    datasets = [
        {"path": "s0", "coordinateTransformations": [SCALE]},
        {
            "path": "s1",
            "coordinateTransformations": [{"type": "scale", "scale": [0.04, 0.016, 0.008]}],
        },
    ]
    entry = {"axes": axes or AXES, "datasets": datasets, "version": "0.4", **more}
    found = {"multiscales": [entry]}
    group.attrs.update(found if form == 2 else {"ome": {"version": "0.5", **found}})


@pytest.mark.parametrize("form", [2, 3])
def test_image_and_its_levels(tmp_path: Path, form: int) -> None:
    image(tmp_path / "a.zarr", form)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.name == f"{tmp_path}/a.zarr:s0"
        assert (volume.shape, volume.dtype) == ((1, *CUBE.shape), np.uint16)
        assert volume.resolution == pytest.approx((40, 8, 4))
        assert volume.chunk == (4, 8, 8)
        assert np.array_equal(volume.read_all()[0], CUBE)
        assert np.array_equal(volume.read((1, 3, 9), (6, 8, 23))[0], CUBE[1:6, 3:8, 9:23])
    for source in (f"{tmp_path}/a.zarr:s1", tmp_path / "a.zarr" / "s1"):
        with open_volume(source) as volume:
            assert volume.resolution == pytest.approx((40, 16, 8))
            assert np.array_equal(volume.read_all()[0], CUBE[:, ::2, ::2])


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("names", ["yx", "cyx", "tcyx"])
def test_a_plane_is_one_slice(tmp_path: Path, form: int, names: str) -> None:
    full = CUBE[:3] if names == "cyx" else CUBE[None, :2] if names == "tcyx" else CUBE[0]
    units = {"t": "time", "c": "channel"}
    axes = [{"name": name, "type": units.get(name, "space")} for name in names]
    scale = {"type": "scale", "scale": [1.0] * (len(names) - 2) + [0.5, 0.5]}
    datasets = [{"path": "s0", "coordinateTransformations": [scale]}]
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=form)
    group.create_array("s0", data=full, chunks=(*(1,) * (full.ndim - 2), 8, 8))
    found = {"multiscales": [{"axes": axes, "datasets": datasets, "version": "0.4"}]}
    group.attrs.update(found if form == 2 else {"ome": {"version": "0.5", **found}})
    wanted = full.reshape(-1, 1, 20, 24)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.shape == wanted.shape
        assert volume.chunk == (1, 8, 8)
        assert volume.resolution == (1, 1, 1)
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((0, 3, 9), (1, 8, 23)), wanted[:, :, 3:8, 9:23])


def test_a_plane_without_metadata(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=CUBE[0], chunks=(8, 8))
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all()[0, 0], CUBE[0])


@pytest.mark.parametrize("form", [2, 3])
def test_labels_of_a_series(tmp_path: Path, form: int) -> None:
    """As bioformats2raw lays images out: the labels lie within image 0, and are not the image."""
    path, labels = tmp_path / "a.zarr", (CUBE % 5).astype(np.uint8)
    root = zarr.open_group(path, mode="w", zarr_format=form)
    series = {"bioformats2raw.layout": 3}
    root.attrs.update(series if form == 2 else {"ome": {"version": "0.5", **series}})
    image(path / "0", form)
    with open_volume(path, role="labels") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)
    listed = zarr.open_group(path / "0" / "labels", mode="w", zarr_format=form)
    names = {"labels": ["cells"]}
    listed.attrs.update(names if form == 2 else {"ome": {"version": "0.5", **names}})
    image(path / "0" / "labels" / "cells", form, labels)
    for role, wanted in (("labels", labels), ("raw", CUBE)):
        with open_volume(path, role=role) as volume:
            assert np.array_equal(volume.read_all()[0], wanted)


def test_reads_that_stop_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(tmp_path / "a.zarr", 3)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: real(file, min(size, 100), at))
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


def level(path: str, scale: list[float] | None) -> dict[str, Any]:
    steps = [{"type": "scale", "scale": scale}] if scale else None
    return {"path": path, "coordinateTransformations": steps}


@pytest.mark.parametrize("form", [2, 3])
def test_the_finest_level_is_meant_in_whatever_order(tmp_path: Path, form: int) -> None:
    coarse, fine = level("s1", [0.04, 0.016, 0.008]), level("s0", [0.04, 0.008, 0.004])
    image(tmp_path / "a.zarr", form, datasets=[coarse, fine])
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.name == f"{tmp_path}/a.zarr:s0"
        assert volume.resolution == pytest.approx((40, 8, 4))
        assert np.array_equal(volume.read_all()[0], CUBE)
    image(tmp_path / "b.zarr", form, datasets=[level("s1", None), fine])
    with open_volume(tmp_path / "b.zarr") as volume:
        assert volume.name == f"{tmp_path}/b.zarr:s1"


@pytest.mark.parametrize("key", ["scale", "translation"])
def test_sizes_that_no_number_holds_are_refused(tmp_path: Path, key: str) -> None:
    axes = [{"name": n, "type": "space", "unit": "meter"} for n in "zyx"]
    steps = [{"type": "scale", "scale": [1, 1, 1]}, {"type": key, key: [1e305, 1, 1]}]
    image(tmp_path / "a.zarr", 3, axes=axes, datasets=[{**level("s0", None), TRANSFORMS: steps}])
    with pytest.raises(VolumeError, match="must be finite numbers"):
        open_volume(tmp_path / "a.zarr")


def test_translations_and_those_of_all_levels(tmp_path: Path) -> None:
    steps = [SCALE, {"type": "translation", "translation": [1, 2, 3]}]
    after = [
        {"type": "scale", "scale": [1, 2, 1]},
        {"type": "translation", "translation": [0, 0, 1]},
    ]
    datasets = [{"path": "s0", "coordinateTransformations": steps}]
    image(tmp_path / "a.zarr", 3, datasets=datasets, coordinateTransformations=after)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.resolution == pytest.approx((40, 16, 4))
        assert volume.offset == pytest.approx((1000, 4000, 4000))


def test_units_and_channels(tmp_path: Path) -> None:
    array = np.stack([CUBE, CUBE + 1])
    units = ("nanometer", "angstrom", "millimeter")
    axes = [
        {"name": "c", "type": "channel"},
        *({"name": n, "type": "space", "unit": u} for n, u in zip("zyx", units, strict=True)),
    ]
    scale = {"type": "scale", "scale": [1, 30, 60, 0.000005]}
    datasets = [{"path": "s0", "coordinateTransformations": [scale]}]
    image(tmp_path / "a.zarr", 2, array, axes, datasets=datasets)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.shape == (2, *CUBE.shape)
        assert volume.resolution == pytest.approx((30, 6, 5))
        assert np.array_equal(volume.read((1, 0, 0), (3, 9, 9)), array[:, 1:3, :9, :9])


def test_one_time_is_passed_over(tmp_path: Path) -> None:
    axes = [
        {"name": "t", "type": "time", "unit": "second"},
        {"name": "c", "type": "channel"},
        *AXES,
    ]
    scale = {"type": "scale", "scale": [1, 1, *SCALE["scale"]]}
    datasets = [{"path": "s0", "coordinateTransformations": [scale]}]
    image(tmp_path / "a.zarr", 3, CUBE[None, None], axes, datasets=datasets)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.shape == (1, *CUBE.shape)
        assert volume.resolution == pytest.approx((40, 8, 4))
        assert np.array_equal(volume.read_all()[0], CUBE)
    image(tmp_path / "b.zarr", 3, np.stack([CUBE[None]] * 2), axes, datasets=datasets)
    with pytest.raises(VolumeError, match=r"axes \(t, c, z, y, x\).*at one time"):
        open_volume(tmp_path / "b.zarr")


def test_old_metadata_and_series(tmp_path: Path) -> None:
    image(tmp_path / "a.zarr" / "0", 2, axes=["z", "y", "x"], datasets=[{"path": "s0"}])
    group = zarr.open_group(tmp_path / "a.zarr", mode="a", zarr_format=2)
    group.attrs["bioformats2raw.layout"] = 3
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.name.endswith("a.zarr:0/s0")
        assert volume.resolution == (1, 1, 1)


def test_labels_beside_an_image(tmp_path: Path) -> None:
    image(tmp_path / "a.zarr", 3)
    image(tmp_path / "a.zarr" / "labels" / "cells", 3, CUBE + 1)
    group = zarr.open_group(tmp_path / "a.zarr" / "labels", mode="a", zarr_format=3)
    group.attrs["ome"] = {"labels": ["cells"]}
    with open_volume(tmp_path / "a.zarr", role="labels") as volume:
        assert volume.name.endswith(":labels/cells/s0")
        assert np.array_equal(volume.read_all()[0], CUBE + 1)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.name.endswith(":s0")


@pytest.mark.parametrize("form", [2, 3])
def test_plain_arrays_and_attributes(tmp_path: Path, form: int) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=form)
    made = root.create_array("volumes/raw", data=CUBE, chunks=(3, 20, 5))
    made.attrs.update({"resolution": [40, 4, 4], "offset": [40, 0, 8]})
    root.create_array("other", data=CUBE)
    for source in (tmp_path / "a.zarr", f"{tmp_path}/a.zarr:volumes/raw"):
        with open_volume(source) as volume:
            assert (volume.resolution, volume.offset) == ((40, 4, 4), (40, 0, 8))
            assert np.array_equal(volume.read_all()[0], CUBE)
    zarr.create_array(tmp_path / "b.zarr", data=CUBE.astype(">i4"), zarr_format=form)
    with open_volume(tmp_path / "b.zarr") as volume:
        assert volume.dtype == np.dtype("=i4")
        assert np.array_equal(volume.read_all()[0], CUBE)


CODECS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "gzip": {"compressors": zarr.codecs.GzipCodec(level=1)},
    "zstd": {"compressors": zarr.codecs.ZstdCodec(level=1, checksum=True)},
    "crc32c": {"compressors": [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()]},
    "transpose": {"filters": zarr.codecs.TransposeCodec(order=(2, 1, 0))},
    "shards": {"shards": (8, 16, 24)},
    "dots": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}


@pytest.mark.parametrize("options", CODECS.values(), ids=CODECS.keys())
def test_codecs_of_format_3(tmp_path: Path, options: dict[str, Any]) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=CUBE, chunks=(4, 8, 8), **options)
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read((1, 2, 3), (7, 20, 22))[0], CUBE[1:7, 2:20, 3:22])


@pytest.mark.parametrize("kind", ["Blosc", "Zlib", "GZip", "Zstd", "LZ4", "BZ2", None])
def test_codecs_of_format_2(tmp_path: Path, kind: str | None) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    codec = None if kind is None else getattr(numcodecs, kind)()
    zarr.create_array(
        tmp_path / "a.zarr",
        data=CUBE,
        chunks=(4, 8, 8),
        zarr_format=2,
        compressors=codec,
        order="F",
    )
    with open_volume(tmp_path / "a.zarr") as volume:
        assert np.array_equal(volume.read_all()[0], CUBE)


def test_absent_chunks_are_the_fill_value(tmp_path: Path) -> None:
    made = zarr.create_array(
        tmp_path / "a.zarr", shape=(64, 64, 64), chunks=(16,) * 3, dtype="u1", fill_value=7
    )
    made[:16, :16, :16] = 1
    with open_volume(tmp_path / "a.zarr") as volume:
        assert volume.read((0, 0, 0), (17, 1, 1)).ravel().tolist() == [1] * 16 + [7]


def test_closed(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=CUBE)
    volume = open_volume(tmp_path / "a.zarr")
    volume.close()
    with pytest.raises(VolumeError, match="closed"):
        volume.read_all()


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_failed_read_leaves_nothing_behind_that_asyncio_would_tell_of(
    tmp_path: Path, harm: str
) -> None:
    array = zarr.create_array(
        str(tmp_path / "a.zarr"), name="raw", shape=(32, 32, 32), chunks=(4, 4, 4), dtype="u1"
    )
    array[:] = 7
    volume = open_volume(f"{tmp_path}/a.zarr:raw")
    volume.read((0, 0, 0), (32, 32, 32))
    for file in (tmp_path / "a.zarr/raw/c").rglob("*"):
        if file.is_file():
            file.unlink() if harm == "gone" else file.write_bytes(b"damaged")
    with pytest.raises(VolumeError):
        volume.read((0, 0, 0), (32, 32, 32))
    assert sync(others()) == 0


async def others() -> int:
    """Tasks of zarr's loop besides this one."""
    return len(asyncio.all_tasks()) - 1


def test_stored_bytes_are_counted_until_they_are_enough(tmp_path: Path) -> None:
    sizes = {"c/0": 10, "c/1/0": 20, "c/1/1": 30, "c/zarr.json": 1000}
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    folder = ZarrFolder(tmp_path)
    assert folder.stored("c", 1e9) == 60
    assert folder.stored("c", 1) == 10
    assert folder.stored("c", 11) == 60


def test_readers_of_several_threads_that_fail_at_once_wait_for_chunks_alone(
    tmp_path: Path,
) -> None:
    zarr.create_array(str(tmp_path / "a.zarr"), data=CUBE, chunks=(4, 8, 8))
    for file in (tmp_path / "a.zarr").rglob("*"):
        if file.is_file() and "zarr.json" not in file.name:
            file.write_bytes(b"damaged")
    refused, together = [], threading.Barrier(4)
    with open_volume(str(tmp_path / "a.zarr")) as volume:

        def read() -> None:
            for _ in range(50):
                together.wait()
                with pytest.raises(VolumeError, match="damaged"):
                    volume.read((0, 0, 0), CUBE.shape)
            refused.append(True)

        readers = [threading.Thread(target=read, daemon=True) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(300)
    assert len(refused) == 4
