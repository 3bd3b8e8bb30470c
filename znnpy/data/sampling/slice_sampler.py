"""A fast path for samples that are whole single slices, such as labelled images: reads many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from znnpy.data.sampling.label_checks import refuse_untaken
from znnpy.data.sampling.patch_positions import Placing
from znnpy.data.sampling.position_index import plus
from znnpy.data.sampling.sample import Float32, Patch
from znnpy.data.sampling.scene_patches import Material
from znnpy.data.volume import Array, Triple, Volume, mirror_read


def are_slices(placing: Placing, material: Sequence[Material]) -> bool:
    """Return whether all patches are single slices without swaps, in which all voxels count."""
    return (
        not any(it.groups or it.scene.masks for it in material)
        and all(box.extent[0] == 1 for box in placing.boxes.values())
        and all(
            it.target.margin == 0 and it.target.ignore is None for it in placing.outputs.values()
        )
    )


def read_slices(
    placing: Placing, material: Sequence[Material], drawn: Sequence[tuple[int, Triple]]
) -> Patch:
    """Read slices at some positions, each of a scene by number, and return them stacked."""
    found = Patch({}, {}, {})
    for scene in {scene for scene, _ in drawn}:
        where = [i for i, (number, _) in enumerate(drawn) if number == scene]
        positions = [drawn[i][1] for i in where]
        _add(found, placing, material[scene], positions, where, len(drawn))
    return found


def _add(
    found: Patch,
    placing: Placing,
    material: Material,
    positions: list[Triple],
    where: list[int],
    count: int,
) -> None:
    """Put the slices at some positions of a scene into their places among `count` samples."""
    scene = material.scene
    for node in placing.inputs:
        norm = material.norms[node]
        volume = scene.images[node]
        lowers = [placing.lower(scene, node, volume, position) for position in positions]
        raw = _planes(placing, volume, node, lowers, finite=not norm.replace)
        _put(found.images, node, norm.apply(raw), where, count)
    for node, output in placing.outputs.items():
        volume = scene.labels[node]
        lowers = [placing.lower(scene, node, volume, position) for position in positions]
        labels = _planes(placing, volume, node, lowers, finite=False)
        known = np.ones(labels.shape[1:], np.bool_)
        if not output.target.takes_all(labels.dtype):
            for i, lower in enumerate(lowers):
                own = slice(i, i + 1)
                refuse_untaken(output.target, volume.name, labels[:, own], known[own], lower)
        rows, columns = (slice(None, None, step) for step in output.stride[1:])
        made = output.target.compute(labels[:, :, rows, columns], known[:, rows, columns])
        for group, values in zip((found.targets, found.weights), made, strict=True):
            _put(group, node, values, where, count)


def _planes(
    placing: Placing, volume: Volume, node: str, lowers: list[Triple], *, finite: bool
) -> Array:
    """Return a node's slices of a volume that begin at `lowers`, (C, number, y, x)."""
    extent = placing.boxes[node].extent
    planes = [mirror_read(volume, a, plus(a, extent), finite=finite) for a in lowers]
    return np.concatenate(planes, axis=1)


def _put(
    group: dict[str, Float32], node: str, values: Float32, where: list[int], count: int
) -> None:
    """Put slices (C, number, y, x) into their places in a node's samples, which are allocated on first use."""
    channels, _, *plane = values.shape
    if node not in group:
        group[node] = np.empty((count, channels, 1, *plane), np.float32)
    group[node][where] = values.swapaxes(0, 1)[:, :, None]
