"""A picture as a volume of one slice, and a folder of pictures as a volume of as many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from znnpy.data.file_changes import Watch
from znnpy.data.pictures.decoding import SUFFIXES, decoded, opened
from znnpy.data.plane_folder import PlaneFolder, files_of
from znnpy.data.safety_limits import Trust, claim_size
from znnpy.data.volume import Array, ArrayVolume, Volume
from znnpy.errors import VolumeError, reason, refuse_own


def pictures_of(folder: Path) -> list[Path]:
    """Return the PNG and JPEG files of a folder, plane2 before plane10; hidden files are left out."""
    return files_of(folder, [suffix for kind in SUFFIXES.values() for suffix in kind])


def open_picture(path: Path, trust: Trust, *, labels: bool) -> Volume:
    """Return a picture, decoded, as a volume of one slice; its samples are channels.

    Raises VolumeError for what is damaged or declares more than is plausible.
    """
    watch = Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        try:
            picture = opened(file, path, labels=labels)
            size = os.fstat(file.fileno()).st_size
            claim_size(str(path), picture.shape, picture.dtype, size, trust)
            pixels = decoded(picture, file, path)
        except VolumeError:
            watch.verify()
            raise
        except Exception as error:  # decoders raise nearly anything on damaged files
            watch.verify()
            refuse_own(error)
            raise VolumeError(f"{path}: the picture cannot be read ({reason(error)})") from error
    watch.verify()
    return ArrayVolume(pixels[:, None], str(path))


class PictureFolder(PlaneFolder):
    """Pictures of one shape and type, a slice each, decoded when they are read."""

    def __init__(self, path: Path, planes: Sequence[Path], trust: Trust, *, labels: bool) -> None:
        self._labels = labels
        kinds = sorted(
            k for k, ends in SUFFIXES.items() if any(p.suffix.lower() in ends for p in planes)
        )
        if len(kinds) > 1:
            raise VolumeError(
                f"{path} holds {' and '.join(kinds)} files; which of them are the slices? Put them into folders of "
                "their own"
            )
        super().__init__(path, planes, trust)

    def _decoded(self, path: Path, wanted: tuple[int, ...] | None) -> Array:
        try:
            with path.open("rb") as file:
                picture = opened(file, path, labels=self._labels)
                self._refuse_other(path, picture.shape, picture.dtype, wanted)
                pixels = decoded(picture, file, path)
                self._watch.see(path, os.fstat(file.fileno()))
                return pixels
        except VolumeError:
            raise
        except Exception as error:  # decoders raise nearly anything on damaged files
            self._watch.look(path)
            refuse_own(error)
            raise self._damaged(path, "picture", reason(error)) from error
