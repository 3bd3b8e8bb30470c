"""OME-TIFF stacks: what is written tifffile reads voxel for voxel, and this package with size and place; resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from znnpy.data.opening import open_volume
from znnpy.data.writing import tiff_output
from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.data.writing.pyramid import coarser
from znnpy.data.writing.tiff_output import write_tiff
from znnpy.errors import VolumeError

Array = NDArray[Any]
PLACE = {"resolution": (40.0, 4.0, 5.5), "offset": (80.0, -12.0, 0.1)}
OME = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"


def values(shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def spec_of(array: Array, **more: Any) -> OutputSpec:
    c, z, y, x = array.shape
    return OutputSpec((c, z, y, x), array.dtype, (2, 3, 4), PLACE, {"job": "this"}, **more)


def written(path: Path, array: Array) -> Path:
    spec = spec_of(array)
    with open_output(Destination(path, ""), spec) as output:
        for lower, upper in spec.blocks():
            part = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            output.write(lower, array[(slice(None), *part)])
        output.finish()
    return path


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])
@pytest.mark.parametrize(
    "shape", [(1, 5, 6, 7), (3, 5, 6, 7), (2, 1, 6, 3), (1, 1, 6, 4), (1, 4, 1, 3), (4, 3, 6, 1)]
)
@pytest.mark.parametrize("big", [False, True])
def test_tifffile_reads_what_is_written(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, big: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if big:
        monkeypatch.setattr(tiff_output, "CLASSIC", 100)
    array = values(shape, dtype)
    path = written(tmp_path / "a.tif", array)
    with tifffile.TiffFile(path) as file:
        assert file.is_bigtiff is big
        assert file.is_ome
        assert len(file.pages) == shape[0] * shape[1]
        assert np.array_equal(file.asarray().reshape(shape), array)
        assert np.array_equal(file.pages[-1].asarray().reshape(shape[2:]), array[-1, -1])
        text = file.ome_metadata
    pixels = ElementTree.fromstring(text).find(f"{OME}Image/{OME}Pixels")
    assert pixels is not None
    found = [float(pixels.attrib[f"PhysicalSize{axis}"]) for axis in "ZYX"]
    assert found == list(PLACE["resolution"])
    assert {pixels.attrib[f"PhysicalSize{axis}Unit"] for axis in "ZYX"} == {"nm"}
    with open_volume(path) as volume:
        assert volume.shape == shape
        assert volume.dtype == array.dtype
        assert np.array_equal(volume.read_all(), array)
        assert volume.resolution == PLACE["resolution"]
        assert volume.placed == PLACE["offset"]


def test_the_same_bytes_whatever_happened_between(tmp_path: Path) -> None:
    array = values((2, 5, 6, 7), "u2")
    whole = written(tmp_path / "whole.tif", array).read_bytes()
    path, spec = tmp_path / "a.tiff", spec_of(array)
    blocks = spec.blocks()
    for some in (blocks[:4], blocks[4:9], blocks[9:]):
        output = open_output(Destination(path, ""), spec)
        assert len(output.done) == blocks.index(some[0])
        for lower, upper in reversed(some):
            part = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            output.write(lower, array[(slice(None), *part)])
        if some[-1] == blocks[-1]:
            output.finish()
        else:
            output.close()  # as if it was killed here
            assert not path.exists()
            assert partial_of(path).exists()
            assert journal_of(path).exists()
    assert path.read_bytes() == whole
    assert not partial_of(path).exists()
    assert not journal_of(path).exists()


def test_what_was_changed_meanwhile_is_refused_or_written_again(tmp_path: Path) -> None:
    array = values((1, 4, 6, 7), "u1")
    path, spec = tmp_path / "a.tif", spec_of(array)
    with open_output(Destination(path, ""), spec) as output:
        for lower, upper in spec.blocks()[:3]:
            part = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            output.write(lower, array[(slice(None), *part)])
    content = bytearray(partial_of(path).read_bytes())
    with tifffile.TiffFile(partial_of(path)) as file:
        place = file.pages[0].dataoffsets[0]
        last = file.pages[3].offset
    content[place] ^= 255
    partial_of(path).write_bytes(content)
    with open_output(Destination(path, ""), spec) as output:
        assert len(output.done) == 2
    content[last + 4] ^= 255
    partial_of(path).write_bytes(content)
    with pytest.raises(VolumeError, match="was cut or changed outside its blocks"):
        open_output(Destination(path, ""), spec)


@pytest.mark.parametrize("dtype", ["u8", "i8", "f2"])
def test_types_that_ome_has_not(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(VolumeError, match=r"OME-TIFF has no .*, but integers of up to 32 bits"):
        written(tmp_path / "a.tif", values((1, 4, 5, 6), dtype))
    assert not list(tmp_path.iterdir())


def test_labels_take_the_smallest_type(tmp_path: Path) -> None:
    labels = np.zeros((3, 4, 5), np.uint64)
    labels[1, 2, 3] = 70000
    write_tiff(Destination(tmp_path / "a.tif", ""), labels, PLACE)
    found = tifffile.imread(tmp_path / "a.tif")
    assert found.dtype == np.uint32
    assert np.array_equal(found, labels)


def test_directions_and_neighbours_are_kept(tmp_path: Path) -> None:
    array = values((2, 4, 5, 6), "f4")
    directions = [[0.0, 0.6, 0.8], [0.0, -0.8, 0.6], [1.0, 0.0, 0.0]]
    more = {**PLACE, "directions": directions, "offsets": np.array([[-2, 0, 0], [0, 3, -1]])}
    more["first_class"] = 3
    write_tiff(Destination(tmp_path / "a.tif", ""), array, more)
    with open_volume(tmp_path / "a.tif") as volume:
        assert volume.neighbours == ((-2, 0, 0), (0, 3, -1))
        assert volume.directions == tuple(map(tuple, directions))
        assert volume.first_class == 3
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), array)
    content = (tmp_path / "a.tif").read_bytes()
    for old, new in (
        (b"[[-2, 0", b"[[-2, ["),
        (b"0.6", b"9.6"),
        (b'Creator="znnpy"', b'Creator="other"'),
    ):
        (tmp_path / "b.tif").write_bytes(content.replace(old, new))
        with open_volume(tmp_path / "b.tif") as volume:
            assert volume.neighbours is None or volume.directions is None


def test_positions_of_a_stage_are_no_places(tmp_path: Path) -> None:
    metadata = {
        "axes": "ZYX",
        "Plane": {"PositionX": [5.0] * 3, "PositionY": [5.0] * 3, "PositionZ": [5.0] * 3},
    }
    tifffile.imwrite(tmp_path / "a.ome.tif", values((3, 4, 5), "u1"), metadata=metadata)
    with open_volume(tmp_path / "a.ome.tif") as volume:
        assert volume.placed is None


def test_channels_that_are_named_are_no_slices(tmp_path: Path) -> None:
    array = values((3, 4, 5), "u1")
    tifffile.imwrite(tmp_path / "a.ome.tif", array, metadata={"axes": "CYX"})
    tifffile.imwrite(tmp_path / "b.tif", array, imagej=True, metadata={"axes": "CYX"})
    for name, shape in (("a.ome.tif", (3, 1, 4, 5)), ("b.tif", (1, 3, 4, 5))):
        with open_volume(tmp_path / name) as volume:
            assert volume.shape == shape


@pytest.mark.parametrize("dtype", ["u1", "f4"])
@pytest.mark.parametrize("shape", [(1, 3, 70, 50), (2, 2, 33, 65), (1, 1, 1, 90)])
@pytest.mark.parametrize("channels", [True, False])
def test_large_slices_have_smaller_ones(
    tmp_path: Path, shape: Any, dtype: str, channels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiff_output, "PLANE", 20)
    monkeypatch.setattr(tiff_output, "BAND", 4)
    if not channels and shape[0] > 1:
        pytest.skip("labels have one channel")
    array = values(shape, dtype)
    spec = spec_of(array, channels=channels)
    path = tmp_path / "a.tif"
    for count in (3, len(spec.blocks())):  # begun, and gone on with
        with open_output(Destination(path, ""), spec) as output:
            for lower, upper in spec.blocks()[len(output.done) : count]:
                part = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
                output.write(lower, array[(slice(None), *part)])
            if count > 3:
                output.finish()
    wanted = array
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == shape[0] * shape[1]
        (series,) = file.series
        assert len(series.levels) == {70: 3, 65: 3, 90: 4}[max(shape)]
        for level in series.levels:
            found = level.asarray().reshape(*shape[:2], *level.shape[-2:])
            np.testing.assert_array_equal(found, wanted)
            step = (1, 2 if wanted.shape[2] > 1 else 1, 2)
            wanted = coarser(wanted, step, labels=not channels and dtype == "u1")
        assert max(series.levels[-1].shape[-2:]) <= 20
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), array)
        assert volume.resolution == PLACE["resolution"]


def test_smaller_slices_are_made_again_where_a_process_ended_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiff_output, "PLANE", 5)
    array = values((2, 5, 20, 17), "u2")
    whole = written(tmp_path / "whole.tif", array).read_bytes()
    write_at, count = tiff_output.write_at, [0]

    def ended(*given: Any) -> None:
        count[0] += 1
        if count[0] == 14:
            raise OSError("ended")
        write_at(*given)

    monkeypatch.setattr(tiff_output, "write_at", ended)
    path = tmp_path / "a.tif"
    with pytest.raises(OSError, match="ended"):
        written(path, array)
    assert not path.exists()
    monkeypatch.setattr(tiff_output, "write_at", write_at)
    with open_output(Destination(path, ""), spec_of(array)) as output:
        assert len(output.done) == len(output.spec.blocks())
        output.finish()
    assert path.read_bytes() == whole
