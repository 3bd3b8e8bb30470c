"""PNG and JPEG: a slice each, folders of them, what is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from znnpy.data.opening import open_volume
from znnpy.errors import ChangedError, VolumeError

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 255, (5, 7), np.uint8)
COLOURS = RNG.integers(0, 255, (5, 7, 3), np.uint8)


def read(path: Path, wanted: Any, **more: Any) -> None:
    with open_volume(path, **more) as volume:
        assert volume.shape == wanted.shape
        assert volume.dtype == wanted.dtype
        assert np.array_equal(volume.read_all(), wanted)
        assert np.array_equal(volume.read((0, 1, 2), (1, 4, 6)), wanted[:, :1, 1:4, 2:6])
        assert volume.resolution == (1, 1, 1)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


ADAM7 = [[1, 6, 4, 6, 2, 6, 4, 6], [7] * 8, [5, 6] * 4, [7] * 8,
         [3, 6, 4, 6, 3, 6, 4, 6], [7] * 8, [5, 6] * 4, [7] * 8]  # fmt: skip


def png(
    width: int, height: int, bits: int, kind: int, data: bytes = b"", interlaced: int = 0
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize(
    "pixels",
    [GREY, GREY.astype(np.uint16) * 250, COLOURS, np.dstack([COLOURS, GREY]), np.dstack([GREY, GREY]), GREY > 99],
)  # fmt: skip
def test_what_pillow_writes(tmp_path: Path, pixels: Any) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.png")
    channels = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    if channels.dtype == bool:
        # Grey of one bit: black and white, and of labels numbers.
        read(tmp_path / "a.png", channels[:, None].astype(np.uint8), role="labels")
        channels = channels * np.uint8(255)
    read(tmp_path / "a.png", channels[:, None])


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 7), (8, 8), (17, 9), (1, 40), (40, 1)])
@pytest.mark.parametrize(
    ("bits", "kind", "samples"), [(1, 0, 1), (4, 0, 1), (8, 0, 1), (8, 2, 3), (16, 0, 1)]
)
def test_interlaced_rows_are_counted_by_pass(
    tmp_path: Path, size: tuple[int, int], bits: int, kind: int, samples: int
) -> None:
    """As the standard has it, of all pixels once, in the passes of their own grids."""
    height, width = size
    grid = np.zeros((height, width), int)
    for row in range(height):
        for column in range(width):
            grid[row, column] = np.array(ADAM7)[row % 8, column % 8]
    rows = 0
    for number in range(1, 8):
        places = np.argwhere(grid == number)
        across = len({x for _, x in places.tolist()})
        rows += len({y for y, _ in places.tolist()}) * (1 + -(-across * bits * samples // 8))
    path = tmp_path / "a.png"
    path.write_bytes(png(width, height, bits, kind, bytes(rows), interlaced=1))
    read_whole(path, (samples, 1, height, width))
    path.write_bytes(png(width, height, bits, kind, bytes(rows - 1), interlaced=1))
    refused(path, "is cut: it declares|cannot be read")


@pytest.mark.parametrize("pixels", [GREY, COLOURS])
def test_jpeg(tmp_path: Path, pixels: Any) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)
    found = np.asarray(Image.open(tmp_path / "a.jpg"))
    read(
        tmp_path / "a.jpg", (found[None] if found.ndim == 2 else np.moveaxis(found, -1, 0))[:, None]
    )


def test_a_palette_is_colours_of_images_and_numbers_of_labels(tmp_path: Path) -> None:
    image = Image.fromarray(GREY % 3).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "a.png")
    read(tmp_path / "a.png", (GREY % 3)[None, None], role="labels")
    colours = np.arange(10, 100, 10, dtype=np.uint8).reshape(3, 3)[GREY % 3]
    read(tmp_path / "a.png", np.moveaxis(colours, -1, 0)[:, None])


@pytest.mark.parametrize("shape", [(9, 8), (9, 8, 3)])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_tiff_of_one_page_is_a_slice_too(
    tmp_path: Path, shape: tuple[int, ...], compression: str | None
) -> None:
    pixels = RNG.integers(0, 255, shape, np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression=compression)
    read(
        tmp_path / "a.tif",
        (pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0))[:, None],
    )


@pytest.mark.parametrize("end", ["png", "jpg"])
def test_folders_are_stacks(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "slices"
    folder.mkdir()
    for z in range(12):
        Image.fromarray(np.full((5, 7), 20 * z, np.uint8)).save(folder / f"z{z}.{end}")
    (folder / "notes.txt").write_text("no plane")
    (folder / "._z3.png").write_bytes(b"left by another system")
    with open_volume(folder) as volume:
        assert volume.shape == (1, 12, 5, 7)
        found = volume.read((2, 1, 1), (11, 4, 6))
        assert found.shape == (1, 9, 3, 5)
        assert np.allclose(found[0, :, 0, 0], 20 * np.arange(2, 11), atol=2)
        Image.fromarray(GREY).save(folder / f"z5.{end}")
        with pytest.raises(ChangedError, match="has changed"):
            volume.read((5, 0, 0), (6, 5, 7))


def refused(path: Path, words: str, **more: Any) -> None:
    with pytest.raises(VolumeError, match=words) as caught, open_volume(path, **more) as volume:
        volume.read_all()
    assert str(path) in str(caught.value)


def read_whole(path: Path, shape: tuple[int, ...]) -> None:
    with open_volume(path) as volume:
        assert volume.read_all().shape == shape


def test_a_damaged_slice_is_one_of_a_volume(tmp_path: Path) -> None:
    """And who has pictures that do not belong together is told how the others are predicted."""
    for z in range(3):
        Image.fromarray(np.full((5, 7), 20 * z, np.uint8)).save(tmp_path / f"z{z}.jpg")
    path = tmp_path / "z1.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(VolumeError, match=r"z1\.jpg.*are one volume, a pattern such as .*/\*.jpg"):
        open_volume(tmp_path).read_all()
    with pytest.raises(VolumeError, match=r"z1\.jpg") as caught:
        open_volume(path).read_all()
    assert "one volume" not in str(caught.value)


def test_folders_that_are_none(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "a0.png")
    Image.fromarray(GREY[:3]).save(tmp_path / "a1.png")
    refused(tmp_path, "all planes of a folder must be alike")
    Image.fromarray(GREY).save(tmp_path / "a1.jpg")
    refused(tmp_path, "holds JPEG and PNG files; which of them are the slices")
    refused(tmp_path, "no datasets", dataset="raw")


def test_links_out_of_a_folder(tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "a.png")
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices" / "a.png").symlink_to(tmp_path / "a.png")
    refused(tmp_path / "slices", "leads out of the folder; refused")
    read(tmp_path / "slices", GREY[None, None], allow_external=True)


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    for data, words in (
        (png(9, 9, 16, 2, bytes(9 * (1 + 54))), "16 bits in each of several channels"),
        (png(60_000, 60_000, 8, 0), "cannot be read|declares"),
        (png(13_000, 13_000, 8, 2), "declares .* of data"),
        (png(9, 9, 8, 0, bytes(90))[:-30], "cannot be read"),
        (png(9, 9, 8, 0, bytes(90))[:40], "cannot be read"),
        (png(9, 9, 8, 0, bytes(80)), "is cut: it declares 90 bytes of rows, and 80 are there"),
        (png(9, 9, 1, 0, bytes(26)), "is cut: it declares 27 bytes|cannot be read"),
        (png(0, 9, 8, 0), "cannot be read|empty"),
    ):
        path.write_bytes(data)
        refused(path, words)
    Image.fromarray(GREY).save(path, save_all=True, append_images=[Image.fromarray(GREY + 1)])
    refused(path, "holds 2 pictures")
    Image.fromarray(np.dstack([COLOURS, GREY]), "CMYK").save(tmp_path / "a.jpg")
    refused(tmp_path / "a.jpg", "pixels of mode CMYK")
    Image.fromarray(COLOURS).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "b.jpg", "cannot be read")
    # Nothing but these two decoders is tried, whatever the name says.
    Image.fromarray(GREY).save(tmp_path / "c.gif")
    (tmp_path / "c.png").write_bytes((tmp_path / "c.gif").read_bytes())
    refused(tmp_path / "c.png", "is no HDF5")
