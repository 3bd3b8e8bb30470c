"""Rows land where they belong; the first that does not fit is told."""

import os
from pathlib import Path

import numpy as np
from znnpy_kernels.data.file_rows import write_rows


def test_rows_in_their_places(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    order = np.random.default_rng(1).permutation(7)
    path = tmp_path / "file"
    path.write_bytes(bytes(3))
    with path.open("r+b") as file:
        written = write_rows(file.fileno(), data.ctypes.data, 20, 3 + 20 * order)
    assert written == 7
    content = path.read_bytes()
    assert content[:3] == bytes(3)
    assert np.array_equal(np.frombuffer(content[3:], np.float32).reshape(7, 5)[order], data)


def test_stops_at_the_first_row_that_fails(tmp_path: Path) -> None:
    data = np.ones((3, 4), np.float32)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert write_rows(file, data.ctypes.data, 16, np.array([0, -1, 32])) == 1
    assert os.fstat(file).st_size == 16
    os.close(file)
    assert write_rows(file, data.ctypes.data, 16, np.array([0, 16, 32])) == 0
