"""MONAI's DynUNet, the architecture of nnU-Net's first version and of its residual encoder."""

from __future__ import annotations

from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Layers, Net, Sizes, example, finished
from znnpy.interop.classes.monai_parts import function_of, norm_of, told_dropout
from znnpy.interop.classes.state import State
from znnpy.interop.operators.value import Value

WIDEST = {3: 320, 2: 512}


class _Blocks:
    """DynUNet's blocks, with one norm and one function in all of the net."""

    def __init__(self, keys: Keywords, layers: Layers) -> None:
        self.layers, self.residual = layers, keys.truth("res_block")
        self.norm, self.act = norm_of(keys, "norm_name"), function_of(keys, "act_name")

    def conv(self, x: Value, name: str, width: int, size: Sizes, stride: Sizes) -> Value:
        """Add a convolution; its padding is (size - stride + 1) / 2, rounded down."""
        layers = self.layers
        pairs = zip(layers.triple(size), layers.triple(stride), strict=True)
        pad = [(n - step + 1) // 2 for n, step in pairs][3 - layers.dimensions :]
        if min(pad) < 0:
            layers.at(name)
            raise layers.sketch.wrong(
                f"a stride {stride} beyond filters of {size} taps and one more"
            )
        return layers.conv(x, f"{name}.conv", width, size, stride=stride, padding=pad)

    def normed(self, x: Value, name: str) -> Value:
        """Add a norm."""
        return self.layers.norm(x, name, self.norm)

    def block(
        self, x: Value, name: str, width: int, size: Sizes, stride: Sizes, residual: bool
    ) -> Value:
        """Add two convolutions, and the way around them."""
        made = self.normed(self.conv(x, f"{name}.conv1", width, size, stride), f"{name}.norm1")
        made = self.layers.function(made, f"{name}.lrelu", self.act)
        made = self.normed(self.conv(made, f"{name}.conv2", width, size, 1), f"{name}.norm2")
        if residual:
            if x.channels != width or max(self.layers.triple(stride)) > 1:
                x = self.normed(self.conv(x, f"{name}.conv3", width, 1, stride), f"{name}.norm3")
            made = self.layers.add(f"{name}.sum", made, x)
        return self.layers.function(made, f"{name}.lrelu", self.act)


def dynunet(keys: Keywords, state: State) -> Net:
    """Return MONAI's DynUNet as it predicts, without the heads of deep supervision."""
    sizes, strides = keys.each("kernel_size"), keys.each("strides")
    levels, dimensions = len(strides), keys.dimensions()
    if levels < 3 or len(sizes) != levels:
        raise keys.wrong("strides", "must hold three numbers or more, and as many as kernel_size")
    ups = keys.each("upsample_kernel_size")
    if len(ups) != levels - 1:
        raise keys.wrong("upsample_kernel_size", f"must hold {levels - 1} sizes")
    if "filters" in keys:
        widths = keys.integers("filters")[:levels]
    else:
        widths = [min(1 << (5 + level), WIDEST[dimensions]) for level in range(levels)]
    if len(widths) < levels:
        raise keys.wrong("filters", f"must hold {levels} numbers")
    layers = Layers(state, dimensions, keys.integer("in_channels"), example(strides, dimensions))
    told_dropout(layers, keys, "dropout")
    blocks, bias = _Blocks(keys, layers), keys.truth("trans_bias")
    x, skips = layers.input, list[Value]()
    names = _names(levels)
    for name, width, size, stride in zip(names, widths, sizes, strides, strict=True):
        x = blocks.block(x, name, width, size, stride, blocks.residual)
        skips.append(x)
    skips.pop()
    for number in range(levels - 1):
        level, name = levels - 2 - number, f"upsamples.{number}"
        up: Any = ups[level]
        x = layers.grow(x, f"{name}.transp_conv.conv", widths[level], up, stride=up, bias=bias)
        x = layers.cat(f"{name}.cat", x, skips.pop())
        x = blocks.block(x, f"{name}.conv_block", widths[level], sizes[level + 1], 1, False)
    x = layers.conv(x, "output_block.conv.conv", keys.integer("out_channels"), 1, bias=True)
    _leave_copies(state, levels, layers)
    return finished(layers, x)


def _names(levels: int) -> list[str]:
    return ["input_block", *(f"downsamples.{level}" for level in range(levels - 2)), "bottleneck"]


def _leave_copies(state: State, levels: int, layers: Layers) -> None:
    """Pass over what the class keeps twice, and heads that only training has."""
    layers.at("deep_supervision_heads")
    heads = state.leave("deep_supervision_heads.")
    if heads:
        layers.sketch.note("heads of deep supervision are left out, as in prediction")
    names, place = _names(levels), "skip_layers"
    for level in range(levels - 1):
        state.same(f"{place}.downsample.", f"{names[level]}.")
        state.same(f"{place}.upsample.", f"upsamples.{levels - 2 - level}.")
        state.leave(f"{place}.super_head.")
        place += ".next_layer"
    state.same(f"{place}.", "bottleneck.")
