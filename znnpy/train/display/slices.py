"""Slices of a validation patch over time, raw image, target and prediction side by side, as small PNGs."""

from __future__ import annotations

import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.atomic_files import write_text
from znnpy.errors import RunError
from znnpy.pictures.panels import as_image, percentiles, stretched
from znnpy.train.run_directory import read_object

Array = NDArray[Any]
MOST = 12  # slices that are kept
LARGEST = 160  # voxels of a slice's side, beyond which every n-th is shown
GAP = 2  # pixels between two panels
_PNG = re.compile(r"[A-Za-z0-9+/]{1,400000}={0,2}")


class Slices:
    """The slices of a run by iteration, evenly spread, the first and the newest among them."""

    def __init__(self) -> None:
        self.pictures: dict[int, str] = {}

    @classmethod
    def read(cls, path: Path, iteration: int) -> Slices:
        """Return the slices of a file up to an iteration; none where it is missing or damaged."""
        found = cls()
        try:
            stored = read_object(path) or {}
        except RunError:
            return found
        for key, text in stored.items():
            number = int(key) if key.isascii() and key.isdecimal() and len(key) < 19 else None
            sound = isinstance(text, str) and _PNG.fullmatch(text)
            if number is not None and sound and number <= iteration:
                found.pictures[number] = text
        return found

    def add(self, iteration: int, raw: Array, target: Array, prediction: Array) -> None:
        """Add the middle slice of a patch; all (channel, z, y, x), the raw image as large or larger."""
        self.pictures[iteration] = drawn(raw, target, prediction)
        if len(self.pictures) > MOST:
            kept = sorted(self.pictures)
            between = zip(kept, kept[1:], kept[2:], strict=False)
            # The one whose neighbours are nearest to each other is missed least.
            _, gone = min((after - before, here) for before, here, after in between)
            del self.pictures[gone]

    def write(self, path: Path) -> None:
        """Write all slices; raises RunError when the disk fails."""
        write_text(path, json.dumps(self.pictures), RunError)


def drawn(raw: Array, target: Array, prediction: Array) -> str:
    """Return a PNG of the middle slices side by side, as base64; values of target and prediction on one scale."""
    from PIL import Image

    z = target.shape[1] // 2
    low, high = min(0.0, float(target.min())), max(1.0, float(target.max()))
    panels = [_grey(_middle(raw, target.shape[1:]))]
    panels += [_coloured(it[:, z], (low, high)) for it in (target, prediction)]
    tall = max(len(panel) for panel in panels)
    gap = np.full((tall, GAP, 3), 255, np.uint8)
    row = [gap if n % 2 else panels[n // 2] for n in range(5)]
    file = BytesIO()
    Image.fromarray(np.concatenate([_padded(it, tall) for it in row], axis=1)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _middle(raw: Array, shape: tuple[int, ...]) -> Array:
    """Return the middle slice (y, x) of the first channel, cut to where the target lies if it is larger."""
    image = raw[0, raw.shape[1] // 2]
    corner = [max(0, (n - size) // 2) for n, size in zip(image.shape, shape[1:], strict=True)]
    y, x = (slice(at, at + size) for at, size in zip(corner, shape[1:], strict=True))
    found: Array = image[y, x]
    return found


def _grey(image: Array) -> Array:
    return _bytes(stretched(image, percentiles(image)))


def _coloured(image: Array, span: tuple[float, float]) -> Array:
    return _bytes(stretched(as_image(image), span))


def _bytes(image: Array) -> Array:
    step = -(-max(image.shape[:2]) // LARGEST)
    thin = np.nan_to_num(image[::step, ::step]) * 255
    whole = thin if thin.ndim == 3 else np.repeat(thin[:, :, None], 3, axis=2)
    return whole.astype(np.uint8)


def _padded(panel: Array, tall: int) -> Array:
    return np.pad(panel, ((0, tall - len(panel)), (0, 0), (0, 0)))
