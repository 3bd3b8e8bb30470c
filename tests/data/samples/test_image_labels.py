"""One label for each image counts for every voxel of it."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.samples.image_labels import spread, stored
from znnpy.data.sampling.label_checks import check_labels
from znnpy.data.sampling.targets import ClassesTarget
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

IMAGES = ArrayVolume(np.zeros((4, 5, 6), np.uint8), "images")
LABELS = ArrayVolume(np.array([2, 0, 1, 7], np.uint8)[:, None, None], "labels")


def test_every_voxel_has_its_images_label() -> None:
    volume = spread(LABELS, IMAGES)
    assert volume.extent == IMAGES.extent
    found = volume.read((1, 2, 0), (4, 5, 6))
    assert (found == np.array([0, 1, 7])[None, :, None, None]).all()
    assert found.shape == (1, 3, 3, 6)
    assert stored(volume) is LABELS


def test_labels_of_voxels_stay_as_they_are() -> None:
    assert spread(IMAGES, IMAGES) is IMAGES
    assert spread(LABELS, LABELS) is LABELS


def test_another_number_of_labels_is_refused() -> None:
    few = ArrayVolume(np.zeros((3, 1, 1), np.uint8), "labels")
    with pytest.raises(VolumeError, match="labels has 3 labels, one an image, but images has 4 im"):
        spread(few, IMAGES)


def test_a_label_beyond_the_classes_counts_once() -> None:
    with pytest.raises(
        VolumeError, match=r"and 1 of them fit no target, the first 7 at \(z, y, x\) = \(3,"
    ):
        check_labels(ClassesTarget(3), spread(LABELS, IMAGES), None)
