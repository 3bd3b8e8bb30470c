"""Padding: fills the frame of voxels around a channel (zeros, replicate, reflect), and folds its gradient back.

A rule says which voxel stands at a place of the frame: none (ZEROS), the nearest one (REPLICATE), or its mirror
image at the outermost voxel (REFLECT, up to a size less one beyond). "Image" below is one channel without its frame.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_z, source_y      voxel (0, 0, 0) of the image; strides
    target, target_z, target_y      the same voxel in the memory that is written
    size_*                          voxels of the image
    before_*, after_*               of its frame
    lanes                           floats of a voxel
    z0, z1, y0, y1                  rows of this task, those of the frame included: negative before the image
    rule
    copies                          (frame) 1: the image is written too; 0: it stands there
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.rows import add_row, copy_row, zero_row

# Words of the argument block have numbers; `rule` is one of these.
ZEROS, REPLICATE, REFLECT = range(3)

PLACES = words(
    "source source_z source_y target target_z target_y size_z size_y size_x before_z before_y "
    "before_x after_z after_y after_x lanes z0 z1 y0 y1 rule"
)
FRAME = words(PLACES, "copies")


@inlined
def _stands(place: int, size: int, rule: int) -> Any:
    """Return the voxel of a line that stands at a place in it or beyond."""
    if rule == REFLECT:
        place = abs(place)
        # Beyond the end the mirror image at the last voxel; `abs` is the one at the first.
        return place if place < size else 2 * (size - 1) - place
    return min(max(place, 0), size - 1)


@inlined
def _beyond(number: int, before: int, size: int) -> Any:
    """Return the place of a line's frame with this number."""
    # Numbers of a frame: those before the line, then those after it.
    return number - before if number < before else number - before + size


@kernel(FRAME)
def frame_rows(args: Any, worker: int) -> None:
    """Fill the frame of an image, or of a copy of it. Words: see the module."""
    at = FRAME
    rule, voxel, size = args[at.rule], 4 * args[at.lanes], args[at.size_x]
    before, beyond = args[at.before_x], args[at.before_x] + args[at.after_x]
    for z in range(args[at.z0], args[at.z1]):
        for y in range(args[at.y0], args[at.y1]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            inside = 0 <= z < args[at.size_z] and 0 <= y < args[at.size_y]
            from_z, from_y = (
                _stands(z, args[at.size_z], rule),
                _stands(y, args[at.size_y], rule),
            )
            source = args[at.source] + 4 * (from_z * args[at.source_z] + from_y * args[at.source_y])
            # Zeros need no reading, and a whole row of them is one store after the other.
            if rule == ZEROS:
                zero_row(target - before * voxel, before * args[at.lanes])
                zero_row(target + size * voxel, args[at.after_x] * args[at.lanes])
                if not inside:
                    zero_row(target, size * args[at.lanes])
            else:
                # Voxel by voxel: neighbours in the frame need not be neighbours in the image.
                for number in range(beyond):
                    place = _beyond(number, before, size)
                    from_x = _stands(place, size, rule)
                    copy_row(source + from_x * voxel, target + place * voxel, args[at.lanes])
            # Rows of the image stand where they are unless it is a copy; rows of the frame are copied from the
            # row that stands there.
            if args[at.copies] if inside else rule != ZEROS:
                copy_row(source, target, size * args[at.lanes])


@inlined
def _add_line(args: Any, source: int, target: int, first: int) -> None:
    """Add a row of the framed gradient, or store the first, to a row of the image's."""
    at = PLACES
    lanes, voxel, size = args[at.lanes], 4 * args[at.lanes], args[at.size_x]
    if first:
        copy_row(source, target, size * lanes)
    else:
        add_row(target, source, target, size * lanes)
    if args[at.rule] != ZEROS:
        for number in range(args[at.before_x] + args[at.after_x]):
            place = _beyond(number, args[at.before_x], size)
            there = target + _stands(place, size, args[at.rule]) * voxel
            add_row(there, source + place * voxel, there, lanes)


@kernel(PLACES)
def fold_rows(args: Any, worker: int) -> None:
    """Write the gradient of an image from that of the framed image: each voxel's is the sum over its places.

    z0, z1, y0, y1 are rows of the image. Sums have one order, whatever the rows of a task. Words: see the module.
    """
    at = PLACES
    rule = args[at.rule]
    beyond_z = args[at.before_z] + args[at.after_z] if rule != ZEROS else 0
    beyond_y = args[at.before_y] + args[at.after_y] if rule != ZEROS else 0
    for z in range(args[at.z0], args[at.z1]):
        for y in range(args[at.y0], args[at.y1]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            # -1 is the row itself, which is first: it stores, the others add.
            for plane in range(-1, beyond_z):
                from_z = z if plane < 0 else _beyond(plane, args[at.before_z], args[at.size_z])
                # Only places of the frame at which this voxel stands.
                if _stands(from_z, args[at.size_z], rule) == z:
                    for row in range(-1, beyond_y):
                        from_y = y if row < 0 else _beyond(row, args[at.before_y], args[at.size_y])
                        if _stands(from_y, args[at.size_y], rule) == y:
                            source = args[at.source] + 4 * (
                                from_z * args[at.source_z] + from_y * args[at.source_y]
                            )
                            _add_line(args, source, target, plane < 0 and row < 0)
