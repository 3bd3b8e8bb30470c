"""CIFAR's binary files; what comes as Python's pickle is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from image_files import write_cifar

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (7, 3, 32, 32)).astype(np.uint8)
FINE, COARSE = RNG.integers(0, 100, 7).astype(np.uint8), RNG.integers(0, 20, 7).astype(np.uint8)


def labels(source: object) -> list[int]:
    with open_volume(str(source), role="labels") as volume:
        assert volume.shape == (1, 7, 1, 1)
        return [int(n) for n in volume.read_all().ravel()]


def test_images_and_labels_of_one_file(tmp_path: Path) -> None:
    path = write_cifar(tmp_path / "data_batch_1.bin", IMAGES, FINE % 10)
    with open_volume(path) as volume:
        assert volume.shape == (3, 7, 32, 32)
        assert np.array_equal(volume.read_all().swapaxes(0, 1), IMAGES)
    assert labels(path) == (FINE % 10).tolist()


def test_cifar_100_has_two_classes_an_image(tmp_path: Path) -> None:
    path = write_cifar(tmp_path / "train.bin", IMAGES, COARSE, FINE)
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all().swapaxes(0, 1), IMAGES)
    assert labels(path) == labels(f"{path}:fine") == FINE.tolist()
    assert labels(f"{path}:coarse") == COARSE.tolist()


def refused(source: object, words: str, role: str = "raw") -> None:
    with pytest.raises(VolumeError, match=words):
        open_volume(str(source), role=role)  # type: ignore[arg-type]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    path = write_cifar(tmp_path / "data_batch_1.bin", IMAGES, FINE % 10)
    refused(f"{path}:fine", "images of CIFAR have no names")
    refused(f"{path}:fine", "has no labels 'fine'; it has: class", "labels")
    path.write_bytes(path.read_bytes()[:-10])
    refused(path, r"or cut: it has 21501 bytes, 6 images of 3073 bytes \(CIFAR-10\) and 3063 bytes")
    path.write_bytes(b"")
    refused(path, "is empty")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_and_never_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": IMAGES.tobytes(), b"labels": [1]}, protocol))
    refused(path, "is a Python pickle.*refused. CIFAR comes in a binary version")
