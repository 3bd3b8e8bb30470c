"""NIfTI: what nibabel writes is read voxel for voxel with its place, and what is written nibabel reads."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest

from znnpy.data import safety_limits
from znnpy.data.flat.nifti import open_nifti
from znnpy.data.opening import open_volume
from znnpy.data.safety_limits import Trust
from znnpy.data.scene import Scene
from znnpy.data.volume import Volume, directions_attribute
from znnpy.data.writing.block_output import Finished, OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.hdf5_output import write_volume
from znnpy.data.writing.nifti_output import NiftiOutput, write_nifti
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)
TURNED = np.array(
    [[-0.49, 0.05, 0.1, 10], [0.06, 0.7, 0.2, -20], [0.08, -0.15, 1.98, 30], [0, 0, 0, 1.0]]
)
SUFFIXES = ("nii", "nii.gz")
TYPES = ("u1", "<i2", ">i2", "<u2", "<i4", ">f4", "<f8", "<u4", "i1", "<u8")


def values(shape: tuple[int, ...], dtype: str) -> Any:
    return RNG.integers(0, 100, shape).astype(dtype)


def saved(path: Path, array: Any, affine: Any = TURNED, kind: Any = nibabel.Nifti1Image) -> Path:
    """An image of an array (x, y, z ...), in the byte order of its type."""
    header = kind.header_class(endianness=">" if array.dtype.str[0] == ">" else "<")
    header.set_data_dtype(array.dtype)
    header.set_xyzt_units("mm")
    kind(array, affine, header).to_filename(path)
    return path


def affine_of(volume: Volume) -> Any:
    """In millimetres, from what a volume says of its place."""
    assert volume.directions is not None
    directions = np.array(volume.directions)
    affine = np.eye(4)
    affine[:3, :3] = (directions * np.array(volume.resolution)[:, None])[::-1].T / 1e6
    affine[:3, 3] = np.array(volume.offset) @ directions / 1e6
    return affine


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_what_nibabel_writes(tmp_path: Path, suffix: str, dtype: str, kind: Any) -> None:
    array = values((5, 6, 7), dtype)
    with open_volume(saved(tmp_path / f"a.{suffix}", array, kind=kind)) as volume:
        assert volume.shape == (1, 7, 6, 5)
        assert volume.dtype == np.dtype(dtype).newbyteorder("=")
        assert np.array_equal(volume.read_all()[0], array.T)
        assert np.array_equal(volume.read((1, 2, 1), (4, 5, 3))[0], array[1:3, 2:5, 1:4].T)
        np.testing.assert_allclose(affine_of(volume), TURNED, atol=1e-5)
        assert volume.resolution == pytest.approx(
            tuple(1e6 * np.linalg.norm(TURNED[:3, axis]) for axis in (2, 1, 0))
        )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("shape", [(5, 6, 7, 3), (5, 6, 7, 1, 3), (5, 6, 7, 1), (5, 6)])
def test_more_axes_are_channels(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    array = values(shape, "f4")
    with open_volume(saved(tmp_path / f"a.{suffix}", array)) as volume:
        wanted = array.T.reshape(-1, *(shape[2:3] or (1,)), 6, 5)
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((0, 1, 2), (1, 4, 4)), wanted[:, :1, 1:4, 2:4])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("dtype", "shown"), [("<i2", "f4"), ("u1", "f4"), ("<i4", "f4"), ("<f8", "f8")]
)
def test_scaled_values(tmp_path: Path, suffix: str, dtype: str, shown: str) -> None:
    image = nibabel.Nifti1Image(values((5, 6, 7), dtype), TURNED)
    path = tmp_path / f"a.{suffix}"
    image.to_filename(path)
    data = path.read_bytes() if suffix == "nii" else gzip.decompress(path.read_bytes())
    data = data[:112] + np.array([0.25, -3], "<f4").tobytes() + data[120:]
    path.write_bytes(data if suffix == "nii" else gzip.compress(data))
    with open_volume(path) as volume:
        wanted = nibabel.load(path).get_fdata().T
        assert volume.dtype == np.dtype(shown)
        np.testing.assert_allclose(volume.read_all()[0], wanted, rtol=1e-6)
        assert volume.read_all().min() < 0


@pytest.mark.parametrize(
    ("unit", "size"), [("mm", 2e6), ("micron", 2e3), ("meter", 2e9), ("unknown", 2e6)]
)
def test_units(tmp_path: Path, unit: str, size: float) -> None:
    image = nibabel.Nifti1Image(values((2, 3, 4), "u1"), np.diag([2, 2, 2, 1]))
    image.header.set_xyzt_units(unit)
    image.to_filename(tmp_path / "a.nii")
    with open_volume(tmp_path / "a.nii") as volume:
        assert volume.resolution == (size,) * 3


def test_an_image_that_does_not_say_where_it_lies(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(values((2, 3, 4), "u1"), None)
    image.header.set_zooms((0.5, 0.6, 0.7))
    image.to_filename(tmp_path / "a.nii")
    data = bytearray((tmp_path / "a.nii").read_bytes())
    data[252:256] = bytes(4)  # both codes: nothing is known
    (tmp_path / "a.nii").write_bytes(data)
    with open_volume(tmp_path / "a.nii") as volume:
        assert volume.resolution == (7e5, 6e5, 5e5)
        assert volume.placed is None
        assert volume.directions is None


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_output_lies_where_its_image_lies(tmp_path: Path, suffix: str, channels: int) -> None:
    with open_volume(saved(tmp_path / f"a.{suffix}", values((9, 8, 7), "u1"))) as image:
        z, y, x = image.resolution
        attributes = {
            "resolution": image.resolution,
            "offset": [
                a + s * n for a, s, n in zip(image.offset, (z, y, x), (1, 2, 3), strict=True)
            ],
            **directions_attribute(image),
        }
    predicted = RNG.random((channels, 5, 4, 3)).astype(np.float32)
    out = tmp_path / f"p.{suffix}"
    spec = OutputSpec(predicted.shape, predicted.dtype, (2, 3, 3), attributes)
    with open_output(Destination.named(str(out), "main"), spec) as writing:
        for lower, upper in spec.blocks():
            at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            writing.write(lower, predicted[(slice(None), *at)])
        writing.finish()
    assert [p.name for p in sorted(tmp_path.iterdir())] == [f"a.{suffix}", f"p.{suffix}"]
    found = nibabel.load(out)
    assert np.array_equal(np.asarray(found.dataobj).T.reshape(predicted.shape), predicted)
    # Voxel (0, 0, 0) of the output is voxel (3, 2, 1), x y z, of the image.
    np.testing.assert_allclose(found.affine @ [0, 0, 0, 1], TURNED @ [3, 2, 1, 1], atol=1e-4)
    np.testing.assert_allclose(found.affine[:3, :3], TURNED[:3, :3], atol=1e-5)
    with open_volume(out) as volume:
        assert np.array_equal(volume.read_all(), predicted)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_killed_process_goes_on(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = values((1, 4, 5, 6), "u1")
    there = Destination(tmp_path / f"p.{suffix}", "")
    spec = OutputSpec(array.shape, array.dtype, (2, 5, 6))
    with NiftiOutput(there, spec) as out:
        out.write((0, 0, 0), array[:, :2])
    with NiftiOutput(there, spec) as out:
        assert out.done == {((0, 0, 0), (2, 5, 6))}
        out.write((2, 0, 0), array[:, 2:])
        with monkeypatch.context() as patched:
            patched.setattr(
                NiftiOutput, "_replace", lambda self: (_ for _ in ()).throw(OSError(5, "x"))
            )
            with pytest.raises(OSError, match="x"):
                out.finish()
    with pytest.raises(Finished):
        NiftiOutput(there, spec)
    assert np.array_equal(np.asarray(nibabel.load(there.path).dataobj).T, array[0])
    assert [p.name for p in tmp_path.iterdir()] == [there.path.name]


def test_labels_are_narrow_and_through_hdf5_nothing_is_lost(tmp_path: Path) -> None:
    with open_volume(saved(tmp_path / "a.nii", values((4, 5, 6), "u1"))) as image:
        attributes = {
            "resolution": image.resolution, "offset": image.offset, **directions_attribute(image)
        }  # fmt: skip
    labels = values((6, 5, 4), "u8")
    write_volume(Destination(tmp_path / "p.h5", "main"), labels, attributes)
    with open_volume(tmp_path / "p.h5") as volume:
        np.testing.assert_allclose(affine_of(volume), TURNED, atol=1e-5)
        again = {**attributes, **directions_attribute(volume)}
    write_nifti(Destination(tmp_path / "l.nii.gz", ""), labels, again)
    found = nibabel.load(tmp_path / "l.nii.gz")
    assert found.get_data_dtype() == np.uint8
    assert np.array_equal(np.asarray(found.dataobj).T, labels)
    np.testing.assert_allclose(found.affine, TURNED, atol=1e-5)


def test_long_axes_and_types_that_nifti_has_not(tmp_path: Path) -> None:
    write_nifti(Destination(tmp_path / "a.nii", ""), np.zeros((1, 2, 40_000), np.uint8))
    assert nibabel.load(tmp_path / "a.nii").shape == (40_000, 2, 1)
    with pytest.raises(VolumeError, match="NIfTI has no float16"):
        write_nifti(Destination(tmp_path / "b.nii", ""), np.zeros((1, 2, 4), np.float16))
    spec = OutputSpec(
        (2, 1, 1, 1), np.dtype("f4"), (1, 1, 1), {"offsets": [[0, 0, -3], [0, -9, 0]]}
    )
    with pytest.raises(VolumeError, match="cannot say which neighbours"):
        NiftiOutput(Destination(tmp_path / "c.nii", ""), spec)
    assert [p.name for p in tmp_path.iterdir()] == ["a.nii"]


def test_labels_of_one_image_lie_in_it(tmp_path: Path) -> None:
    """Cut by nibabel, of float32 places; and those of another direction are refused."""
    array = values((9, 8, 7), "u1")
    image = nibabel.load(saved(tmp_path / "a.nii", array))
    image.slicer[2:6, 3:7, 1:5].to_filename(tmp_path / "l.nii.gz")
    saved(tmp_path / "t.nii", array, np.diag([0.5, 0.7, 2, 1]) @ np.eye(4))
    raw, labels = open_volume(tmp_path / "a.nii"), open_volume(tmp_path / "l.nii.gz", role="labels")
    scene = Scene({"in": raw}, {"out": labels})
    assert scene.corner(labels) == (1, 3, 2)
    scene.close()
    with (
        open_volume(tmp_path / "a.nii", resolution=(1, 1, 1)) as first,
        open_volume(tmp_path / "t.nii", resolution=(1, 1, 1)) as other,
        pytest.raises(VolumeError, match="must be equal: resample one"),
    ):
        Scene({"in": first}, {"out": other})


def refused(path: Path, words: str, **more: Any) -> None:
    with pytest.raises(VolumeError, match=words) as caught:
        open_volume(path, **more)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused(tmp_path: Path) -> None:
    good = saved(tmp_path / "a.nii", values((5, 6, 7), "u1")).read_bytes()

    def changed(name: str, at: int, new: bytes) -> Path:
        data = good[:at] + new + good[at + len(new) :]
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        return tmp_path / name

    huge = np.array([3, 30000, 30000, 30000], "<i2").tobytes()
    for name in ("b.nii", "b.nii.gz"):
        refused(
            changed(name, 0, b"text"), "is no NIfTI image, though named so: it begins with b'text'"
        )
        refused(changed(name, 344, b"ni1\0"), "its voxels lie in another file")
        refused(changed(name, 344, b"what"), "no NIfTI image: its magic bytes")
        refused(changed(name, 40, np.array([9], "<i2").tobytes()), "declares 9 axes")
        refused(changed(name, 42, np.array([0], "<i2").tobytes()), "the volume is empty")
        refused(changed(name, 42, np.array([-5], "<i2").tobytes()), "the volume is empty")
        refused(
            changed(name, 70, np.array([128], "<i2").tobytes()),
            "holds .*expected integers or floats",
        )
        refused(changed(name, 108, np.array([np.nan], "<f4").tobytes()), "begin at byte nan")
        refused(changed(name, 108, np.array([100], "<f4").tobytes()), "begin at byte 100, inside")
        refused(changed(name, 123, b"\x07"), "unit of length number 7")
        refused(changed(name, 280, bytes(48)), "does not span three dimensions")
        refused(changed(name, 280, np.array([np.inf], "<f4").tobytes()), "not finite")
        refused(tmp_path / name, "no datasets", dataset="raw")
    refused(changed("b.nii", 40, huge), r"truncated: .* declares 24\.6 TiB")
    refused(changed("b.nii.gz", 40, huge), r"declares 24\.6 TiB of data")
    (tmp_path / "c.nii.gz").write_bytes(gzip.compress(good)[:-60])
    refused(tmp_path / "c.nii.gz", "gzip data are cut or damaged|is truncated")
    (tmp_path / "d.nii.gz").write_bytes(gzip.compress(good[:-9]))
    refused(tmp_path / "d.nii.gz", "is truncated: its data end 9 bytes before")
    plain = bytearray(gzip.compress(good, 0))
    plain[-20] ^= 1  # a voxel
    (tmp_path / "f.nii.gz").write_bytes(plain)
    refused(tmp_path / "f.nii.gz", "gzip data are cut or damaged .CRC check failed")
    (tmp_path / "e.nii").touch()
    refused(tmp_path / "e.nii", "is empty")


def test_what_lies_behind_gzip_data(tmp_path: Path) -> None:
    saved(tmp_path / "a.nii.gz", values((5, 6, 7), "u1"))
    for more in (bytes(9), b"of another program", gzip.compress(b"a member")):
        (tmp_path / "b.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes() + more)
        with open_volume(tmp_path / "a.nii.gz") as one, open_volume(tmp_path / "b.nii.gz") as other:
            assert np.array_equal(one.read_all(), other.read_all())


def test_several_times(tmp_path: Path) -> None:
    refused(saved(tmp_path / "a.nii", values((2, 3, 4, 5, 6), "u1")), "expected one image")


def test_what_memory_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed ones are read whole; others by region, whatever their size."""
    monkeypatch.setattr(safety_limits, "available_memory", lambda: 200)
    for suffix in SUFFIXES:
        saved(tmp_path / f"a.{suffix}", values((5, 6, 7), "u1"))
    open_volume(tmp_path / "a.nii").close()
    refused(tmp_path / "a.nii.gz", "takes 210 B in memory, where such files are read whole")


def test_without_nibabel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "a.nii.gz", values((5, 6, 7), "u1"))
    monkeypatch.setitem(sys.modules, "nibabel", None)
    for attempt in (
        lambda: open_nifti(path, Trust()),
        lambda: write_nifti(Destination(tmp_path / "b.nii", ""), np.zeros((1, 1, 1), np.uint8)),
    ):
        with pytest.raises(VolumeError, match=r'NIfTI.*nibabel.*pip install "znnpy\[nifti\]"'):
            attempt()


def test_a_wrong_name_does_no_harm(tmp_path: Path) -> None:
    """A file of another format that is named .nii is what it is."""
    with h5py.File(tmp_path / "a.nii", "w") as file:
        file["raw"] = values((2, 3, 4), "u1")
    assert open_volume(tmp_path / "a.nii").shape == (1, 2, 3, 4)
