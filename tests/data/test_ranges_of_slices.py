"""A range of slices is a volume of its own, which lies to others as the whole one does."""

from __future__ import annotations

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


def test_beyond_the_volume(tmp_path: Path) -> None:
    config = load_config(_config(tmp_path, "[3, 11]"))
    with pytest.raises(VolumeError, match=r"10 slices along z.*\[3, 11\]"):
        open_scene(config.data.train[0], config.data, trained_network(config))


@pytest.mark.parametrize("slices", ["[3, 3]", "[4, 2]", "[-1, 2]", "[1]", "[1, 2.5]"])
def test_no_range(tmp_path: Path, slices: str) -> None:
    with pytest.raises(MalformedConfigError, match=r"slices"):
        load_config(_config(tmp_path, slices))
