"""MONAI's SegResNetDS (Auto3DSeg): SegResNet with anisotropic levels and heads at several of them."""

from __future__ import annotations

import math
from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Layers, Net, example, finished
from znnpy.interop.classes.monai_parts import function_of, norm_of, upsampled
from znnpy.interop.classes.segresnet import MODES, preactivated
from znnpy.interop.classes.state import State
from znnpy.interop.operators.value import Value


def segresnet_ds(keys: Keywords, state: State) -> Net:
    """Return MONAI's SegResNetDS as it predicts: with its finest head alone."""
    keys.refuse("preprocess", None)
    dimensions, width = keys.dimensions(), keys.integer("init_filters")
    down, up = _counts(keys)
    strides = _strides(keys, dimensions, len(down))
    sizes = [[3 if step > 1 else 1 for step in stride] for stride in strides]
    layers = Layers(
        state, dimensions, keys.integer("in_channels"), example(strides[:-1], dimensions)
    )
    norm, act = norm_of(keys, "norm", affine=True), function_of(keys, "act")

    def blocks(x: Value, name: str, count: int, size: list[int]) -> Value:
        for number in range(count):
            inner = f"{name}.blocks.{number}"
            x = preactivated(layers, x, inner, norm, act, ("act1", "act2", ""), size)
        return x

    x, skips = layers.conv(layers.input, "encoder.conv_init", width, sizes[0]), list[Value]()
    for level, count in enumerate(down):
        name = f"encoder.layers.{level}"
        x = blocks(x, name, count, sizes[level])
        if level < len(up):
            skips.append(x)
            x = layers.conv(
                x, f"{name}.downsample", 2 * x.channels, sizes[level], stride=strides[level]
            )
    for number, count in enumerate(up):
        level, name = len(up) - 1 - number, f"up_layers.{number}"
        x = upsampled(
            layers, x, f"{name}.upsample", x.channels // 2, keys.text("upsample_mode"), factor=strides[level],
            size=sizes[level], bias=False, wrong=lambda: keys.wrong("upsample_mode", MODES),
        )  # fmt: skip
        x = layers.add(f"{name}.sum", x, skips.pop())
        x = blocks(x, name, count, sizes[level])
        if number < len(up) - 1:
            layers.at(name)
            if state.leave(f"{name}.head."):
                layers.sketch.note("heads of deep supervision are left out, as in prediction")
    head = f"up_layers.{len(up) - 1}.head"
    return finished(layers, layers.conv(x, head, keys.integer("out_channels"), 1, bias=True))


def _counts(keys: Keywords) -> tuple[list[int], list[int]]:
    """Return the number of blocks of each level on the way down, and on the way up."""
    down = keys.integers("blocks_down")
    if len(down) < 2:
        raise keys.wrong("blocks_down", "must hold at least two numbers")
    up = keys.integers("blocks_up") if "blocks_up" in keys else [1] * (len(down) - 1)
    if len(up) != len(down) - 1:
        raise keys.wrong("blocks_up", f"must hold {len(down) - 1} numbers")
    return down, up


def _strides(keys: Keywords, dimensions: int, levels: int) -> list[list[Any]]:
    """Return the stride of each level: 2, or 1 along axes whose voxels are longer than those of lower levels."""
    if "resolution" not in keys:
        return [[2] * dimensions] * levels
    sizes = keys.numbers("resolution")
    if len(sizes) != dimensions or min(sizes) <= 0:
        raise keys.wrong("resolution", f"must hold {dimensions} sizes above 0")
    behind = [math.floor(math.log2(max(sizes) / size)) for size in sizes]
    found = [[1 if 2**level >= 2**n else 2 for n in behind] for level in range(max(behind))]
    return (found + [[2] * dimensions] * max(0, levels - max(behind)))[:levels]
