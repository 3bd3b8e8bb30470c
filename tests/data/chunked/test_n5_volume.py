"""N5 folders: what tensorstore writes is read voxel for voxel; damage, links and bombs are one error each."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chunked_files import write_n5
from numpy.typing import NDArray

from znnpy.data.fingerprint import fingerprint
from znnpy.data.opening import open_volume
from znnpy.errors import ChangedError, VolumeError

Array = NDArray[Any]
STACK = np.random.default_rng(0).integers(0, 200, (5, 7, 9)).astype(np.uint16)
TYPES = [
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float32",
    "float64",
]


BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": 1}


def stored(path: Path, array: Array, compression: str, **more: Any) -> None:
    """By tensorstore, whose axes are x, y, z (and c): the reverse of ours."""
    tensorstore = pytest.importorskip("tensorstore")
    store = tensorstore.open(
        {
            "driver": "n5",
            "kvstore": {"driver": "file", "path": str(path)},
            "metadata": {
                "dimensions": array.shape[::-1],
                "blockSize": (4, 3, 2, 2)[: array.ndim],
                "dataType": array.dtype.name,
                "compression": {"type": compression, **(BLOSC if compression == "blosc" else {})},
                **more,
            },
            "create": True,
        }
    ).result()
    store.write(array.T).result()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz", "zstd", "blosc"])
def test_what_tensorstore_writes(tmp_path: Path, dtype: str, compression: str) -> None:
    array = STACK.astype(dtype)
    stored(tmp_path / "a.n5", array, compression)
    with open_volume(tmp_path / "a.n5") as volume:
        assert volume.shape == (1, *array.shape)
        assert volume.dtype == array.dtype
        assert volume.chunk == (2, 3, 4)
        assert np.array_equal(volume.read_all()[0], array)
        assert np.array_equal(volume.read((1, 2, 3), (4, 7, 8))[0], array[1:4, 2:7, 3:8])
        volume.verify()


def test_channels_axes_and_sizes(tmp_path: Path) -> None:
    array = np.stack([STACK, STACK + 1, STACK + 2])
    stored(tmp_path / "a.n5" / "raw", array, "gzip")
    with open_volume(f"{tmp_path}/a.n5:raw") as volume:
        assert volume.unnamed
        assert np.array_equal(volume.read_all(), array)
    named = {
        "axes": ["x", "c", "z", "y"],
        "units": ["nm", "", "um", "nm"],
        "resolution": [4, 1, 0.04, 5],
    }
    stored(tmp_path / "b.n5", array.transpose(2, 1, 0, 3), "gzip", **named)
    with open_volume(tmp_path / "b.n5") as volume:
        assert not volume.unnamed
        assert volume.resolution == (40, 5, 4)
        assert np.array_equal(volume.read_all(), array)
        assert np.array_equal(volume.read((1, 2, 3), (4, 7, 8)), array[:, 1:4, 2:7, 3:8])


def test_blocks_that_are_absent_are_0(tmp_path: Path) -> None:
    stored(tmp_path / "a.n5", STACK, "gzip")
    (tmp_path / "a.n5" / "1" / "0" / "2").unlink()
    wanted = STACK.copy()
    wanted[4:6, 0:3, 4:8] = 0
    with open_volume(tmp_path / "a.n5") as volume:
        assert np.array_equal(volume.read_all()[0], wanted)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"pixelResolution": {"unit": "um", "dimensions": [0.004, 0.005, 0.04]}}, (40, 5, 4)),
        (
            {
                "pixelResolution": {"unit": "nm", "dimensions": [4, 5, 40]},
                "downsamplingFactors": [2, 2, 1],
            },
            (40, 10, 8),
        ),
        ({}, (1, 1, 1)),
    ],
)
def test_voxel_sizes(tmp_path: Path, attributes: dict[str, Any], wanted: Any) -> None:
    write_n5(tmp_path / "a.n5", STACK, **attributes)
    with open_volume(tmp_path / "a.n5") as volume:
        assert volume.resolution == pytest.approx(wanted)


def test_a_size_without_axes_is_told_and_not_taken(tmp_path: Path) -> None:
    write_n5(tmp_path / "a.n5", STACK, resolution=[40, 4, 4])
    with pytest.warns(UserWarning, match=r"may be x, y, z or z, y, x, and is not taken"):
        volume = open_volume(tmp_path / "a.n5")
    assert volume.resolution == (1, 1, 1)


def test_which_array_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "a.n5"
    for name, add in (("volumes/raw/s0", 0), ("volumes/raw/s1", 1), ("volumes/labels", 2)):
        write_n5(root / name, STACK + np.uint16(add))
    for source, add in ((root, 0), (f"{root}:volumes/raw/s1", 1), (root / "volumes/labels", 2)):
        with open_volume(source) as volume:
            assert np.array_equal(volume.read_all()[0], STACK + add)
    with open_volume(root, role="labels") as volume:
        assert np.array_equal(volume.read_all()[0], STACK + 2)
    with pytest.raises(
        VolumeError, match="has no array x; it holds: volumes/labels, volumes/raw/s0"
    ):
        open_volume(f"{root}:x")
    for name in ("one", "two"):
        write_n5(tmp_path / "b.n5" / name, STACK)
    with pytest.raises(VolumeError, match=r"several arrays could be meant: one, two\. Name one"):
        open_volume(tmp_path / "b.n5")
    (tmp_path / "c.n5").mkdir()
    with pytest.raises(VolumeError, match="the N5 folder holds no array"):
        open_volume(tmp_path / "c.n5")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dimensions": [9, 7]}, r"has 2 axes.*write a plane with dimensions \[x, y, 1\]"),
        ({"dimensions": [9, 7, 5, 3, 2]}, r"has 5 axes.* or 4 \(x, y, z, channels\)$"),
        ({"dimensions": [9, 7, 1.5]}, "dimensions must be whole numbers"),
        ({"dimensions": [9, 7, -5]}, "dimensions must be whole numbers"),
        ({"blockSize": [9, 7]}, "blockSize must be 3 whole numbers"),
        ({"blockSize": [2**20, 2**20, 2**20]}, "a chunk are accepted"),
        ({"dimensions": [2**20, 2**20, 2**20]}, "are accepted for what its files hold"),
        ({"dataType": "object"}, "holds object"),
        ({"compression": {"type": "lz4"}}, "compressed by lz4; N5 arrays with raw, gzip"),
        ({"compression": None}, "compressed by None"),
        ({"axes": ["x", "y", "t"]}, "axes must be x, y, z"),
        ({"pixelResolution": {"unit": "nm", "dimensions": [1, 0, 1]}}, "three positive numbers"),
    ],
)
def test_attributes_that_are_wrong(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    write_n5(tmp_path / "a.n5", STACK, **change)
    with pytest.raises(VolumeError, match=words):
        open_volume(tmp_path / "a.n5")


def block(tmp_path: Path, data: bytes, compression: str = "raw") -> Any:
    path = tmp_path / "a.n5"
    write_n5(path, STACK, compression={"type": compression})
    (path / "0" / "0" / "0").write_bytes(data)
    return open_volume(path)


HEADER = struct.pack(">HH3I", 0, 3, 9, 7, 5)


@pytest.mark.parametrize(
    ("data", "compression"),
    [
        (b"\0", "raw"),
        (HEADER, "raw"),
        (HEADER[:9], "raw"),
        (HEADER + b"\0" * 100, "raw"),
        (struct.pack(">HH3I", 0, 3, 10, 7, 5) + b"\0" * 1000, "raw"),
        (struct.pack(">HH3I", 2, 3, 9, 7, 5) + b"\0" * 1000, "raw"),
        (struct.pack(">HH2I", 0, 2, 9, 7) + b"\0" * 1000, "raw"),
        (HEADER + b"no gzip", "gzip"),
        (HEADER + zlib.compress(bytes(1 << 24), wbits=31), "gzip"),
        (HEADER + b"\xfd7zXZ", "xz"),
        (HEADER + b"(\xb5/\xfd" + b"\0" * 9, "zstd"),
        (HEADER + b"\x02" * 30, "blosc"),
    ],
)
def test_blocks_that_are_damaged(tmp_path: Path, data: bytes, compression: str) -> None:
    with (
        block(tmp_path, data, compression) as volume,
        pytest.raises(VolumeError, match=r"a\.n5: the chunk 0/0/0 is damaged"),
    ):
        volume.read_all()


def test_blocks_may_be_smaller_than_the_grid(tmp_path: Path) -> None:
    values = np.arange(24).astype(">u2").reshape(2, 3, 4)
    data = struct.pack(">HH3II", 1, 3, 4, 3, 2, 24) + values.tobytes()
    with block(tmp_path, data) as volume:
        found = volume.read_all()[0]
    assert np.array_equal(found[:2, :3, :4], values)
    assert found.sum() == values.sum()


def test_nothing_is_read_outside_the_folder(tmp_path: Path) -> None:
    write_n5(tmp_path / "secret.n5", STACK)
    write_n5(tmp_path / "a.n5", STACK)
    place = tmp_path / "a.n5" / "0" / "0" / "0"
    place.unlink()
    place.symlink_to(tmp_path / "secret.n5" / "0" / "0" / "0")
    with (
        open_volume(tmp_path / "a.n5") as volume,
        pytest.raises(VolumeError, match="leads out of the N5 folder"),
    ):
        volume.read_all()
    with open_volume(tmp_path / "a.n5", allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], STACK)
    with pytest.raises(VolumeError, match="is no path inside the N5 folder"):
        open_volume(f"{tmp_path}/a.n5:../secret.n5")


def test_changes_are_seen(tmp_path: Path) -> None:
    write_n5(tmp_path / "a.n5", STACK)
    with open_volume(tmp_path / "a.n5") as volume:
        before = fingerprint(volume, tmp_path / "a.n5")
        place = tmp_path / "a.n5" / "0" / "0" / "0"
        place.write_bytes(place.read_bytes())
        with pytest.raises(ChangedError):
            volume.read_all()
    with open_volume(tmp_path / "a.n5") as volume:
        assert fingerprint(volume, tmp_path / "a.n5") != before
        marks = tmp_path / "a.n5" / "attributes.json"
        marks.write_text(json.dumps(json.loads(marks.read_text())))
        with pytest.raises(ChangedError):
            volume.verify()
