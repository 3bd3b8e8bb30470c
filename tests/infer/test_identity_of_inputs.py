"""What a prediction is of is named so that another input is told from it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from changes import CHANGES, FORMS, data_files

from znnpy.data import fingerprint as fingerprints
from znnpy.data.fingerprint import fingerprint
from znnpy.data.opening import open_volume

ARRAY = np.random.default_rng(0).integers(1, 255, (8, 16, 16)).astype(np.uint8)


def found(path: Path) -> str:
    with open_volume(path) as volume:
        return fingerprint(volume, path)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_changed_anywhere_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Also where no sample was taken."""
    monkeypatch.setattr(fingerprints, "_samples", lambda volume: 0)
    name, write = FORMS[form]
    write(tmp_path / name, ARRAY)
    before = found(tmp_path / name)
    assert found(tmp_path / name) == before
    last = data_files(tmp_path / name)[-1]
    os.utime(last, ns=(0, last.stat().st_mtime_ns + 1))
    assert found(tmp_path / name) != before


def test_the_newest_file_has_the_time(tmp_path: Path) -> None:
    FORMS["planes"][1](tmp_path / "planes", ARRAY)
    for day, file in enumerate(sorted((tmp_path / "planes").iterdir()), 1):
        os.utime(file, (0, day * 86400))
    size = sum(file.stat().st_size for file in (tmp_path / "planes").iterdir())
    assert f"{size} bytes changed 1970-01-09 00:00:00.000000000, 8 files" in found(
        tmp_path / "planes"
    )


@pytest.mark.parametrize("form", ["planes", "zarr 3"])
def test_what_lies_beside_the_data_does_not_count(tmp_path: Path, form: str) -> None:
    name, write = FORMS[form]
    write(tmp_path / name, ARRAY)
    before = found(tmp_path / name)
    (tmp_path / name / "out.h5.partial").write_bytes(b"a prediction")
    (tmp_path / name / ("raw" if form == "zarr 3" else "") / ".DS_Store").touch()
    assert found(tmp_path / name) == before


def test_values_count_where_no_file_is_known(tmp_path: Path) -> None:
    name, write = FORMS["zarr 2"]
    write(tmp_path / name, ARRAY)
    with open_volume(tmp_path / name) as volume:
        before = fingerprint(volume, None)
    CHANGES["gone"](tmp_path / name)
    write(tmp_path / name, ARRAY + np.uint8(1))
    with open_volume(tmp_path / name) as volume:
        assert fingerprint(volume, None) != before
