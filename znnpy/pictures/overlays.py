"""Draws slices of volumes that show the same place: raw image, prediction, objects over the raw image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.data.scene import Scene
from znnpy.data.values.sampled_range import glance
from znnpy.data.volume import Triple, Volume
from znnpy.dataset_path import as_text, joined, split_source
from znnpy.errors import VolumeError
from znnpy.pictures.colours import are_shares, object_colours, overlay, share_colours
from znnpy.pictures.panels import Panel, Voxels, as_image, draw, stretched, unit_of

Array = NDArray[Any]
Kind = Literal["raw", "prediction", "labels"]
Axis = Literal["z", "y", "x"]
# Pixels along the longer side of a panel: more are left out, evenly.
LARGEST = 1600
# Networks trained with a square loss leave [0, 1] a little.
BEYOND = 0.5
# Slices whose grey values set the range of the raw image, the same for all that are drawn.
SAMPLED = 5


@dataclass(frozen=True)
class Layer:
    """A volume and how it is shown."""

    kind: Kind
    volume: Volume
    title: str


def kind_of(volume: Volume) -> Kind:
    """Return what a volume most likely is: large integers number objects, floats from 0 to 1 are predictions.

    Of floats a part is read; raises VolumeError where that fails.
    """
    if volume.dtype.kind in "iu" and volume.dtype.itemsize >= 4:
        return "labels"
    path, dataset = split_source(volume.name)
    named = (dataset or path.name).strip("/").lower()
    if volume.dtype.kind == "b" or any(word in named for word in ("label", "seg", "mask")):
        return "labels"
    if volume.dtype.kind == "f":
        return "prediction" if "raw" not in named and _are_probabilities(volume) else "raw"
    found = volume.neighbours is not None or named.startswith(("prediction", "affinit"))
    return "prediction" if found else "raw"


def _are_probabilities(volume: Volume) -> bool:
    """Return whether sampled floats lie near 0 to 1; those of images and logits do not."""
    seen = glance(volume, finite=False)
    return not (seen.lowest < -BEYOND or seen.highest > 1 + BEYOND)


def title_of(volume: Volume) -> str:
    """Return a volume's file and dataset, without the folders."""
    path, dataset = split_source(volume.name)
    return as_text(joined(path.name, dataset or ""))


def draw_slices(layers: Sequence[Layer], folder: Path, count: int, axis: Axis = "z") -> list[Path]:
    """Write `count` evenly spaced slices across an axis, a PNG each; return their paths.

    Shows the voxels that all layers share; objects lie over the raw image where there is one. The
    layers stay open and the caller's. Raises VolumeError when they do not lie on one grid, or share nothing.
    """
    shared = _shared(layers)
    if folder.exists() and not folder.is_dir():
        raise VolumeError(f"{folder} is a file; --output names a folder for the pictures")
    folder.mkdir(parents=True, exist_ok=True)
    along = "zyx".index(axis)
    first, last = shared.lower[along], shared.upper[along]
    places = sorted({first + int((i + 0.5) * (last - first) / count) for i in range(count)})
    limits = _limits(layers, shared, along)
    written = []
    for place in places:
        path = folder / f"{axis}{place:05d}.png"
        panels = _panels(layers, shared, along, place, limits)
        voxels = _voxels(layers[0].volume, along, _thinning(shared, along))
        draw(path, panels, _caption(layers[0], axis, along, place), voxels)
        written.append(path)
    return written


@dataclass(frozen=True)
class _Shared:
    """The box that all layers cover, in voxels of the first, and where each layer begins."""

    lower: Triple
    upper: Triple
    corners: tuple[Triple, ...]


def _shared(layers: Sequence[Layer]) -> _Shared:
    first = layers[0].volume
    others = {str(index): layer.volume for index, layer in enumerate(layers[1:])}
    scene = Scene({"first": first}, others)
    corners = tuple(scene.corner(layer.volume) for layer in layers)
    ends = [
        tuple(a + n for a, n in zip(corner, layer.volume.extent, strict=True))
        for corner, layer in zip(corners, layers, strict=True)
    ]
    lower = _triple([max(axis) for axis in zip(*corners, strict=True)])
    upper = _triple([min(axis) for axis in zip(*ends, strict=True)])
    if any(a >= b for a, b in zip(lower, upper, strict=True)):
        names = " and ".join(layer.volume.name for layer in layers)
        raise VolumeError(f"{names} share no voxel, by their offsets")
    return _Shared(lower, upper, corners)


def _panels(
    layers: Sequence[Layer],
    shared: _Shared,
    along: int,
    place: int,
    limits: dict[int, tuple[float, float]],
) -> list[Panel]:
    panels: list[Panel] = []
    grey: Array | None = None
    for index, layer in enumerate(layers):
        low, high = limits.get(index, (0, 1))
        image = _slice(layer, shared, index, along, place)
        odd = ~np.isfinite(image)
        image = np.where(odd, low, image) if odd.any() else image
        if layer.kind == "raw":
            panel = Panel(layer.title, stretched(as_image(image), (low, high)))
            grey = panel.image if panel.image.ndim == 2 else panel.image.mean(axis=-1)
        elif layer.kind == "prediction":
            panel = _predicted(layer, image)
        else:
            panel = _objects(layer, image[0], grey, _across(layer.volume, along))
        panels.append(_noted(panel, int(np.count_nonzero(odd))))
    return panels


def _noted(panel: Panel, odd: int) -> Panel:
    """Return a panel with a note of how many of its values are not finite."""
    if not odd:
        return panel
    words = f"{odd:,} values are not finite, and dark here"
    return replace(panel, note="; ".join(filter(None, (panel.note, words))))


def _predicted(layer: Layer, image: Array) -> Panel:
    values = image.astype(np.float32)
    if image.dtype.kind in "ui":
        values /= np.iinfo(image.dtype).max
    values = np.clip(values, 0, 1)
    near, first = _nearest(layer.volume), layer.volume.first_class
    shares = near is None and are_shares(values)
    # Three channels may be of any meaning, unless the file says that they are classes.
    if near or (len(values) == 3 and not (shares and first is not None)):
        used = near or (0, 1, 2)
        steps = zip(("red", "green", "blue"), "zyx" if near else used, strict=True)
        note = ", ".join(f"{colour} {step}" for colour, step in steps)
        note += f"; {len(values)} channels in all" if len(values) > 3 else ""
        return Panel(layer.title, as_image(values[list(used)]), note=note)
    if shares:
        note = f"{len(values)} classes by their shares, from {first or '0: black'}"
        return Panel(layer.title, share_colours(values, first or 0), note=note)
    note = f"mean of {len(values)} channels" if len(values) > 1 else ""
    return Panel(layer.title, values.mean(axis=0), bar=True, note=note)


def _objects(layer: Layer, ids: Array, grey: Array | None, across: tuple[bool, bool]) -> Panel:
    count = len(np.unique(ids[ids != 0]))
    note = f"{count:,} label{'s' * (count != 1)} in this slice"
    image = object_colours(ids) if grey is None else overlay(grey, ids, across)
    return Panel(layer.title, image, note=note)


def _slice(layer: Layer, shared: _Shared, index: int, along: int, place: int) -> Array:
    """Return (C, height, width) of a layer at a place along an axis, thinned out if it is large."""
    corner = shared.corners[index]
    lower = [a - c for a, c in zip(shared.lower, corner, strict=True)]
    upper = [b - c for b, c in zip(shared.upper, corner, strict=True)]
    lower[along] = place - corner[along]
    upper[along] = lower[along] + 1
    image = layer.volume.read(_triple(lower), _triple(upper), finite=False)
    step = _thinning(shared, along)
    return np.asarray(image.take(0, axis=along + 1)[:, ::step, ::step])


def _thinning(shared: _Shared, along: int) -> int:
    """Return n, where every n-th voxel of a slice is shown."""
    sizes = [b - a for a, b in zip(shared.lower, shared.upper, strict=True)]
    del sizes[along]
    return -(-max(sizes) // LARGEST)


def _limits(layers: Sequence[Layer], shared: _Shared, along: int) -> dict[int, tuple[float, float]]:
    """Return one grey range for each raw image, for all slices, from a few of them."""
    first, last = shared.lower[along], shared.upper[along]
    places = sorted({int(p) for p in np.linspace(first, last - 1, SAMPLED)})
    found = {}
    for index, layer in enumerate(layers):
        if layer.kind == "raw":
            seen = [_slice(layer, shared, index, along, place) for place in places]
            values = np.concatenate([s.ravel() for s in seen]).astype(np.float32)
            values = values[np.isfinite(values)]
            low, high = np.percentile(values, (0.5, 99.5)) if values.size else (0, 1)
            found[index] = (float(low), float(high))
    return found


def _voxels(volume: Volume, along: int, step: int) -> Voxels:
    rest = [axis for axis in range(3) if axis != along]
    size = (volume.resolution[rest[0]] * step, volume.resolution[rest[1]] * step)
    names = ("zyx"[rest[0]], "zyx"[rest[1]])
    return Voxels(size, names, volume.resolution != (1.0, 1.0, 1.0))


def _caption(layer: Layer, axis: str, along: int, place: int) -> str:
    volume = layer.volume
    text = f"{title_of(volume)}, {axis} = {place}"
    if volume.resolution != (1.0, 1.0, 1.0):
        unit, one = unit_of(max(volume.resolution))
        position = (volume.offset[along] + place * volume.resolution[along]) / one
        sizes = " x ".join(f"{size / one:g}" for size in volume.resolution)
        text += f" ({position:g} {unit}), voxels of {sizes} {unit} (z, y, x)"
    return text


def _nearest(volume: Volume) -> tuple[int, ...] | None:
    """Return the channels of affinities to the next neighbour along z, y and x, if there are all three."""
    found = {}
    for channel, offset in enumerate(volume.neighbours or ()):
        if sum(map(abs, offset)) == 1:
            found[next(axis for axis in range(3) if offset[axis])] = channel
    return (found[0], found[1], found[2]) if len(found) == 3 else None


def _across(volume: Volume, along: int) -> tuple[bool, bool]:
    """Return which neighbours outlines look at: not those more than twice as far away as the others."""
    high, wide = _voxels(volume, along, 1).size
    return high <= 2 * wide, wide <= 2 * high


def _triple(values: Sequence[int]) -> Triple:
    z, y, x = (int(v) for v in values)
    return (z, y, x)
