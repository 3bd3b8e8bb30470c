"""One job, one content: over blocks, threads and restarts, for HDF5 and OME-Zarr.

`test_distributed` shows it for many processes, `test_every_call` for kills at each call to the disk.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import KILLED, counted, forked
from jobs import EXTENT, Small, small
from killing import content, predict

from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import journal_of

BLOCK = (2, 5, 5)
BLOCKS = [(1, 17, 19), (4, 10, 6), (3, 3, 3), (9, 4, 19), (8, 8, 7)]
SUFFIXES = [".h5", ".zarr"]


def values(tiny: Small, name: str, **changes: Any) -> np.ndarray:
    """Predict to a file and read it."""
    predict(tiny, name, **changes)
    with open_volume(tiny.folder / name) as volume:
        return np.asarray(volume.read_all())


def digest(path: Path) -> str:
    return hashlib.sha256(repr(sorted(content(path).items())).encode()).hexdigest()


@pytest.mark.quick(1)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_of_five_blocks_gives_the_same_values(tmp_path: Path, suffix: str) -> None:
    tiny = small(tmp_path, "auto")
    one = values(tiny, f"one{suffix}", block=EXTENT)
    assert one.std() > 0
    for number, block in enumerate(BLOCKS):
        assert np.array_equal(values(tiny, f"{number}{suffix}", block=block), one)


@pytest.mark.slow
@pytest.mark.parametrize("patch", [None, (4, 5, 6)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_number_of_threads_gives_the_same_bytes(
    tmp_path: Path, suffix: str, patch: tuple[int, int, int] | None
) -> None:
    found = set()
    for threads in (1, 3, 8):
        folder = tmp_path / str(threads)
        folder.mkdir()
        tiny = small(folder, "auto", threads)
        predict(tiny, f"out{suffix}", block=BLOCK, patch=patch)
        found.add(digest(folder / f"out{suffix}"))
    assert len(found) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_three_restarts_with_other_threads_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    name = f"out{suffix}"
    predict(small(tmp_path, threads=1), name, block=BLOCK)
    whole = digest(tmp_path / name)
    (tmp_path / name).rename(tmp_path / f"whole{suffix}")
    noted = [0]
    for threads, calls in ((2, 60), (3, 110), (4, 170)):
        tiny = small(tmp_path, threads=threads)
        arm = lambda calls=calls: counted(calls)  # noqa: E731
        code, _ = forked(lambda _, tiny=tiny, arm=arm: predict(tiny, name, arm=arm, block=BLOCK))
        assert code == KILLED
        assert not (tmp_path / name).exists()
        noted.append(journal_of(tmp_path / name).stat().st_size)
    assert noted == sorted(set(noted))
    predict(small(tmp_path, threads=5), name, block=BLOCK)
    assert digest(tmp_path / name) == whole
