"""How much a U-Net without padding cuts off what came down to fit what comes up."""

from __future__ import annotations

from znnpy.config.unet_section import UnetSection, each
from znnpy.errors import NetworkError
from znnpy.network.types import Triple


def skip_crops(section: UnetSection) -> list[Triple]:
    """Voxels (z, y, x) that each level's skip loses on either side; nothing with padding.

    Raises NetworkError where it would have to lose more on one side than on the other, or to grow.
    """
    axes = [_along(section, axis) for axis in range(3)]
    return [(z, y, x) for z, y, x in zip(*axes, strict=True)]


def _along(section: UnetSection, axis: int) -> list[int]:
    """The same along one axis; `smaller`: voxels of a level that it has lost when it hands on upwards."""
    if section.padding == "same":
        return [0] * (section.levels - 1)
    crops: list[int] = []
    smaller = _lost(section, section.levels - 1, axis)
    for level in reversed(range(section.levels - 1)):
        smaller = _below(section, level, axis, smaller)
        if smaller < 0:
            raise NetworkError(
                f"what comes up to level {level} is larger along {'zyx'[axis]} by {-smaller} voxels than what it "
                "joins: choose filters of other sizes, or padding: same"
            )
        if smaller % 2:
            raise NetworkError(
                f"what comes up to level {level} is smaller along {'zyx'[axis]} by {smaller} voxels than "
                "what it joins, which cannot lose as many on both sides: choose filters of other sizes"
            )
        crops.insert(0, smaller // 2)
        smaller += _lost(section, level, axis) + _lost_upwards(section, level, axis)
    return crops


def _below(section: UnetSection, level: int, axis: int, smaller: int) -> int:
    """Voxels of a level that going down from it and coming back costs, which cost the next `smaller`."""
    factor = each(section.down, level)[axis]
    lost = smaller * factor
    if section.pool == "strided":
        lost += section.sizes(level + 1)[0][axis] - factor
    size = section.up.size
    if section.up.kind == "transposed":
        return lost - (size[axis] - factor if size else 0)
    return lost + (size[axis] - 1 if size else 0)


def _lost(section: UnetSection, level: int, axis: int) -> int:
    """Voxels that the filters of a level's way down cost, but for the strided one that leads to it."""
    sizes = section.sizes(level) * each(section.blocks, level)
    strided = section.pool == "strided" and level > 0
    return sum(size[axis] - 1 for size in sizes[strided:])


def _lost_upwards(section: UnetSection, level: int, axis: int) -> int:
    return sum(size[axis] - 1 for size in section.up_sizes(level))
