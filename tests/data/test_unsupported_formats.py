"""Formats that are not read are named, with the way to one that is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from znnpy.data.formats import other_format, plain_stem
from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError


@pytest.mark.parametrize(
    ("name", "title", "way"),
    [
        (
            "a.img",
            "half of an Analyze image or of a pair of NIfTI files",
            "nibabel.load('{}').get_fdata().T",
        ),
        ("a.mat", "a file of MATLAB", "h5py.File('a.h5', 'w')['raw'] = scipy.io.loadmat('{}')"),
        ("A.DCM", "a DICOM image", "SimpleITK.GetArrayFromImage(SimpleITK.ReadImage('{}'))"),
        ("a.mrc.gz", "MRC compressed by gzip", "gunzip {}"),
        ("a.h5.gz", "HDF5 compressed by gzip", "gunzip {}"),
        ("a.czi", "a microscope's own file", "open it in Fiji and save it as TIFF"),
        ("a.webp", "a picture", "Fiji"),
        ("a.tar.gz", "an archive", "unpack it first"),
    ],
)
def test_the_way_in_is_told(tmp_path: Path, name: str, title: str, way: str) -> None:
    path = tmp_path / name
    content = b"\x89of no format that is read"
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(VolumeError) as caught:
        open_volume(path)
    assert f"{path}, by its name {title}, is not read: " in str(caught.value)
    assert way.format(path) in str(caught.value)


def test_folders_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "a.dcm").mkdir()
    with pytest.raises(VolumeError, match="a DICOM image, is not read"):
        open_volume(tmp_path / "a.dcm")


def test_names_of_what_is_read_say_nothing() -> None:
    assert not any(other_format(Path(f"a.{end}")) for end in ("h5", "tif", "npz", "gz", "zarr"))
    assert plain_stem(Path("x/a.b.nii.gz")) == "a.b"


def test_a_path_below_a_file_names_its_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.h5").touch()
    with pytest.raises(VolumeError, match=r"a\.h5 is a file; a dataset in it is named .*a\.h5:x/y"):
        open_volume(tmp_path / "a.h5" / "x" / "y")
