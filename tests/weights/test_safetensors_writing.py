"""safetensors files that are written, beside the library's own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from znnpy.weights.safetensors import read_safetensors
from znnpy.weights.safetensors_writing import write_safetensors

ARRAYS = {
    "a": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "c": np.array(2, np.int64),
    "none": np.empty((0, 3), np.float32),
    "d": np.array([True, False]),
}


def written(path: Path, about: dict[str, str]) -> Path:
    with path.open("wb") as file:
        write_safetensors(file, ARRAYS, about)
    return path


def same(found: dict[str, np.ndarray]) -> None:
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)


def test_arrays_come_back(tmp_path: Path) -> None:
    path = written(tmp_path / "a", {"title": "ä"})
    same({name: tensor.array() for name, tensor in read_safetensors(path).items()})
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert header % 8 == 0  # numbers that are mapped into memory lie where they should


def test_the_library_reads_them(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    path = written(tmp_path / "a", {"title": "ä"})
    with library.safe_open(path, framework="np") as file:
        assert file.metadata() == {"title": "ä"}
        same({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def test_types_that_the_format_lacks_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file, pytest.raises(ValueError, match="hold complex64"):
        write_safetensors(file, {"a": np.zeros(2, np.complex64)}, {})
