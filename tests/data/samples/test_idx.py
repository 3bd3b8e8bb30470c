"""idx files, plain and compressed: what they hold, and what of them is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from image_files import idx_bytes, write_idx

from znnpy.data import safety_limits
from znnpy.data.opening import load, open_volume
from znnpy.errors import ChangedError, VolumeError

IMAGES = np.random.default_rng(0).integers(0, 255, (5, 4, 6)).astype(np.uint8)
LABELS = np.array([3, 0, 9, 1, 1], np.uint8)


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_images_are_slices(tmp_path: Path, name: str, kind: str) -> None:
    images = IMAGES.astype(kind)
    with open_volume(write_idx(tmp_path / name, images)) as volume:
        assert volume.shape == (1, 5, 4, 6)
        assert volume.dtype == images.dtype
        assert np.array_equal(load(volume).read_all()[0], images)
        assert np.array_equal(volume.read((2, 1, 0), (4, 3, 5))[0], images[2:4, 1:3, :5])


def test_labels_are_one_for_each(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "labels.gz", LABELS)
    with open_volume(path, role="labels") as volume:
        assert volume.shape == (1, 5, 1, 1)
        assert volume.read_all().ravel().tolist() == LABELS.tolist()
    with pytest.raises(VolumeError, match="holds 5 single values, no images; are they the labels"):
        open_volume(path)


def refused(path: Path, data: bytes, words: str) -> None:
    path.write_bytes(data)
    with pytest.raises(VolumeError, match=words) as found:
        open_volume(path)
    assert str(path) in str(found.value)


def test_what_is_damaged_is_refused(tmp_path: Path) -> None:
    good, path = idx_bytes(IMAGES), tmp_path / "images"
    packed = gzip.compress(good)
    refused(path, good[:-1], r"is cut: its header declares \(5, 4, 6\), 120 bytes, and 119 are")
    refused(path, good[:10], "ends within its header of 3 axes")
    refused(path, good + b"\0", "is longer than the 120 bytes")
    refused(path, b"\0\0\x07" + good[3:], "is no HDF5, TIFF, ")
    refused(path, packed[:-9], "gzip data are cut or damaged")
    refused(path, packed[:-8] + bytes(4) + packed[-4:], "gzip data are cut or damaged")
    refused(path, gzip.compress(good[:-1]), "is cut: its header declares")
    refused(path, gzip.compress(good + b"\0"), "is longer than")
    refused(path, gzip.compress(b"cifar-10-batches-bin/" + bytes(500)), "unpack others first")
    refused(path, idx_bytes(np.zeros((0, 4, 6), np.uint8)), "the volume is empty")
    refused(path, idx_bytes(np.zeros((3, 4), np.uint8)), "has 2 axes")


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    """Whether its header says so, or what comes after it does."""
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (60000, 2800, 2800))
    refused(tmp_path / "a.gz", gzip.compress(header + bytes(1 << 20)), "declares 438.1 GiB of data")
    longer = gzip.compress(idx_bytes(IMAGES) + bytes(1 << 26))
    refused(tmp_path / "b.gz", longer, "is longer than the 120 bytes")


def test_what_memory_does_not_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety_limits, "available_memory", lambda: 200)
    refused(tmp_path / "images", idx_bytes(IMAGES), "takes 120 B in memory.*only 200 B are avail")


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_idx(tmp_path / "images", IMAGES)
    original = safety_limits.claim_size

    def meanwhile(*given: object) -> None:
        original(*given)  # type: ignore[arg-type]
        path.write_bytes(idx_bytes(IMAGES[:4]))

    monkeypatch.setattr("znnpy.data.samples.idx.claim_size", meanwhile)
    with pytest.raises(ChangedError, match="has changed while it was read"):
        open_volume(path)
