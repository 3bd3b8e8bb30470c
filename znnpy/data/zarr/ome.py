"""Reads and writes OME-NGFF metadata: the arrays of an image, their axes, voxel sizes and offsets.

Read: versions 0.1 to 0.5 (https://ngff.openmicroscopy.org). Written: 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from znnpy.data.volume import Triple64, nanometres
from znnpy.errors import VolumeError

Numbers = tuple[float, ...]
SPACE = ("z", "y", "x")
_KNOWN = {"t": "t", "time": "t", "c": "c", "channel": "c", "z": "z", "y": "y", "x": "x"}


@dataclass(frozen=True)
class Level:
    """One resolution of an image: path below its group, axes by name, and voxels in nanometres.

    `axes` is None where the metadata do not say; `scale` and `translation` count along all axes.
    """

    path: str
    axes: tuple[str, ...] | None
    scale: Numbers | None
    translation: Numbers | None


def levels(attributes: Mapping[str, Any], name: str) -> list[Level]:
    """Return the levels of the first image of a group, finest first; empty if it is no image.

    The finest has the smallest voxels; where a level has no scale, all stay as they are listed, which OME
    wants from largest to smallest. `attributes` are the group's, `name` is for messages. Raises VolumeError
    for malformed metadata and for transformations other than scale and translation.
    """
    ome = attributes.get("ome")
    found = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    if found is None:
        return []
    first = _item(found, 0, name, "multiscales")
    datasets = first.get("datasets")
    axes, units = _axes(first.get("axes"), name)
    after = _steps(first.get("coordinateTransformations"), name)
    if not isinstance(datasets, list) or not datasets:
        raise VolumeError(f"{name}: the OME metadata name no datasets")
    items = (_item(datasets, index, name, "datasets") for index in range(len(datasets)))
    return _finest_first([_level(item, axes, units, after, name) for item in items])


def _finest_first(found: list[Level]) -> list[Level]:
    sizes = {level: math.prod(level.scale[-3:]) for level in found if level.scale}
    return sorted(found, key=lambda level: sizes[level]) if len(sizes) == len(found) else found


def multiscales(
    name: str, channels: bool, levels: Sequence[tuple[str, Sequence[float], Sequence[float]]]
) -> dict[str, Any]:
    """Return attributes of a group, version 0.5, whose levels are arrays (C,) Z, Y, X, the finest first.

    Of each level: its path, the size of its voxels and the place of the first of them, z, y, x in nanometres.
    """
    axes = [{"name": axis, "type": "space", "unit": "nanometer"} for axis in SPACE]
    if channels:
        axes.insert(0, {"name": "c", "type": "channel"})
    datasets = []
    for path, resolution, offset in levels:
        scale, translation = [float(v) for v in resolution], [float(v) for v in offset]
        if channels:
            scale, translation = [1.0, *scale], [0.0, *translation]
        steps = [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": translation},
        ]
        datasets.append({"path": path, "coordinateTransformations": steps})
    return {
        "ome": {
            "version": "0.5",
            "multiscales": [{"name": name, "axes": axes, "datasets": datasets}],
        }
    }


def order(axes: Sequence[str], shape: Sequence[int], name: str) -> tuple[tuple[int, ...], bool]:
    """Return the index (0, ...) of the leading axes of length 1 before (C,) Z, Y, X, and whether there is no Z.

    Raises VolumeError when there are other axes or they are in another order.
    """
    names = tuple(_KNOWN.get(axis.lower(), axis) for axis in axes)
    wrong = len(names) != len(shape)
    leading = 1 if names[:1] == ("t",) and not wrong and shape[0] == 1 else 0
    kept, plane = names[leading:], SPACE[1:]
    if wrong or kept not in (SPACE, ("c", *SPACE), plane, ("c", *plane)):
        raise VolumeError(
            f"{name} has axes ({', '.join(axes)}) of shape {tuple(shape)}; expected (z, y, x) or "
            "(y, x), with or without c before them, at one time"
        )
    return (0,) * leading, "z" not in kept


def spatial(values: Sequence[float] | None) -> Triple64 | None:
    """Return the last three of values along all axes, z, y, x; None where there are fewer."""
    if values is None or len(values) < 3:
        return None
    return (values[-3], values[-2], values[-1])


def _level(
    dataset: Mapping[str, Any],
    axes: tuple[str, ...] | None,
    units: Sequence[float] | None,
    after: Sequence[Mapping[str, Any]],
    name: str,
) -> Level:
    path = dataset.get("path")
    if not isinstance(path, str) or not path.strip("/"):
        raise VolumeError(f"{name}: the OME metadata name a dataset without a path")
    steps = [*_steps(dataset.get("coordinateTransformations"), name), *after]
    scale, translation = _placed(steps, units, name)
    return Level(path.strip("/"), axes, scale, translation)


def _steps(found: Any, name: str) -> list[dict[str, Any]]:
    """Return the coordinate transformations, in the order in which they apply."""
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(step, dict) for step in found):
        raise VolumeError(f"{name}: coordinateTransformations must be a list of objects")
    return [step for step in found if step.get("type") != "identity"]


def _placed(
    steps: Sequence[Mapping[str, Any]], units: Sequence[float] | None, name: str
) -> tuple[Numbers | None, Numbers | None]:
    """Return voxel size and place of the first voxel, in nanometres; None where nothing is said."""
    scale: Numbers | None = None
    corner: Numbers | None = None
    for step in steps:
        kind = step.get("type")
        if kind not in ("scale", "translation"):
            raise VolumeError(
                f"{name}: coordinate transformation {str(kind)[:40]!r} is not supported; expected "
                "scale and translation"
            )
        values = _numbers(step.get(kind), units or scale or corner, name, kind)
        if kind == "scale":
            scale = _product(scale, values)
            corner = corner and _product(corner, values)
        else:
            corner = tuple(
                a + b for a, b in zip(corner or (0.0,) * len(values), values, strict=True)
            )
    found = (scale and _product(units, scale), corner and _product(units, corner))
    if any(not math.isfinite(v) for values in found if values for v in values):
        raise VolumeError(f"{name}: the voxel size {found[0]} must be finite numbers")
    return found


def _product(first: Sequence[float] | None, second: Numbers) -> Numbers:
    if first is None:
        return second
    return tuple(a * b for a, b in zip(first, second, strict=True))


def _numbers(values: Any, like: Sequence[float] | None, name: str, kind: str) -> Numbers:
    number = isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in values
    )
    if not number or not values or (like is not None and len(values) != len(like)):
        raise VolumeError(f"{name}: {kind} must be a list of numbers, one for each axis")
    try:
        found = tuple(float(v) for v in values)
    except OverflowError as error:
        raise VolumeError(f"{name}: {kind} must be finite numbers") from error
    if not all(math.isfinite(v) for v in found) or (kind == "scale" and min(found) <= 0):
        raise VolumeError(f"{name}: {kind} {found} must be finite numbers, sizes above 0")
    return found


def _axes(found: Any, name: str) -> tuple[tuple[str, ...] | None, list[float] | None]:
    """Return the names of the axes, and the nanometres of one unit along each."""
    if found is None:
        return None, None
    if not isinstance(found, list) or not found:
        raise VolumeError(f"{name}: axes of the OME metadata must be a list")
    names, units = [], []
    for axis in found:
        given = axis if isinstance(axis, dict) else {"name": axis}
        if not isinstance(given.get("name"), str):
            raise VolumeError(f"{name}: an axis of the OME metadata has no name")
        names.append(given["name"])
        units.append(_unit(given, name))
    return tuple(names), units


def _unit(axis: Mapping[str, Any], name: str) -> float:
    unit = axis.get("unit")
    if unit is None or axis["name"].lower() not in SPACE:
        return 1.0
    size = nanometres(unit) if isinstance(unit, str) else None
    if size is None:
        raise VolumeError(
            f"{name}: unit {str(unit)[:40]!r} of axis {axis['name']} is not known; expected "
            "nanometer, micrometer or another unit of length"
        )
    return size


def _item(found: Any, index: int, name: str, key: str) -> dict[str, Any]:
    if not isinstance(found, list) or len(found) <= index or not isinstance(found[index], dict):
        raise VolumeError(f"{name}: {key} of the OME metadata must be a list of objects")
    item: dict[str, Any] = found[index]
    return item
