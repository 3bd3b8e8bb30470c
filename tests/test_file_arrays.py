"""Arrays that lie in a file are read as what they are, whole or by a part of their second axis."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from znnpy import file_arrays
from znnpy.errors import RunError
from znnpy.file_arrays import FileArray, KeptFile


def lying(path: Path, values: Any, before: int = 3) -> FileArray:
    path.write_bytes(bytes(before) + values.tobytes())
    return FileArray.plain(KeptFile(path), before, values.shape, values.dtype)


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.sampled_from([np.float32, np.float64]),
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_of_parts(tmp_path: Path, shape: Any, dtype: Any, bounds: list[int]) -> None:
    values = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    first, second = slice(*bounds[:2]), slice(*bounds[2:])
    found = lying(tmp_path / "file", values)[:, first][:, second]
    expected = values[:, first][:, second]
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert (np.asarray(found) == expected).all()
    assert np.asarray(found, np.float64).dtype == np.float64


def test_what_is_contiguous_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(600.0).reshape(100, 2, 3)
    found, calls = lying(tmp_path / "file", values), list[int]()
    fill = file_arrays.fill

    def counted(target: Any, number: int, offset: int) -> None:
        calls.append(offset)
        fill(target, number, offset)

    monkeypatch.setattr(file_arrays, "fill", counted)
    assert (np.asarray(found) == values).all()
    assert calls == [3]
    assert (np.asarray(found[:, 1:]) == values[:, 1:]).all()
    assert len(calls) == 101
    assert np.asarray(found[:, :0]).shape == (100, 0, 3)


@pytest.mark.parametrize("key", [(slice(1, 2), slice(None)), (slice(None), slice(0, 2, 2))])
def test_other_parts_are_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(IndexError, match="second axis alone"):
        lying(tmp_path / "file", np.zeros((2, 2)))[key]


def test_a_file_that_goes_stays_while_it_is_held(tmp_path: Path) -> None:
    path, values = tmp_path / "file", np.arange(6.0).reshape(2, 3)
    found = lying(path, values)
    path.unlink()
    path.write_bytes(b"another")
    assert (np.asarray(found) == values).all()
    number = found.file.number
    del found
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


@pytest.mark.parametrize("size", [10, 51])
def test_a_file_that_was_written_since(tmp_path: Path, size: int) -> None:
    found = lying(tmp_path / "file", np.zeros((2, 3)))
    os.truncate(tmp_path / "file", size)
    os.utime(tmp_path / "file", (0, 0))
    with pytest.raises(RunError, match="cut short" if size < 51 else "has changed"):
        np.asarray(found)
