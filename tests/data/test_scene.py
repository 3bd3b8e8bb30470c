"""Volumes of one place must lie on one grid."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume, Triple64
from znnpy.errors import ChangedError, VolumeError


def volume(
    name: str,
    shape: tuple[int, ...] = (4, 5, 6),
    resolution: Triple64 = (1, 1, 1),
    offset: Triple64 | None = None,
) -> ArrayVolume:
    return ArrayVolume(np.zeros(shape, np.uint8), name, resolution, offset)


def test_corner_in_voxels() -> None:
    image = volume("image", (9, 9, 9), (40, 4, 4), (80, 0, 8))
    labels = volume("labels", (3, 3, 3), (40, 4, 4), (120, 12, 8))
    assert Scene({"in": image}, {"out": labels}).corner(labels) == (1, 3, 0)


def test_missing_attributes_mean_the_same_grid() -> None:
    image = volume("image", resolution=(40, 4, 4), offset=(80, 0, 8))
    labels = volume("labels")
    made = Scene({"in": image}, {"out": labels})
    assert made.corner(labels) == (0, 0, 0)
    assert made.resolution == (40, 4, 4)


@pytest.mark.parametrize("offset", [(0, 0, 0), (40, 0, 8)])
@pytest.mark.parametrize("said", ["both", "part", "whole"])
def test_a_part_may_begin_where_the_whole_does(offset: Triple64, said: str) -> None:
    """As the prediction of a region of interest at the beginning."""
    if said != "both":
        offset = (0, 0, 0)
    whole = volume("raw", (9, 9, 9), (8, 4, 4), None if said == "part" else offset)
    part = volume("p", (3, 9, 5), (8, 4, 4), None if said == "whole" else offset)
    assert Scene({"in": whole}, {"out": part}).corner(part) == (0, 0, 0)
    assert Scene({"in": part}, {"out": whole}).corner(whole) == (0, 0, 0)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (volume("labels", (4, 5, 7)), r"labels has \(4, 5, 7\).*image has \(4, 5, 6\)"),
        (volume("labels", resolution=(8, 8, 8)), r"labels has voxels of \(8, 8, 8\)"),
        (volume("labels", resolution=(4, 4, 4), offset=(2, 0, 0)), "whole voxels"),
    ],
)
def test_refused(labels: ArrayVolume, words: str) -> None:
    with pytest.raises(VolumeError, match=words):
        Scene({"in": volume("image", resolution=(4, 4, 4))}, {"out": labels})


@pytest.mark.parametrize("changed", ["image", "labels", "mask"])
def test_each_volume_is_verified(changed: str) -> None:
    made = {name: volume(name) for name in ("image", "labels", "mask")}

    def verify() -> None:
        raise ChangedError(f"{changed} has changed")

    made[changed].verify = verify  # type: ignore[method-assign]
    found = Scene({"in": made["image"]}, {"out": made["labels"]}, {"out": made["mask"]})
    with pytest.raises(ChangedError, match=f"{changed} has changed"):
        found.verify()


def test_no_image() -> None:
    with pytest.raises(VolumeError, match="needs an image"):
        Scene({}, {})
