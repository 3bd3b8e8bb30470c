"""Precomputed folders: what is written tensorstore reads voxel for voxel, where it lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from chunk_blocks import PLACE, values, write_blocks

from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.precomputed_output import write_precomputed
from znnpy.errors import VolumeError


def by_tensorstore(path: Path) -> Any:
    store = {"driver": "file", "path": str(path)}
    return tensorstore.open({"driver": "neuroglancer_precomputed", "kvstore": store}).result()


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u8", "f4"])
@pytest.mark.parametrize("shape", [(1, 5, 6, 7), (3, 5, 9, 4), (2, 1, 6, 1)])
def test_tensorstore_reads_what_is_written(dtype: str, shape: Any, tmp_path: Path) -> None:
    array = values(shape, dtype)
    path = write_blocks(tmp_path / "a.precomputed", array, (2, 4, 4))
    found = by_tensorstore(path)
    np.testing.assert_array_equal(found.read().result().transpose(3, 2, 1, 0), array)
    # Voxels of 4 x 8 x 40 nm (x, y, z).
    assert list(found.domain.origin[:3]) == [3, -2, 2]
    assert [unit.multiplier for unit in found.dimension_units[:3]] == [4, 8, 40]
    with open_volume(path) as volume:
        assert (volume.shape, volume.dtype) == (shape, array.dtype)
        np.testing.assert_array_equal(volume.read_all(), array)
        assert list(volume.resolution) == PLACE["resolution"]
        assert list(volume.offset) == PLACE["offset"]


def test_labels_are_a_segmentation_of_the_smallest_type(tmp_path: Path) -> None:
    array = values((7, 9, 8), "u8")
    write_precomputed(Destination(tmp_path / "a.precomputed", ""), array, PLACE)
    info = json.loads((tmp_path / "a.precomputed/info").read_text())
    assert (info["type"], info["data_type"]) == ("segmentation", "uint8")
    with open_volume(tmp_path / "a.precomputed") as volume:
        np.testing.assert_array_equal(volume.read_all()[0], array)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"offset": [20.0, 0.0, 0.0]}, r"begins at voxel \(0.5, 0.0, 0.0\).*whole numbers"),
        ({"offsets": [[-1, 0, 0], [0, -2, 0]]}, "cannot say which neighbours"),
    ],
)
def test_what_it_cannot_say_is_refused(more: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match=words):
        write_blocks(
            tmp_path / "a.precomputed", values((2, 4, 4, 4), "f4"), (4, 4, 4), attributes=more
        )
    with pytest.raises(VolumeError, match=r"precomputed has no float64; name a folder \.zarr"):
        write_precomputed(Destination(tmp_path / "b.precomputed", ""), np.zeros((2, 2, 2)))
    assert not list(tmp_path.iterdir())
