"""Takes an array, a file or an open volume for a volume, as calls from Python give them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from znnpy.config.data_section import Source
from znnpy.config.models import DataSection
from znnpy.data.config_volumes import open_source
from znnpy.data.opening import Role
from znnpy.data.volume import ArrayVolume, Triple64, Volume
from znnpy.errors import VolumeError
from znnpy.fields import shown
from znnpy.interactive.numbers import three_of
from znnpy.network.types import Node

Image = NDArray[Any] | str | Path | Volume
"""An array (z, y, x) or (channel, z, y, x), `FILE` or `FILE:DATASET`, or a volume that stays the caller's."""
Images = Image | Mapping[str, Image]
"""One image, or one for each node by name."""


def opened(
    given: Image,
    what: str,
    role: Role,
    stack: ExitStack,
    data: DataSection | None = None,
    resolution: Triple64 | None = None,
) -> Volume:
    """Return what was given as a volume, named `what` if it is an array; files are closed by `stack`.

    `resolution`: the voxels of an array, z, y, x in nanometres. Raises VolumeError for what is no volume.
    """
    if isinstance(given, Volume):
        return given
    if isinstance(given, str | Path):
        return stack.enter_context(open_source(_source(given, what), data or DataSection(), role))
    if np.ma.is_masked(given):
        hidden = int(np.sum(np.ma.getmask(given)))
        raise VolumeError(
            f"{what}: {hidden} numbers are hidden by a NumPy mask; fill them first, such as array.filled(0)"
        )
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise VolumeError(
            f"{what}: expected an array of numbers, a file name or a volume; found {_words(given)}"
        )
    return ArrayVolume(array, what, _voxel_size(resolution))


def _voxel_size(given: Triple64 | None) -> Triple64:
    """Return what `resolution` gives as a tuple of floats; an array is taken as well."""
    if given is None:
        return (1.0, 1.0, 1.0)
    size = three_of(given, int, float)
    # Written so that NaN is refused as well.
    if size is None or not all(0 < it < inf for it in size):
        raise VolumeError(
            f"resolution: must be three positive numbers, z y x; found {shown(given)}"
        )
    z, y, x = map(float, size)
    return z, y, x


def by_node(given: Images, nodes: tuple[Node, ...], what: str) -> dict[str, Image]:
    """Return what was given by node; a single one is for all of them. Raises VolumeError for other names."""
    names = [node.name for node in nodes]
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    wrong = sorted(map(str, set(given) - set(names)))
    if wrong:
        raise VolumeError(f"{what}: names {', '.join(wrong)}; the network has {', '.join(names)}")
    return dict(given)


def _source(given: str | Path, what: str) -> Source:
    try:
        return Source.model_validate(str(given))
    except ValidationError as error:
        raise VolumeError(f"{what}: {error.errors()[0]['msg']}") from error


def _words(given: object) -> str:
    kind = type(given).__name__
    return f"{kind} of {given.dtype}" if isinstance(given, np.ndarray) else kind
