"""A prediction that is opened again is the one with which the job began."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError
from znnpy.segment.source import Source


def stored(path: Path, value: int) -> None:
    with h5py.File(path, "w") as file:
        file["p"] = np.full((3, 4, 5), value, np.uint8)


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored(Path("p.h5"), 1)
    with open_volume("p.h5:p") as volume:
        source = Source.of(volume)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with source.opened() as volume:
        assert (volume.read((0, 0, 0), (3, 4, 5)) == 1).all()
    stored(tmp_path / "p.h5", 2)
    with pytest.raises(VolumeError, match="another file now"), source.opened():
        pass
