"""Builds a U-Net level by level, encoder then decoder, and computes how much each skip connection is cropped."""

from __future__ import annotations

from typing import Any

from znnpy.config.unet_section import UnetSection, each
from znnpy.errors import NetworkError
from znnpy.layers.keys import slope_of
from znnpy.layers.types import EdgeKindName
from znnpy.network.types import ONCE, Edge, Node, Triple
from znnpy.network.unet.blocks import Convs, Sketch, block


def unet(section: UnetSection) -> tuple[list[Node], list[Edge]]:
    """Return the nodes and edges of a section, in the order in which data flows.

    Raises NetworkError where a skip connection cannot be cropped to fit the decoder.
    """
    crops, sketch = skip_crops(section), Sketch(section)
    at = sketch.add(Node("input", "input", section.input, bias=False))
    if section.stem is not None:
        to = sketch.made("stem.layer", section.widths[0][0])
        at = sketch.convolve("stem.conv", at, to, section.stem)
    skips: list[Node] = []
    for level in range(section.levels):
        at = _down(sketch, level, at)
        skips.append(at)
    for level in reversed(range(section.levels - 1)):
        at = _up(sketch, level, at, skips[level], crops[level])
        if level <= section.supervise:
            _output(sketch, f"output{level or ''}", at, section.outputs)
    for name, channels in section.heads.items():
        _output(sketch, name, at, channels)
    return sketch.nodes, sketch.edges


def _down(sketch: Sketch, level: int, at: Node) -> Node:
    """Add a level of the encoder: its blocks, after a pooling or with a stride in the first one."""
    section, name = sketch.section, f"down{level}"
    step = each(section.down, level - 1) if level else ONCE
    if section.pool != "strided" and step != ONCE:
        kind: EdgeKindName = "max_pool" if section.pool == "max" else "avg_pool"
        pooled = sketch.passing(f"{name}.pooled", at.channels)
        at = sketch.lead(f"{name}.pool", kind, at, pooled, size=step, stride=step)
        step = ONCE
    sizes = section.sizes(level)
    blocks = each(section.blocks, level)
    for index in range(blocks):
        prefix = name if blocks == 1 else f"{name}.block{index + 1}"
        convs = Convs.of(section.widths[level], sizes, ONCE if index else step)
        at = block(sketch, prefix, at, convs, section.block)
    return at


def _up(sketch: Sketch, level: int, below: Node, skip: Node, crop: Triple) -> Node:
    """Add a level of the decoder: upsampling, joining with the skip, then a block."""
    section, name = sketch.section, f"up{level}"
    channels = below.channels if section.up.channels == "same" else skip.channels
    if section.join == "sum":
        joined = sketch.made(f"{name}.join", channels)
    else:
        joined = sketch.add(Node(f"{name}.join", "concat", skip.channels + channels, bias=False))
    sketch.hand(f"{name}.skip", skip, joined, crop)
    factor = each(section.down, level)
    if section.up.kind == "transposed":
        _transposed(sketch, name, below, joined, channels, factor)
    else:
        _resized(sketch, name, below, joined, channels, factor)
    sizes = section.up_sizes(level)
    widths = section.up_widths[level] if section.up_widths else (section.width(level),)
    return block(sketch, name, joined, Convs.of(widths, sizes, ONCE), section.up_blocks)


def _transposed(
    sketch: Sketch, name: str, below: Node, joined: Node, channels: int, factor: Triple
) -> None:
    size = sketch.section.up.size or factor
    numbers: dict[str, Any] = {"size": size, "stride": factor}
    if sketch.section.padding == "same":
        numbers |= _trimmed(size, factor)
    to = _meeting(sketch, name, joined, channels)
    sketch.lead(f"{name}.grow", "conv_transpose", below, to, **numbers)


def _trimmed(size: Triple, factor: Triple) -> dict[str, Any]:
    """Return the padding with which a transposed convolution grows its input exactly by the factor."""
    cut = [max(0, (taps - step + 1) // 2) for taps, step in zip(size, factor, strict=True)]
    more = [2 * c + step - taps for c, taps, step in zip(cut, size, factor, strict=True)]
    return {"padding": tuple((c, c) for c in cut), "output_padding": tuple(more)}


def _resized(
    sketch: Sketch, name: str, below: Node, joined: Node, channels: int, factor: Triple
) -> None:
    """Add a resize and the convolution that narrows it.

    A 1x1x1 convolution goes before the resize: the result is the same, computed on fewer voxels.
    """
    up = sketch.section.up
    size = up.size or ONCE
    if up.channels == "same":
        _resize(sketch, name, below, joined, factor)
    elif size == ONCE:
        own = sketch.linear(f"{name}.narrowed", channels, bias=joined.kind == "concat")
        _resize(sketch, name, sketch.convolve(f"{name}.narrow", below, own, ONCE), joined, factor)
    else:
        grown = sketch.passing(f"{name}.resized", below.channels)
        _resize(sketch, name, below, grown, factor)
        to = _meeting(sketch, name, joined, channels)
        sketch.convolve(f"{name}.narrow", grown, to, size)


def _resize(sketch: Sketch, name: str, source: Node, to: Node, factor: Triple) -> None:
    if factor == ONCE:
        sketch.hand(f"{name}.grow", source, to)
    else:
        mode = sketch.section.up.kind
        sketch.lead(f"{name}.grow", "upsample", source, to, factor=factor, mode=mode)


def _meeting(sketch: Sketch, name: str, joined: Node, channels: int) -> Node:
    """Return the node that a convolution leads to: the sum itself, or one of its own that is concatenated."""
    if joined.kind != "concat":
        return joined
    own = sketch.linear(f"{name}.grown", channels)
    sketch.hand(f"{name}.below", own, joined)
    return own


def _output(sketch: Sketch, name: str, at: Node, channels: int) -> None:
    section = sketch.section
    slope = slope_of(section.output_function, None)
    to = Node(name, "transfer", channels, section.output_function, slope)
    ready = sketch.ready(f"{name}.ready", at)
    sketch.convolve(f"{name}.conv", ready, sketch.add(to), section.output_size)


def skip_crops(section: UnetSection) -> list[Triple]:
    """Return the voxels (z, y, x) by which each level's skip is cropped on each side; zeros with padding.

    Raises NetworkError where the crop would be larger on one side than on the other, or negative.
    """
    axes = [_along(section, axis) for axis in range(3)]
    return [(z, y, x) for z, y, x in zip(*axes, strict=True)]


def _along(section: UnetSection, axis: int) -> list[int]:
    """Return the crops along one axis, going up from the bottom.

    `smaller`: by how many voxels the decoder's output of a level is smaller than the level's input.
    """
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
    """Return how many voxels of a level are lost below it, where the next level loses `smaller` of its own."""
    factor = each(section.down, level)[axis]
    lost = smaller * factor
    if section.pool == "strided":
        lost += section.sizes(level + 1)[0][axis] - factor
    size = section.up.size
    if section.up.kind == "transposed":
        return lost - (size[axis] - factor if size else 0)
    return lost + (size[axis] - 1 if size else 0)


def _lost(section: UnetSection, level: int, axis: int) -> int:
    """Return how many voxels a level's encoder filters lose, without the strided one that leads to the level."""
    sizes = section.sizes(level) * each(section.blocks, level)
    strided = section.pool == "strided" and level > 0
    return sum(size[axis] - 1 for size in sizes[strided:])


def _lost_upwards(section: UnetSection, level: int, axis: int) -> int:
    return sum(size[axis] - 1 for size in section.up_sizes(level))
