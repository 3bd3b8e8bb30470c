"""Reads CIFAR's binary files: for each image the numbers of its classes, then 3 x 32 x 32 bytes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.safety_limits import Trust, claim_size
from znnpy.data.volume import ArrayVolume, Volume
from znnpy.errors import VolumeError, reason

SUFFIX = ".bin"
_IMAGE = (3, 32, 32)  # (c, y, x)
_PIXELS = 3 * 32 * 32
_CLASSES = {"CIFAR-10": ("class",), "CIFAR-100": ("coarse", "fine")}
_BYTE = np.dtype(np.uint8)


def open_cifar(path: Path, dataset: str | None, *, labels: bool, trust: Trust) -> Volume:
    """Return images (3, number, 32, 32) or `labels` (1, number, 1, 1) of a file of CIFAR-10 or CIFAR-100.

    CIFAR-100's labels are its fine classes unless `dataset` is "coarse". Raises VolumeError for a file that does not
    hold a whole number of images.
    """
    watch = Watch()
    try:
        with path.open("rb") as file:
            watch.see(path, os.fstat(file.fileno()))
            size = os.fstat(file.fileno()).st_size
            claim_size(str(path), (size,), _BYTE, size, trust)
            data = file.read(size)
    except OSError as error:
        raise VolumeError(f"{path} cannot be read: {reason(error)}") from error
    watch.verify()
    classes = _classes(path, len(data))
    records = np.frombuffer(data, np.uint8).reshape(-1, len(classes) + _PIXELS)
    if labels:
        return ArrayVolume(records[:, _column(path, dataset, classes), None, None], str(path))
    if dataset is not None:
        raise VolumeError(f"{path}: {dataset!r} was named, but the images of CIFAR have no names")
    images = records[:, len(classes) :].reshape(-1, *_IMAGE)
    return ArrayVolume(np.ascontiguousarray(images.swapaxes(0, 1)), str(path))


def _classes(path: Path, size: int) -> tuple[str, ...]:
    """Return the names of the class numbers that each image has in a file of so many bytes."""
    for classes in _CLASSES.values():
        if size and size % (len(classes) + _PIXELS) == 0:
            return classes
    record = 1 + _PIXELS
    raise VolumeError(
        f"{path} is no binary file of CIFAR, or cut: it has {size} bytes, {size // record} images of "
        f"{record} bytes (CIFAR-10) and {size % record} bytes more"
    )


def _column(path: Path, dataset: str | None, classes: tuple[str, ...]) -> int:
    wanted = dataset or classes[-1]
    if wanted not in classes:
        raise VolumeError(f"{path} has no labels {wanted!r}; it has: {', '.join(classes)}")
    return classes.index(wanted)
