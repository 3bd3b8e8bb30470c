"""Names of volumes become paths and datasets."""

from __future__ import annotations

from pathlib import Path

import pytest

from znnpy.data.dataset_names import split_source
from znnpy.errors import VolumeError


def test_text_is_split_and_a_path_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert split_source("~/a.h5:x/y") == (Path("/home/me/a.h5"), "x/y")
    assert split_source(Path("a.h5:x")) == (Path("a.h5:x"), None)
    with pytest.raises(VolumeError, match="names a home that is not known"):
        split_source("~nobody_there/a.h5")
