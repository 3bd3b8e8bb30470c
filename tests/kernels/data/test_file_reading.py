"""Parts of a file land in memory whole; where they are not there that is told."""

import os
from pathlib import Path

import numpy as np
import pytest
from znnpy_kernels.data.file_reading import read_part


@pytest.fixture
def file(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(np.arange(100, dtype=np.float32).tobytes())
    number = os.open(path, os.O_RDONLY)
    yield number
    os.close(number)


def test_a_part(file: int) -> None:
    target, given = np.zeros(20, np.float32), np.array([file, 0])
    read_part.run(file=given, offset=120, target=target, bytes=80)
    assert (target == np.arange(30, 50)).all()
    assert given[1] == 0


@pytest.mark.parametrize("offset", [340, 400, 1000])
def test_beyond_the_end(file: int, offset: int) -> None:
    target, given = np.zeros(20, np.float32), np.array([file, 0])
    read_part.run(file=given, offset=offset, target=target, bytes=80)
    assert given[1] == 1


def test_no_such_file() -> None:
    target, given = np.zeros(20, np.float32), np.array([-1, 0])
    read_part.run(file=given, offset=0, target=target, bytes=80)
    assert given[1] == 1
    assert not target.any()
