"""TIFF stacks: plain, ImageJ, OME, channels, damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

STACK = np.random.default_rng(0).integers(0, 60000, (7, 10, 12), np.uint16)
CHANNELS = np.random.default_rng(1).integers(0, 255, (5, 2, 8, 9), np.uint8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"imagej": True},
        {"ome": True, "metadata": {"axes": "ZYX"}},
        {"compression": "zlib"},
        {"compression": "zlib", "predictor": True, "photometric": "minisblack"},
        {"byteorder": ">"},
        {"byteorder": ">", "compression": "zlib"},
        {"bigtiff": True},
        {"photometric": "minisblack", "rowsperstrip": 3},
    ],
)
def test_stack(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, STACK, **options)
    with open_volume(path) as volume:
        assert volume.shape == (1, *STACK.shape)
        assert volume.dtype == np.uint16
        assert np.array_equal(volume.read_all()[0], STACK)
        assert np.array_equal(volume.read((2, 3, 4), (5, 6, 9))[0], STACK[2:5, 3:6, 4:9])


def test_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        for page in STACK:
            writer.write(page, contiguous=False, metadata=None)
    with open_volume(path) as volume:
        assert np.array_equal(volume.read((1, 0, 5), (7, 10, 6))[0], STACK[1:, :, 5:6])


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"description": "of a plane"}])
@pytest.mark.parametrize("colours", [False, True])
def test_planes_written_one_by_one(tmp_path: Path, options: dict[str, Any], colours: bool) -> None:
    """Of which tifffile makes an image each, unless it is told that they are one."""
    path = tmp_path / "a.tif"
    planes = STACK.astype(np.uint8)
    stack = np.stack([planes, planes + 1, planes + 2], axis=-1) if colours else planes[..., None]
    with tifffile.TiffWriter(path) as writer:
        for plane in stack:
            writer.write(plane if colours else plane[..., 0], **options)
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), np.moveaxis(stack, -1, 0))
        assert np.array_equal(
            volume.read((1, 0, 5), (7, 10, 6)), np.moveaxis(stack, -1, 0)[:, 1:7, :, 5:6]
        )


@pytest.mark.parametrize("stack", [STACK, STACK[:1]])
def test_images_that_are_not_alike_are_told(tmp_path: Path, stack: Any) -> None:
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        writer.write(stack, photometric="minisblack")
        writer.write(STACK[0, :3, :3])
    with pytest.warns(UserWarning, match="holds 2 images, of which the first is read"):
        volume = open_volume(path)
    with volume:
        assert np.array_equal(volume.read_all()[0], stack)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("kind", ["ome", "imagej"])
def test_channels(tmp_path: Path, kind: str, compression: str | None) -> None:
    path = tmp_path / "a.tif"
    options: dict[str, object] = {kind: True, "compression": compression}
    tifffile.imwrite(path, CHANNELS, metadata={"axes": "ZCYX"}, **options)
    with open_volume(path) as volume:
        assert volume.shape == (2, 5, 8, 9)
        assert np.array_equal(volume.read_all(), CHANNELS.swapaxes(0, 1))
        expected = CHANNELS[1:3, :, 2:4, 5:9].swapaxes(0, 1)
        assert np.array_equal(volume.read((1, 2, 5), (3, 4, 9)), expected)


def test_colour(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    colour = np.random.default_rng(2).integers(0, 255, (4, 6, 7, 3), np.uint8)
    tifffile.imwrite(path, colour, photometric="rgb", compression="zlib")
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), np.moveaxis(colour, -1, 0))


def test_voxel_size_of_imagej(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    metadata = {"spacing": 0.04, "unit": "um", "axes": "ZYX"}
    tifffile.imwrite(path, STACK, imagej=True, resolution=(200, 250), metadata=metadata)
    with open_volume(path) as volume:
        assert volume.resolution == pytest.approx((40, 4, 5))


def test_voxel_size_of_ome(tmp_path: Path) -> None:
    path = tmp_path / "a.ome.tif"
    sizes = {"PhysicalSizeZ": 30.0, "PhysicalSizeY": 0.006, "PhysicalSizeX": 0.005}
    metadata = {"axes": "ZYX", "PhysicalSizeZUnit": "nm", **sizes}
    tifffile.imwrite(path, STACK, ome=True, metadata=metadata)
    with open_volume(path) as volume:
        assert volume.resolution == pytest.approx((30, 6, 5))


def test_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, STACK)
    with pytest.raises(VolumeError, match="TIFF file and has no datasets"):
        open_volume(f"{path}:raw")
    with pytest.raises(VolumeError, match="at most"):
        open_volume(path, max_bytes=100)
    tifffile.imwrite(path, np.zeros((2, 3, 4, 5), np.uint8), imagej=True, metadata={"axes": "TZYX"})
    with pytest.raises(VolumeError, match="at one time"):
        open_volume(path)
    tifffile.imwrite(path, np.zeros((3, 4, 5), np.complex64), photometric="minisblack")
    with pytest.raises(VolumeError, match="complex"):
        open_volume(path)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("kept", [6, 100, 0.5, 0.8])
def test_truncated(tmp_path: Path, kept: float, compression: str | None) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, STACK, compression=compression)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    with pytest.raises(VolumeError, match=r"a\.tif"), open_volume(path) as volume:
        volume.read_all()


SET = """<?xml version="1.0" encoding="UTF-8"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:a">
<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="12"
SizeY="10" SizeC="1" SizeZ="2" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>
<TiffData IFD="0" FirstZ="0" PlaneCount="1"><UUID FileName="a.ome.tif">urn:uuid:a</UUID></TiffData>
<TiffData IFD="0" FirstZ="1" PlaneCount="1"><UUID FileName="b.ome.tif">urn:uuid:b</UUID></TiffData>
</Pixels></Image></OME>"""


def test_other_files_of_a_set_are_read_only_when_allowed(tmp_path: Path) -> None:
    for index, name in enumerate("ab"):
        text = SET.replace('UUID="urn:uuid:a"', f'UUID="urn:uuid:{name}"', 1)
        path = tmp_path / f"{name}.ome.tif"
        tifffile.imwrite(path, STACK[index], description=text, metadata=None)
    with pytest.raises(VolumeError, match="spread over 2 files"):
        open_volume(tmp_path / "a.ome.tif")
    with open_volume(tmp_path / "a.ome.tif", allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], STACK[:2])
    (tmp_path / "b.ome.tif").unlink()
    with pytest.raises(VolumeError, match=r"a\.ome\.tif"):
        open_volume(tmp_path / "a.ome.tif", allow_external=True)


def test_renamed_file(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", STACK, ome=True, metadata={"axes": "ZYX"})
    renamed = (tmp_path / "a.ome.tif").rename(tmp_path / "b.tif")
    with open_volume(renamed) as volume:
        assert np.array_equal(volume.read_all()[0], STACK)


def test_pages_lost_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        for page in STACK:
            writer.write(page, contiguous=False, metadata=None)
    with tifffile.TiffFile(path) as tiff:
        end = tiff.pages[4].dataoffsets[0]
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(VolumeError, match="truncated after 5 pages"):
        open_volume(path)
