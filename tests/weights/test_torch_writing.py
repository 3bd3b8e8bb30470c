"""State dicts written without PyTorch, read back by the reader that trusts nothing; `tests/peers` has PyTorch's own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from znnpy.weights.torch_file import read_torch
from znnpy.weights.torch_writing import write_torch


def written(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with path.open("wb") as file:
        write_torch(file, arrays)
    return path


def test_arrays_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a.weight": rng.standard_normal((2, 3, 1, 4, 5)).astype(np.float32),
        "a.bias": rng.standard_normal(3),
        "a.num_batches_tracked": np.array(7),
        "ä.none": np.empty((0, 2), np.float16),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "big": np.arange(3, dtype=">f4"),
    }
    found = read_torch(written(tmp_path / "a.pth", arrays))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        back = found[name].array()
        assert np.array_equal(back, array)
        assert back.shape == array.shape
        assert back.dtype == array.dtype.newbyteorder("<")


def test_what_has_two_names_is_stored_once(tmp_path: Path) -> None:
    array = np.zeros(1000, np.float32)
    path = written(tmp_path / "a.pth", {"a": array, "b": array, "c": array.copy()})
    assert 8000 < path.stat().st_size < 10000
    found = read_torch(path)
    assert found["a"].place == found["b"].place != found["c"].place


def test_equal_weights_make_equal_files(tmp_path: Path) -> None:
    one, other = (written(tmp_path / name, {"a": np.arange(5.0)}) for name in "ab")
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
        assert archive.read("archive/byteorder") == b"little"


def test_types_that_pytorch_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not hold uint32"):
        written(tmp_path / "a.pth", {"a": np.zeros(2, np.uint32)})
