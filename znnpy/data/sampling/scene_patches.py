"""Reads patches from a scene: normalised inputs, targets and their weights; many single slices at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from znnpy.data.sampling.augmentation import Groups, Turn
from znnpy.data.sampling.class_weights import ClassCounts
from znnpy.data.sampling.distortions import Drawn
from znnpy.data.sampling.label_checks import check_kind, read_taken, refuse_untaken
from znnpy.data.sampling.patch_positions import Placing, mask_shift
from znnpy.data.sampling.placed import ROOM, Placed, interpolated, nearest, region_of, room_of
from znnpy.data.sampling.position_index import minus, plus
from znnpy.data.sampling.sample import Float32, Patch
from znnpy.data.sampling.scratch import scratch_region
from znnpy.data.sampling.warps import Region
from znnpy.data.scene import Scene
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import Array, Triple, Volume, mirror_read, mirrored_indices, mirrored_parts
from znnpy.errors import VolumeError

# More than cubes that are rotated about any axis and scaled by 4 along each: (4 * 3 ** 0.5) ** 3 = 333.
WIDEST = 512
"""Times the voxels of a patch, with room on each side, that may be read for it."""


@dataclass(frozen=True)
class Material:
    """A scene with what samples need of it: normalisation and class counts by node, and the axes to swap."""

    scene: Scene
    norms: Mapping[str, Normalisation]
    groups: Groups
    counts: Mapping[str, ClassCounts]

    def images(
        self, placing: Placing, position: Triple, turn: Turn, drawn: Drawn | None = None
    ) -> dict[str, Float32]:
        """Return the normalised patches of all inputs, distorted as `drawn` says."""
        scene, images = self.scene, {}
        for node in placing.inputs:
            volume, norm = scene.images[node], self.norms[node]
            lower = placing.lower(scene, node, volume, position, turn.flips)
            upper = plus(lower, placing.boxes[node].extent)
            if drawn is None:
                if norm.by_slice:  # before what was z lies elsewhere
                    read = normalised(norm, volume, lower, upper)
                    images[node] = np.ascontiguousarray(turn.apply(read))
                else:
                    raw = mirror_read(volume, lower, upper, finite=not norm.replace)
                    images[node] = norm.apply(turn.apply(raw))
                continue
            corner = scene.corner(volume)
            placed = drawn.places(plus(lower, corner), plus(upper, corner))
            if placed is None:
                parts = moved(drawn, lower, upper, corner)
                found = [normalised(norm, volume, *part) for part in parts]
                values = np.concatenate(found, axis=1) if len(found) > 1 else found[0]
            else:
                assert drawn.warp is not None
                placed = placed.inside(corner)
                region = warped_region(placed, volume, room_of(drawn.warp))
                room = scratch_region((volume.channels, *minus(region[1], region[0])))
                read = normalised(norm, volume, *region, room)
                values = interpolated(read, region[0], placed)
            changed = drawn.changed(values, plus(lower, corner), scene.resolution)
            images[node] = np.ascontiguousarray(turn.apply(changed))
        return images

    def target(
        self,
        placing: Placing,
        node: str,
        position: Triple,
        turn: Turn,
        drawn: Drawn | None = None,
    ) -> tuple[Float32, Float32]:
        """Return target and weights of an output.

        Labels are read with a margin, where `drawn` says, and turned; the target made of them is
        cropped, and every stride-th voxel taken.
        """
        output, extent, scene = placing.outputs[node], placing.boxes[node].extent, self.scene
        margin, labels = output.target.margin, scene.labels[node]
        lower = placing.lower(scene, node, labels, position, turn.flips)
        wide = (margin, margin, margin)
        region = minus(lower, wide), plus(plus(lower, extent), wide)
        mask, shift = scene.masks.get(node), mask_shift(scene, node)
        corner = scene.corner(labels)
        placed = None
        if drawn is not None:
            placed = drawn.places(plus(region[0], corner), plus(region[1], corner))
        if placed is not None:
            placed = placed.inside(corner)
            region = warped_region(placed, labels)
        parts = moved(drawn, *region, corner) if drawn and placed is None else [region]
        found = [read_taken(output.target, labels, mask, *part, shift) for part in parts]
        values, known = found[0]
        if len(found) > 1:
            values = np.concatenate([it for it, _ in found], axis=1)
            known = np.concatenate([it for _, it in found], axis=0)
        if placed is not None:
            if known.all():
                (values,) = nearest([values], region[0], placed)
                known = np.ones(values.shape[1:], np.bool_)
            else:
                values, (known,) = nearest([values, known[None]], region[0], placed)
        value, weight = output.target.compute(turn.apply(values), turn.apply(known))
        cut = tuple(
            slice(margin, margin + size, step)
            for size, step in zip(extent, output.stride, strict=True)
        )
        return np.ascontiguousarray(value[:, *cut]), np.ascontiguousarray(weight[:, *cut])


def warped_region(placed: Placed, volume: Volume, room: Triple = (0, 0, 0)) -> Region:
    """Return what is read of a volume for a warped patch, `room` voxels more on each side.

    Raises VolumeError where that is far more than any warp of sensible voxels reads.
    """
    region = region_of(placed.low, placed.high, room)
    extent = minus(region[1], region[0])
    if prod(extent) > WIDEST * prod(n + 2 * ROOM for n in placed.extent):
        raise VolumeError(
            f"{volume.name}: {extent} voxels (z, y, x) would be read for a patch of {placed.extent}, as augment turns "
            f"or shears voxels of {volume.resolution} nanometres; mend data.resolution, or leave out rotate, affine "
            "and elastic"
        )
    return region


def normalised(
    norm: Normalisation,
    volume: Volume,
    lower: Triple,
    upper: Triple,
    out: Float32 | None = None,
) -> Float32:
    """Return the normalised voxels of a region (channels, z, y, x), which may leave the volume; new, or in `out`."""
    if out is None:
        out = np.empty((volume.channels, *minus(upper, lower)), np.float32)
    if norm.by_slice:
        raw = mirror_read(volume, lower, upper, finite=not norm.replace)
        planes = mirrored_indices(lower[0], upper[0], volume.extent[0])
        return norm.apply(raw, out, planes)
    read, parts = mirrored_parts(volume, lower, upper, finite=not norm.replace)
    for here, there in parts:
        norm.apply(read[:, *there], out[:, *here])
    return out


def moved(
    drawn: Drawn, lower: Triple, upper: Triple, corner: Triple
) -> list[tuple[Triple, Triple]]:
    """Return the regions that the sections of one are read from; `corner`: of their volume in the scene."""
    (z, y, x), (_, bottom, right) = lower, upper
    found = []
    for (first, last), (down, across) in drawn.runs(z + corner[0], upper[0] + corner[0]):
        a, b = first - corner[0], last - corner[0]
        found.append(((a, y + down, x + across), (b, bottom + down, right + across)))
    return found


def check(placing: Placing, scene: Scene) -> None:
    """Raise VolumeError or ShapeError for a scene that no patches can be made of; reads nothing."""
    for what, wanted, given in (
        ("an image for input", placing.inputs, scene.images),
        ("labels for output", placing.outputs, scene.labels),
    ):
        missing = [node for node in wanted if node not in given]
        if missing:
            raise VolumeError(
                f"{scene.reference.name} comes without {what} {missing[0]!r}; given: "
                f"{', '.join(given) or 'none'}"
            )
    for node, output in placing.outputs.items():
        check_kind(output.target, scene.labels[node])
    placing.refuse_none(scene)


def are_slices(placing: Placing, material: Sequence[Material]) -> bool:
    """Return whether all patches are single slices without swaps, in which all voxels count."""
    return (
        not any(it.groups or it.scene.masks for it in material)
        and all(box.extent[0] == 1 for box in placing.boxes.values())
        and all(
            it.target.margin == 0 and not it.target.selective for it in placing.outputs.values()
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
        depth = volume.extent[0]
        planes = np.array([int(mirrored_indices(z, z + 1, depth)[0]) for z, _, _ in lowers])
        _put(found.images, node, norm.apply(raw, planes=planes), where, count)
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
