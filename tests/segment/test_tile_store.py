"""Tiles that are kept in memory are those that lie on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from znnpy.segment.tile_store import TileStore


def test_labels_that_were_written_within_one_tick_of_the_clock_are_told_apart(
    tmp_path: Path,
) -> None:
    """As those of another job with the same output, on a disk with coarse times."""
    store = TileStore.beside(tmp_path / "out.h5")
    store.begin({"job": 1})
    for value in (1, 2):
        labels, numbers = np.full((2, 3, 4), value, np.uint32), np.arange(3, dtype=np.uint64)
        store.write_grown((0, 0, 0), labels, numbers)
        (written,) = store.folder.glob("*.grown.npz")
        os.utime(written, ns=(10**18, 10**18))
        assert np.array_equal(store.grown((0, 0, 0))[0], labels)
