"""N5 folders: what is written tensorstore reads voxel for voxel, and this package with size, place and neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from chunk_blocks import PLACE, values, write_blocks

from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.n5_output import write_n5
from znnpy.errors import VolumeError


def by_tensorstore(path: Path, array: str) -> np.ndarray:
    store = {"driver": "file", "path": str(path)}
    found = tensorstore.open({"driver": "n5", "kvstore": store, "path": array}).result()
    # Voxels of 4 x 8 x 40 nm (x, y, z).
    assert [(unit.multiplier, unit.base_unit) for unit in found.dimension_units[:3]] == [
        (4, "nm"), (8, "nm"), (40, "nm"),
    ]  # fmt: skip
    return np.asarray(found.read().result())


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u8", "i8", "f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 5, 6, 7), (3, 5, 9, 4), (2, 1, 6, 1)])
def test_tensorstore_reads_what_is_written(dtype: str, shape: Any, tmp_path: Path) -> None:
    array = values(shape, dtype)
    path = write_blocks(tmp_path / "a.n5", array, (2, 4, 4))
    np.testing.assert_array_equal(by_tensorstore(path, "s0").transpose(3, 2, 1, 0), array)
    with open_volume(path) as volume:
        assert volume.shape == shape
        assert volume.dtype == array.dtype
        np.testing.assert_array_equal(volume.read_all(), array)
        assert list(volume.resolution) == PLACE["resolution"]
        assert list(volume.offset) == PLACE["offset"]


def test_an_array_without_channels_within_groups(tmp_path: Path) -> None:
    array = values((1, 5, 6, 7), "u4")
    write_blocks(tmp_path / "a.n5", array, (2, 4, 4), dataset="volumes/objects", channels=False)
    found = by_tensorstore(tmp_path / "a.n5", "volumes/objects/s0")
    np.testing.assert_array_equal(found.transpose(2, 1, 0), array[0])
    with open_volume(f"{tmp_path}/a.n5:volumes/objects") as volume:
        np.testing.assert_array_equal(volume.read_all(), array)


def test_neighbours_and_directions_are_kept(tmp_path: Path) -> None:
    more = {"offsets": [[-1, 0, 0], [0, -2, 0]], "directions": [[0, 0, 1], [0, 1, 0], [1, 0, 0]]}
    more |= {"first_class": 3}
    path = write_blocks(tmp_path / "a.n5", values((2, 4, 4, 4), "f4"), (4, 4, 4), attributes=more)
    with open_volume(path) as volume:
        assert volume.neighbours == ((-1, 0, 0), (0, -2, 0))
        assert volume.directions == ((0, 0, 1), (0, 1, 0), (1, 0, 0))
        assert volume.first_class == 3


def test_arrays_in_memory(tmp_path: Path) -> None:
    array = values((7, 9, 8), "u2")
    write_n5(Destination(tmp_path / "a.n5", ""), array, PLACE)
    with open_volume(tmp_path / "a.n5") as volume:
        np.testing.assert_array_equal(volume.read_all()[0], array)
    with pytest.raises(VolumeError, match="exists already"):
        write_n5(Destination(tmp_path / "a.n5", ""), array)


def test_types_that_n5_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match=r"N5 has no float16; name a folder \.zarr"):
        write_n5(Destination(tmp_path / "a.n5", ""), np.zeros((2, 2, 2), np.float16))
    assert not list(tmp_path.iterdir())
