"""Decodes a PNG or JPEG file: Pillow, told that it may be nothing else, after a look at what the file declares."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from znnpy.data.pictures.png_length import refuse_short
from znnpy.data.volume import Array
from znnpy.errors import VolumeError

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
SUFFIXES = {"PNG": (".png",), "JPEG": (".jpg", ".jpeg")}
# By Pillow's modes; a palette shows colours, but of labels its indices are what was meant. Grey of one bit is black and
# white, 0 and 255 as of two and four bits, but of labels 0 and 1.
_WIDE = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_CHANNELS = {"1": 1, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "P": 3, **dict.fromkeys(_WIDE, 1)}
_SHOWN = {"P": "RGB", "1": "L"}
_COLOURED = (2, 4, 6)  # PNG's numbers of kinds with several channels


@dataclass(frozen=True)
class Picture:
    """An open picture: its shape (c, y, x) and type."""

    image: Any
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    labels: bool


def opened(file: IO[bytes], path: Path, *, labels: bool) -> Picture:
    """Return a picture, not yet decoded; of `labels` a palette's indices count, else its colours, and one bit as it is.

    Raises VolumeError for kinds of pixels that are no numbers, and those that would lose bits.
    """
    # Takes a tenth of a second to import.
    from PIL import Image

    head = file.read(26)
    file.seek(0)
    if head.startswith(PNG) and len(head) == 26 and head[24] == 16 and head[25] in _COLOURED:
        raise VolumeError(
            f"{path} has 16 bits in each of several channels, of which 8 would be lost: save it as TIFF"
        )
    with warnings.catch_warnings():
        # Of many pixels: they are bounded here by the size of the file.
        warnings.simplefilter("ignore")
        image = Image.open(file, formats=tuple(SUFFIXES))
    if image.format == "PNG" and getattr(image, "n_frames", 1) > 1:
        raise VolumeError(f"{path} holds {image.n_frames} pictures, one after the other; save one")
    if image.mode not in _CHANNELS:
        raise VolumeError(
            f"{path} has pixels of mode {image.mode}; expected grey or RGB, with or without alpha"
        )
    channels = 1 if labels and image.mode == "P" else _CHANNELS[image.mode]
    kind = np.dtype(np.uint16 if image.mode in _WIDE else np.uint8)
    return Picture(image, (channels, image.height, image.width), kind, labels)


def decoded(picture: Picture, file: IO[bytes], path: Path) -> Array:
    """Return the pixels (c, y, x) of an open picture; VolumeError where some of them are not in its file."""
    image = picture.image
    image.load()
    if image.format == "PNG":
        refuse_short(file, path)
    if not picture.labels and image.mode in _SHOWN:
        image = image.convert(_SHOWN[image.mode])
    pixels = np.asarray(image).astype(picture.dtype)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
