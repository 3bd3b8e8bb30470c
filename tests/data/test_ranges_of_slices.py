"""A range of slices is a volume of its own, which lies to others as the whole one does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.config import MalformedConfigError, load_config
from znnpy.data.config_volumes import open_scene
from znnpy.data.slices import Slices
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.network import trained_network

CONFIG = """
network: {{layers: [{{conv: {{channels: 1, size: 3}}}}]}}
data: {{train: [{{image: "raw.h5:raw", labels: "raw.h5:labels", slices: {slices}}}], in_memory: {memory}}}
training: {{output_shape: 2}}
"""


def test_values_are_those_of_the_array() -> None:
    array = np.arange(2 * 7 * 3 * 4, dtype=np.float32).reshape(2, 7, 3, 4)
    array[0, 0, 0, 0] = np.nan  # of another slice
    part = Slices(ArrayVolume(array, resolution=(40, 4, 4), offset=(80, 0, 0)), 2, 6)
    assert part.shape == (2, 4, 3, 4)
    assert part.offset == (80, 0, 0)
    assert np.array_equal(part.read_all(), array[:, 2:6])
    assert np.array_equal(part.read((1, 1, 0), (3, 3, 2)), array[:, 3:5, 1:3, :2])


def _config(folder: Path, slices: str, memory: str = "auto") -> Path:
    values = np.arange(10)[:, None, None] + np.zeros((10, 6, 6), int)
    with h5py.File(folder / "raw.h5", "w") as file:
        file["raw"] = values.astype(np.float32)
        file["labels"] = values.astype(np.uint32)
        file["labels"].attrs["offset"] = (0.0, 0.0, 0.0)  # the image does not say where it lies
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(slices=slices, memory=memory))
    return path


@pytest.mark.parametrize("memory", ["true", "false"])
def test_image_and_labels_are_cut_alike(tmp_path: Path, memory: str) -> None:
    config = load_config(_config(tmp_path, "[3, 8]", memory))
    with_slices = config.data.train[0]
    scene = open_scene(with_slices, config.data, trained_network(config))
    try:
        for volume in scene.volumes():
            assert volume.read_all()[0, :, 0, 0].tolist() == [3, 4, 5, 6, 7]
            assert scene.corner(volume) == (0, 0, 0)
    finally:
        scene.close()


def _placed(folder: Path, slices: str, below: int, deep: int, **offset: tuple[float, ...]) -> Path:
    """Labels of so many slices, of which the first is that of number `below` of the image."""
    path = _config(folder, slices)
    with h5py.File(folder / "raw.h5", "a") as file:
        del file["labels"]
        file["labels"] = np.arange(below, below + deep)[:, None, None] + np.zeros((deep, 6, 6), int)
        for name, at in offset.items():
            file[name].attrs["offset"] = at
    return path


@pytest.mark.parametrize(
    ("slices", "found"), [("[2, 8]", [4, 5, 6, 7]), ("[5, 8]", [5, 6, 7]), ("[0, 5]", [4])]
)
def test_labels_that_begin_elsewhere_are_cut_where_they_lie(
    tmp_path: Path, slices: str, found: list[int]
) -> None:
    config = load_config(_placed(tmp_path, slices, 4, 4, labels=(4.0, 0.0, 0.0)))
    with closing(open_scene(config.data.train[0], config.data, trained_network(config))) as scene:
        (labels,) = set(scene.labels.values())
        first = scene.reference.read_all()[0, :, 0, 0]
        assert labels.read_all()[0, :, 0, 0].tolist() == found
        z, y, x = scene.corner(labels)
        assert (y, x) == (0, 0)
        assert first[z : z + len(found)].tolist() == found


def test_labels_of_more_slices_than_the_image(tmp_path: Path) -> None:
    """Cut alike both would have equally many, of other places."""
    config = load_config(_placed(tmp_path, "[0, 6]", -3, 13, raw=(3.0, 0.0, 0.0), labels=(0, 0, 0)))
    with closing(open_scene(config.data.train[0], config.data, trained_network(config))) as scene:
        (labels,) = set(scene.labels.values())
        assert labels.read_all()[0, :, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
        assert scene.corner(labels) == (0, 0, 0)
    config = load_config(_placed(tmp_path, "[0, 6]", 0, 13))
    with pytest.raises(VolumeError, match=r"must be equal, or `offset` attributes"):
        open_scene(config.data.train[0], config.data, trained_network(config))
    config = load_config(_placed(tmp_path, "[0, 3]", 4, 4, labels=(4.0, 0.0, 0.0)))
    with pytest.raises(VolumeError, match=r"none of the slices \[0, 3\]"):
        open_scene(config.data.train[0], config.data, trained_network(config))


def test_beyond_the_volume(tmp_path: Path) -> None:
    config = load_config(_config(tmp_path, "[3, 11]"))
    with pytest.raises(VolumeError, match=r"10 slices along z.*\[3, 11\]"):
        open_scene(config.data.train[0], config.data, trained_network(config))


@pytest.mark.parametrize("slices", ["[3, 3]", "[4, 2]", "[-1, 2]", "[1]", "[1, 2.5]"])
def test_no_range(tmp_path: Path, slices: str) -> None:
    with pytest.raises(MalformedConfigError, match=r"slices"):
        load_config(_config(tmp_path, slices))
