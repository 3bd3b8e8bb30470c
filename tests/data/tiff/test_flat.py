"""Parts of arrays in files: the same as NumPy's, no pages of the file, errors when it is cut."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile

from znnpy.data.flat_array import FlatArray
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", ">f4", "<i8"])
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 1, 4, 5, 3)])
def test_parts_are_numpys(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = RNG.integers(0, 100, shape).astype(dtype)
    (tmp_path / "a").write_bytes(b"head" + array.tobytes() + b"tail")
    flat = FlatArray(tmp_path / "a", 4, shape, np.dtype(dtype))
    for _ in range(20):
        bounds = [tuple(sorted(RNG.choice(n + 1, 2, replace=False))) for n in shape]
        found = flat.read(bounds)
        assert found.dtype.isnative
        assert np.array_equal(found, array[tuple(slice(a, b) for a, b in bounds)])
    flat.close()
    flat.close()


def test_reads_that_stop_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, real = np.arange(60, dtype=np.uint16).reshape(3, 4, 5), os.preadv
    (tmp_path / "a").write_bytes(array.tobytes())
    monkeypatch.setattr(os, "preadv", lambda file, into, at: real(file, [into[0][:7]], at))
    flat = FlatArray(tmp_path / "a", 0, array.shape, array.dtype)
    assert np.array_equal(flat.read([(0, 3), (1, 4), (0, 5)]), array[:, 1:])
    flat.close()


def test_files_that_are_too_short(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(99))
    with pytest.raises(VolumeError, match="truncated"):
        FlatArray(tmp_path / "a", 0, (10, 10), np.dtype(np.uint8))
    flat = FlatArray(tmp_path / "a", 0, (9, 11), np.dtype(np.uint8))
    os.truncate(tmp_path / "a", 50)
    assert not flat.read([(0, 4), (0, 11)]).any()
    with pytest.raises(VolumeError, match="was cut while it was read"):
        flat.read([(0, 9), (0, 11)])
    flat.close()


@pytest.mark.quick(3)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("axes", ["ZYX", "ZCYX", "ZYXS"])
def test_tiff_that_is_cut_or_large(tmp_path: Path, axes: str, order: str) -> None:
    """Pages that were read do not stay with the process."""
    sizes = {"Z": 40, "Y": 300, "X": 500, "C": 2, "S": 3}
    shape = [sizes[axis] for axis in axes]
    array = RNG.integers(0, 60_000, shape).astype(np.uint16)
    path = tmp_path / "a.tif"
    kind = "rgb" if "S" in axes else "minisblack"
    tifffile.imwrite(path, array, photometric=kind, metadata={"axes": axes}, byteorder=order)
    channel = axes.find("C") if "C" in axes else axes.find("S")
    four = array[None] if channel < 0 else np.moveaxis(array, channel, 0)
    with open_volume(path) as volume:
        before = file_pages()
        for z in range(0, 40, 8):
            found = volume.read((z, 10, 20), (z + 8, 290, 480))
            assert np.array_equal(found, four[:, z : z + 8, 10:290, 20:480])
        assert file_pages() - before < array.nbytes // 4
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(VolumeError, match=r"a\.tif"):
            volume.read((32, 0, 0), (40, 300, 500))


def file_pages() -> int:
    """Bytes of files that are mapped into the process and present."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+)", status)[1]) << 10  # type: ignore[index]
