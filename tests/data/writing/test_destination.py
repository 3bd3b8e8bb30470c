"""A name on the command line becomes the place that is written, and what stands there is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from znnpy.data.writing.destination import Destination
from znnpy.errors import VolumeError


@pytest.mark.parametrize(
    ("name", "dataset", "found"),
    [
        ("out.h5", "p", "out.h5:p"),
        ("out.h5:x/y", "x/y", "out.h5:x/y"),
        ("out.zarr", "", "out.zarr"),
        ("out.zarr:x", "x", "out.zarr:x"),
    ],
)
def test_names(name: str, dataset: str, found: str) -> None:
    there = Destination.named(name, "p")
    assert (there.path, there.dataset) == (Path(name.partition(":")[0]), dataset)
    assert there.name == found
    assert there.is_zarr == (there.path.suffix == ".zarr")


def test_what_stands_there_is_refused_unless_replaced(tmp_path: Path) -> None:
    there = Destination(tmp_path / "out.h5", "p")
    there.refuse_standing()
    there.path.write_bytes(b"")
    with pytest.raises(VolumeError, match=r"out\.h5 exists already.*--overwrite"):
        there.refuse_standing()
    replace(there, overwrite=True).refuse_standing()
