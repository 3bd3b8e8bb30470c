"""Names of volumes are cut where their dataset begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from znnpy.data.names import joined, split_source
from znnpy.errors import VolumeError


def test_split_source(tmp_path: Path) -> None:
    assert split_source("a.h5:x/y") == (Path("a.h5"), "x/y")
    assert split_source("a.h5") == (Path("a.h5"), None)
    odd = tmp_path / "a:b.h5"
    odd.write_bytes(b"")
    assert split_source(str(odd)) == (odd, None)
    with pytest.raises(VolumeError, match="no dataset is named"):
        split_source("a.h5:")


@pytest.mark.parametrize("name", ["a.h5:x/y", "a.zarr"])
def test_joined_names_are_split_as_they_were(name: str) -> None:
    path, dataset = split_source(name)
    assert joined(path, dataset or "") == name
