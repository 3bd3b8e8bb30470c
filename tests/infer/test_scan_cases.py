"""Cases of prepared scans: of a folder and of a pattern, channels by nnU-Net's names, outputs in their formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from znnpy.errors import VolumeError
from znnpy.infer.scan_cases import Case, cases_of


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    for name in ("a_0000.nii.gz", "a_0001.nii.gz", "b_0000.nii.gz", "b_0001.nii.gz"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("named", ["", "/*.nii.gz", "/[ab]_000?.nii.gz"])
def test_a_folder_or_a_pattern(scans: Path, named: str) -> None:
    wanted = [
        Case(tuple(f"{scans}/{case}_000{n}.nii.gz" for n in (0, 1)), f"out/{case}.nii.gz")
        for case in "ab"
    ]
    assert cases_of([f"{scans}{named}"], "out") == wanted


def test_what_is_refused(scans: Path) -> None:
    with pytest.raises(
        VolumeError, match=r"names scans: name a folder to write, not the file o\.h5"
    ):
        cases_of([f"{scans}/*.nii.gz"], "o.h5")
    with pytest.raises(VolumeError, match="a has channels 0001"):
        cases_of([f"{scans}/a_0001.*"], "out")
    with pytest.raises(VolumeError, match="no file is named"):
        cases_of([f"{scans}/c_*.nii.gz"], "out")
    (scans / "plain").mkdir()
    (scans / "plain" / "c.nii.gz").touch()
    with pytest.raises(VolumeError, match=r"c\.nii\.gz is read, and .* name another folder"):
        cases_of([f"{scans}/plain"], f"{scans}/plain")
    alone = Case((f"{scans}/a_0000.nii.gz",), "o.h5")
    assert cases_of([f"{scans}/a_0000.nii.gz"], "o.h5") == [alone]


def test_outputs_are_of_formats_that_hold_them(tmp_path: Path) -> None:
    for end, labels, logits in (
        ("mrc", "mrc", "nii.gz"),
        ("png", "png", "nii.gz"),
        ("mha", "mha", "mha"),
    ):
        (tmp_path / f"c_0000.{end}").touch()
        pattern = [f"{tmp_path}/*.{end}"]
        assert cases_of(pattern, "out")[0].output == f"out/c.{labels}"
        assert cases_of(pattern, "out", "float32", 3)[0].output == f"out/c.{logits}"
