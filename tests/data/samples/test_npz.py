"""npz files: an array by name, nothing by pickle."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

IMAGES = np.random.default_rng(0).integers(0, 255, (5, 4, 6)).astype(np.uint8)
LABELS = np.arange(5)


def written(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def refused(source: str | Path, words: str) -> None:
    with pytest.raises(VolumeError, match=words):
        open_volume(source)


def test_arrays_by_name(tmp_path: Path) -> None:
    path = written(
        tmp_path / "digits.npz", x_train=IMAGES, y_train=LABELS, f=np.asfortranarray(IMAGES)
    )
    for name in ("x_train", "f"):
        with open_volume(f"{path}:{name}") as volume:
            assert volume.name == f"{path}:{name}"
            assert np.array_equal(volume.read_all()[0], IMAGES)
    with open_volume(f"{path}:y_train", role="labels") as volume:
        assert volume.shape == (1, 5, 1, 1)
    refused(path, "name one of its arrays as FILE:NAME; it holds: x_train, y_train, f")
    refused(f"{path}:x_test", "has no array x_test; it holds: x_train")
    refused(f"{path}:y_train", "no images; are they the labels")


def test_without_a_name(tmp_path: Path) -> None:
    for arrays in ({"only": IMAGES}, {"other": LABELS, "raw": IMAGES}):
        with open_volume(written(tmp_path / "a.npz", **arrays)) as volume:
            assert volume.extent == (5, 4, 6)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, raw=np.array([print, None], object))
    refused(path, "holds Python objects, which pickle alone reads: refused")


def test_what_is_damaged_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", raw=IMAGES)
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    refused(path, "the npz file is damaged")
    at = good.index(b"raw.npy") + 60
    path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
    refused(path, "the npz file is damaged|is damaged")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("raw.npy", b"no array at all")
    refused(path, "the npz file is damaged")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", b"")
    refused(path, "is an archive without arrays")


def header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for shape, words in (
        ((1 << 20, 1 << 20, 4), "declares 4.0 TiB of data"),
        ((5, 4, 7), r"is damaged: it declares 140 bytes, shape \(5, 4, 7\), and has 120"),
        ((5, 4, 5), r"is damaged: it declares 100 bytes, shape \(5, 4, 5\), and has 120"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("raw.npy", header(shape) + IMAGES.tobytes())
        refused(path, words)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_decompressed_without_a_bound_is_refused(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("raw.npy", header(IMAGES.shape) + IMAGES.tobytes())
    refused(path, "is compressed by another method than deflate")


def test_long_descriptions_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    long = b"\x93NUMPY\x02\x00" + (1 << 24).to_bytes(4, "little") + b" " * (1 << 24)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("raw.npy", long)
    tracemalloc.start()
    refused(path, "the npz file is damaged")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 22
