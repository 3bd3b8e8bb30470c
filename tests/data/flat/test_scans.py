"""NRRD, MetaImage and MRC: what their own libraries write is read with its place, and what is written they read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mrcfile
import nrrd
import numpy as np
import pytest
import SimpleITK
from numpy.typing import NDArray

from znnpy.data.flat.geometry import matrix_of
from znnpy.data.opening import open_volume
from znnpy.data.volume import Volume, directions_attribute
from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.mrc_output import write_mrc
from znnpy.data.writing.preflight import refuse_place
from znnpy.errors import VolumeError
from znnpy.registry import resolved

Array = NDArray[Any]
RNG = np.random.default_rng(0)
# A rotation about an odd axis: its columns are the directions of x, y, z, in ITK's LPS.
TURN = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
SPACING, ORIGIN = np.array([0.5, 0.7, 2.0]), np.array([10.0, -20.0, 30.0])
LPS = np.array([-1, -1, 1])
TYPES = ("u1", "i1", "<i2", ">i2", "<u2", "<i4", "<u4", "<f4", ">f4", "<f8", "<i8", "<u8")


def values(shape: tuple[int, ...], dtype: str) -> Array:
    return RNG.integers(0, 100, shape).astype(dtype)


def image_of(array: Array) -> Any:
    """As SimpleITK has it, of (z, y, x) or (z, y, x, c), turned in space."""
    image = SimpleITK.GetImageFromArray(array, isVector=array.ndim == 4)
    image.SetSpacing(SPACING.tolist())
    image.SetOrigin(ORIGIN.tolist())
    image.SetDirection(TURN.reshape(-1).tolist())
    return image


def place_of(volume: Volume) -> tuple[Array, Array]:
    """Steps of x, y, z, and the first voxel, in LPS and millimetres."""
    given = {"resolution": volume.resolution, "offset": volume.offset}
    steps, origin = matrix_of({**given, **directions_attribute(volume)})
    return steps * LPS[:, None] / 1e6, origin * LPS / 1e6


def lies_as_it_should(volume: Volume) -> None:
    steps, origin = place_of(volume)
    np.testing.assert_allclose(steps, TURN * SPACING, atol=1e-6)
    np.testing.assert_allclose(origin, ORIGIN, atol=1e-5)


def read(path: Path, wanted: Array) -> None:
    """(c, z, y, x), whole and in part."""
    with open_volume(path) as volume:
        assert volume.shape == wanted.shape
        assert volume.dtype == wanted.dtype.newbyteorder("=")
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((1, 2, 1), (3, 4, 4)), wanted[:, 1:3, 2:4, 1:4])
        volume.verify()


@pytest.mark.parametrize("end", ["mha", "mhd", "nrrd", "nhdr", "nii.gz"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_itk_writes(tmp_path: Path, end: str, packed: bool, channels: int) -> None:
    array = values((4, 5, 6, channels), "i2")
    path = tmp_path / f"a.{end}"
    SimpleITK.WriteImage(image_of(array if channels > 1 else array[..., 0]), str(path), packed)
    read(path, np.moveaxis(array, -1, 0))
    with open_volume(path) as volume:
        lies_as_it_should(volume)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("encoding", ["raw", "gzip", "bzip2"])
def test_what_pynrrd_writes(tmp_path: Path, dtype: str, encoding: str) -> None:
    array = values((4, 5, 6), dtype)
    header = {
        "space": "right-anterior-superior",
        "space directions": (TURN * SPACING).T * LPS,
        "space origin": ORIGIN * LPS,
        "encoding": encoding,
    }
    for end in ("nrrd", "nhdr"):
        nrrd.write(str(tmp_path / f"a.{end}"), array.T, header)
        read(tmp_path / f"a.{end}", array[None])
        with open_volume(tmp_path / f"a.{end}") as volume:
            lies_as_it_should(volume)


@pytest.mark.parametrize("said", ["big", "Big", "BIG"])
def test_byte_orders_of_nrrd(tmp_path: Path, said: str) -> None:
    array = values((4, 5, 6), ">u2")
    nrrd.write(str(tmp_path / "a.nrrd"), array.T, {"encoding": "raw"})
    read(replaced(tmp_path / "a.nrrd", b"endian: big", f"endian: {said}".encode()), array[None])


@pytest.mark.parametrize("first", [True, False])
def test_channels_of_nrrd(tmp_path: Path, first: bool) -> None:
    array = values((3, 4, 5, 6), "u1")
    kinds = ["domain"] * 3
    stored = (np.moveaxis(array, 0, -1) if first else array).T
    kinds.insert(0 if first else 3, "vector")
    nrrd.write(str(tmp_path / "a.nrrd"), stored, {"kinds": kinds})
    read(tmp_path / "a.nrrd", array)
    with open_volume(tmp_path / "a.nrrd") as volume:
        assert not volume.unnamed
    nrrd.write(str(tmp_path / "b.nrrd"), array.T)
    read(tmp_path / "b.nrrd", array)
    with open_volume(tmp_path / "b.nrrd") as volume:
        assert volume.unnamed


@pytest.mark.parametrize(
    ("units", "size"),
    [([], 2e6), (["mm"] * 3, 2e6), (["microns"] * 3, 2e3), (["nm"] * 3, 2), (["pixel"] * 3, 1)],
)
def test_units_of_nrrd(tmp_path: Path, units: list[str], size: float) -> None:
    more = {"units": units} if units else {}
    nrrd.write(str(tmp_path / "a.nrrd"), values((4, 5, 6), "u1"), {"spacings": [2.0] * 3, **more})
    with open_volume(tmp_path / "a.nrrd") as volume:
        assert volume.resolution == (size,) * 3
        assert volume.placed is None


@pytest.mark.parametrize("dtype", ["i1", "i2", "u2", "f4", ">i2", ">f4", "f2"])
def test_what_mrcfile_writes(tmp_path: Path, dtype: str) -> None:
    array = values((4, 5, 6), dtype)
    with mrcfile.new(tmp_path / "a.mrc") as file:
        file.set_data(array)
        file.set_extended_header(np.zeros(7, "V10"))
        file.voxel_size = (8.0, 9.0, 10.0)
        file.header.origin = (80.0, 0.0, 20.0)
    read(tmp_path / "a.mrc", array[None].astype("f4" if dtype == "f2" else dtype))
    with open_volume(tmp_path / "a.mrc") as volume:
        assert volume.resolution == pytest.approx((1.0, 0.9, 0.8))
        assert volume.placed == pytest.approx((2, 0, 8))


def test_bytes_of_imod_are_unsigned(tmp_path: Path) -> None:
    with mrcfile.new(tmp_path / "a.rec.mrc") as file:
        file.set_data(values((2, 3, 4), "i1"))
    data = bytearray((tmp_path / "a.rec.mrc").read_bytes())
    data[152:160] = np.array([1146047817, 0], "<i4").tobytes()
    data[-1] = 200
    (tmp_path / "a.rec").write_bytes(data)
    with open_volume(tmp_path / "a.rec") as volume:
        assert volume.dtype == np.uint8
        assert volume.read_all()[0, -1, -1, -1] == 200


def written(path: Path, array: Array, attributes: dict[str, Any]) -> Path:
    """By blocks, in two goes."""
    there = Destination.named(str(path), "main")
    spec = OutputSpec(array.shape, array.dtype, (2, 3, 3), attributes)  # type: ignore[arg-type]
    blocks = spec.blocks()
    for some in (blocks[:3], blocks[3:]):
        with open_output(there, spec) as out:
            for lower, upper in some:
                at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
                out.write(lower, array[(slice(None), *at)])
            if some is not blocks[:3] and len(out.done) == len(blocks):
                out.finish()
    assert [p.name for p in path.parent.iterdir() if "partial" in p.name] == []
    return path


def attributes(folder: Path) -> dict[str, Any]:
    SimpleITK.WriteImage(image_of(values((4, 5, 6), "u1")), str(folder / "image.mha"))
    with open_volume(folder / "image.mha") as volume:
        place = {"resolution": list(volume.resolution), "offset": list(volume.offset)}
        return {**place, **directions_attribute(volume)}


@pytest.mark.parametrize("end", ["mha", "nrrd", "nii"])
@pytest.mark.parametrize("dtype", ["u1", "f4", "u8", "i2"])
@pytest.mark.parametrize("channels", [1, 2])
def test_itk_reads_what_is_written(tmp_path: Path, end: str, dtype: str, channels: int) -> None:
    array = values((channels, 4, 5, 6), dtype)
    path = written(tmp_path / f"p.{end}", array, attributes(tmp_path))
    found = SimpleITK.ReadImage(str(path))
    got = SimpleITK.GetArrayFromImage(found)
    assert np.array_equal(
        got.reshape(array.shape) if channels == 1 or got.shape[0] == 2 else np.moveaxis(got, -1, 0),
        array,
    )
    read(path, array)
    with open_volume(path) as volume:
        lies_as_it_should(volume)
    if found.GetDimension() == 3:
        np.testing.assert_allclose(found.GetSpacing(), SPACING, atol=1e-6)
        np.testing.assert_allclose(found.GetOrigin(), ORIGIN, atol=1e-4)
        np.testing.assert_allclose(found.GetDirection(), TURN.reshape(-1), atol=1e-6)


@pytest.mark.parametrize("channels", [1, 2])
def test_pynrrd_reads_what_is_written(tmp_path: Path, channels: int) -> None:
    array = values((channels, 4, 5, 6), "f4")
    data, header = nrrd.read(str(written(tmp_path / "p.nrrd", array, attributes(tmp_path))))
    assert np.array_equal(data.T.reshape(array.shape), array)
    np.testing.assert_allclose(header["space directions"][:3], (TURN * SPACING).T * LPS, atol=1e-6)
    np.testing.assert_allclose(header["space origin"], ORIGIN * LPS, atol=1e-5)


@pytest.mark.parametrize("dtype", ["i1", "i2", "u2", "f4"])
def test_mrcfile_reads_what_is_written(tmp_path: Path, dtype: str) -> None:
    array = values((1, 4, 5, 6), dtype)
    place = {"resolution": [40, 4, 5], "offset": [80, 8, 0]}
    path = written(tmp_path / "p.mrc", array, place)
    assert mrcfile.validate(path)
    with mrcfile.open(path) as file:
        assert np.array_equal(file.data, array[0])
        assert file.voxel_size.tolist() == (50, 40, 400)
        assert file.is_volume()
    with open_volume(path) as volume:
        assert (volume.resolution, volume.offset) == ((40, 4, 5), (80, 8, 0))


def test_labels_and_what_mrc_has_not(tmp_path: Path) -> None:
    write_mrc(Destination(tmp_path / "l.mrc", ""), values((4, 5, 6), "u8"))
    assert mrcfile.read(tmp_path / "l.mrc").dtype == np.uint16
    for array, words in (
        (np.full((1, 1, 1), 70_000, np.uint64), "MRC has no uint32"),
        (np.zeros((2, 1, 1, 1), np.float32), "one channel, not 2"),
    ):
        with pytest.raises(VolumeError, match=words):
            write_mrc(Destination(tmp_path / "m.mrc", ""), array)
    for name in ("a.nhdr", "a.mhd", "a.rec"):
        with pytest.raises(VolumeError, match=r"are written, name a file a\.h5"):
            refuse_place(tmp_path / name)


@pytest.mark.parametrize("end", ["mha", "nrrd"])
def test_types_that_a_format_has_not(tmp_path: Path, end: str) -> None:
    there = Destination(tmp_path / f"a.{end}", "")
    with pytest.raises(VolumeError, match="has no float16"):
        resolved(there.format.whole)(there, np.zeros((1, 2, 3), np.float16), None)
    assert not list(tmp_path.iterdir())


def refused(path: Path, words: str) -> None:
    with pytest.raises(VolumeError, match=words) as caught:
        open_volume(path)
    assert str(path) in str(caught.value)


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    assert old in path.read_bytes()
    other = path.with_name(f"bad{path.suffix}")
    other.write_bytes(path.read_bytes().replace(old, new, 1))
    return other


def test_what_is_refused_of_nrrd(tmp_path: Path) -> None:
    good = tmp_path / "a.nrrd"
    nrrd.write(str(good), values((4, 5, 6), "u1"), {"encoding": "raw"})
    for old, new, words in (
        (b"NRRD000", b"NERD000", "is no NRRD file, though named so"),
        (b"sizes: 4 5 6", b"sizes: 4 5 9999999999999", "truncated: .* declares"),
        (b"sizes: 4 5 6", b"sizes: 4 -5 6", "expected x, y, z, with or without"),
        (b"sizes: 4 5 6", b"sizes: 4 5", "declares 3 axes and the sizes"),
        (b"sizes: 4 5 6", b"sizer: 4 5 6", "does not say sizes"),
        (b"type: uint8", b"type: block", "holds block"),
        (b"encoding: raw", b"encoding: txt", "encoded as txt; raw, gzip and bzip2 are read"),
        (b"encoding: raw", b"encoding: raw\nbyte skip: 3", "truncated"),
        (b"encoding: raw", b"encoding: raw\nline skip: 3", "skips 3 lines"),
        (
            b"encoding: raw",
            b"encoding: raw\ndata file: ../x.raw",
            "leads out of its folder; refused",
        ),
        (b"encoding: raw", b"encoding: raw\ndata file: /etc/passwd", "leads out of its folder"),
        (b"encoding: raw", b"encoding: raw\ndata file: x.raw", "x.raw, which is not there"),
        (b"encoding: raw", b"encoding: raw\ndata file: LIST", "in several files"),
        (b"encoding: raw", b"encoding: raw\ndata file: x%03d.raw 1 9 1", "in several files"),
        (b"\n\n", b"\n", "has no end|damaged"),
    ):
        refused(replaced(good, old, new), words)
    nrrd.write(str(good), values((4, 5, 6), "<u2"), {"encoding": "raw"})
    for new, words in ((b"", "says no endian"), (b"endian: middle\n", "says endian: middle")):
        refused(replaced(good, b"endian: little\n", new), words)
    nrrd.write(str(good), values((4, 5, 6), "u1"), {"encoding": "gzip"})
    refused(replaced(good, b"sizes: 4 5 6", b"sizes: 4 5 99999999999"), "declares .* of data")
    cut = tmp_path / "cut.nrrd"
    cut.write_bytes(good.read_bytes()[:-30])
    refused(cut, "gzip data are cut or damaged|is truncated")


def test_what_is_refused_of_metaimages(tmp_path: Path) -> None:
    good = tmp_path / "a.mha"
    SimpleITK.WriteImage(image_of(values((6, 5, 4), "u1")), str(good), False)
    for old, new, words in (
        (b"ElementDataFile", b"ElementDataFill", "is no MetaImage, though named so"),
        (b"DimSize = 4 5 6", b"DimSize = 4 5 9999999999999", "truncated: .* declares"),
        (b"DimSize = 4 5 6", b"DimSize = 4 0 6", "expected x, y, z, with or without"),
        (b"DimSize = 4 5 6", b"DimSize = 4 5", "declares 3 axes and the sizes"),
        (b"DimSize = 4 5 6", b"DimSize = 4 5 x", "header is damaged"),
        (b"NDims", b"MDims", "does not say NDims"),
        (b"MET_UCHAR", b"MET_STRING", "holds MET_STRING"),
        (b"BinaryData = True", b"BinaryData = False", "holds its voxels as text"),
        (b"Spacing = 0.5", b"Spacing = nan", "not finite|must be positive"),
        (b"Spacing = 0.5", b"Spacing = 0", "does not span"),
        (b"= LOCAL", b"= ../x", "leads out of its folder; refused"),
        (b"= LOCAL", b"= LIST", "in several files"),
        (b"= LOCAL", b"= x", "which is not there"),
    ):
        refused(replaced(good, old, new), words)
    SimpleITK.WriteImage(image_of(values((6, 5, 4), "u1")), str(good), True)
    refused(replaced(good, b"DimSize = 4 5 6", b"DimSize = 4 5 99999999999"), "declares .* of data")


def test_what_is_refused_of_mrc(tmp_path: Path) -> None:
    with mrcfile.new(tmp_path / "a.mrc") as file:
        file.set_data(values((6, 5, 4), "i2"))
        file.set_volume()
    whole = bytearray((tmp_path / "a.mrc").read_bytes())
    whole[36:40] = (2).to_bytes(4, "little")  # planes of a volume
    good = bytes(whole)
    bad = tmp_path / "b.mrc"
    for at, new, words in (
        (88, (401).to_bytes(4, "little"), "holds 3 volumes of 2 planes"),
        (208, b"PAM ", "is no MRC file, though named so"),
        (212, b"\0\0", "header is damaged .*machine stamp"),
        (8, b"\xff\xff\xff\x7f", "truncated: .* declares"),
        (8, b"\xff\xff\xff\xff", "the volume is empty"),
        (12, b"\4", "is of mode 4"),
        (12, b"\x65", "is of mode 101"),
        (64, b"\2", "in the order"),
        (92, b"\xff\xff\xff\xff", "extended header has -1"),
        (92, b"\xff\xff\xff\x7f", "truncated"),
    ):
        bad.write_bytes(good[:at] + new + good[at + len(new) :])
        refused(bad, words)


@pytest.mark.parametrize(
    ("module", "extra", "name"), [("nrrd", "nrrd", "a.nrrd"), ("mrcfile", "mrc", "a.mrc")]
)
def test_without_its_package(
    tmp_path: Path, module: str, extra: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Callable[[], object]] = {
        "a.nrrd": lambda: nrrd.write(str(tmp_path / "a.nrrd"), values((2, 3, 4), "u1")),
        "a.mrc": lambda: mrcfile.write(tmp_path / "a.mrc", values((2, 3, 4), "i1")),
    }
    made[name]()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(VolumeError, match=rf'{extra.upper()} .*pip install "znnpy\[{extra}\]"'):
        open_volume(tmp_path / name)


def test_voxels_at_the_end_of_their_file(tmp_path: Path) -> None:
    """As headers for others' files say by -1."""
    array = values((4, 5, 6), "<i2")
    (tmp_path / "a.dat").write_bytes(b"a header of any length" + array.tobytes())
    (tmp_path / "a.nhdr").write_text(
        "NRRD0004\ntype: int16\ndimension: 3\nsizes: 6 5 4\nendian: little\nencoding: raw\nbyte skip: -1\n"
        "data file: a.dat\n"
    )
    (tmp_path / "a.mhd").write_text(
        "NDims = 3\nDimSize = 6 5 4\nElementType = MET_SHORT\nHeaderSize = -1\nElementDataFile = a.dat\n"
    )
    for name in ("a.nhdr", "a.mhd"):
        read(tmp_path / name, array[None])
