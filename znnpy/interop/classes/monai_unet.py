"""MONAI's UNet and AttentionUnet, which are nested: each level holds the one below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, Sizes, example, finished
from znnpy.interop.classes.monai_parts import (
    NONE,
    After,
    convolution,
    growth,
    residual_unit,
    told_dropout,
)
from znnpy.interop.classes.state import State
from znnpy.interop.operators import arithmetic
from znnpy.interop.operators.value import Value


def _levels(keys: Keywords) -> tuple[list[int], list[Any]]:
    """Return channels by level, and the stride below each but the last."""
    channels = keys.integers("channels")
    if len(channels) < 2:
        raise keys.wrong("channels", "must hold at least two numbers")
    strides = keys.each("strides")
    if len(strides) < len(channels) - 1:
        raise keys.wrong("strides", f"must hold {len(channels) - 1} strides")
    return channels, strides[: len(channels) - 1]


def _begun(keys: Keywords, state: State, strides: Sequence[Any]) -> Layers:
    older = keys.values.get("dimensions") is not None
    dimensions = keys.dimensions("dimensions" if older else "spatial_dims")
    size = example(strides, dimensions)
    layers = Layers(state, dimensions, keys.integer("in_channels"), size)
    told_dropout(layers, keys, "dropout")
    return layers


class _Nested:
    """MONAI's UNet."""

    def __init__(self, keys: Keywords, state: State) -> None:
        self.channels, self.strides = _levels(keys)
        self.layers = _begun(keys, state, self.strides)
        self.size, self.up_size = keys.sizes("kernel_size"), keys.sizes("up_kernel_size")
        self.units = keys.integer("num_res_units") if keys.values["num_res_units"] else 0
        self.bias, self.after = keys.truth("bias"), After.of(keys)
        self.outputs = keys.integer("out_channels")

    def level(self, x: Value, name: str, depth: int) -> Value:
        """Add a level and what is below it."""
        width, stride = self.channels[depth], self.strides[depth]
        skip = self.unit(x, f"{name}.0", width, stride)
        below = f"{name}.1.submodule"
        if depth + 2 == len(self.channels):
            deep = self.unit(skip, below, self.channels[depth + 1], 1)
        else:
            deep = self.level(skip, below, depth + 1)
        joined = self.layers.cat(f"{name}.cat", skip, deep)
        return self.up(joined, f"{name}.2", depth, stride)

    def unit(self, x: Value, name: str, width: int, stride: Sizes) -> Value:
        """Add what leads down."""
        if self.units:
            return residual_unit(
                self.layers, x, name, width, self.after, self.size, stride=stride, units=self.units, bias=self.bias
            )  # fmt: skip
        return convolution(
            self.layers, x, name, width, self.after, self.size, stride=stride, bias=self.bias
        )

    def up(self, x: Value, name: str, depth: int, stride: Sizes) -> Value:
        """Add what leads up to the level above."""
        top = depth == 0
        width = self.outputs if top else self.channels[depth - 1]
        after = NONE if top and not self.units else self.after
        first = f"{name}.0" if self.units else name
        x = growth(self.layers, x, first, width, after, self.up_size, stride=stride, bias=self.bias)
        if not self.units:
            return x
        return residual_unit(
            self.layers, x, f"{name}.1", width, self.after, self.size, units=1, bias=self.bias, bare=top
        )  # fmt: skip


def unet(keys: Keywords, state: State) -> Net:
    """Return MONAI's UNet, with residual units or without."""
    nested = _Nested(keys, state)
    return finished(nested.layers, nested.level(nested.layers.input, "model", 0))


class _Attending:
    """MONAI's AttentionUnet."""

    after = After(Norm("batch"), Function("relu"))
    merged = After(Norm("instance", affine=False), Function("prelu"))

    def __init__(self, keys: Keywords, state: State) -> None:
        self.channels, self.strides = _levels(keys)
        self.layers = _begun(keys, state, self.strides)
        self.size, self.up_size = keys.sizes("kernel_size"), keys.sizes("up_kernel_size")

    def block(self, x: Value, name: str, width: int, stride: Sizes) -> Value:
        """Add two convolutions."""
        x = convolution(self.layers, x, f"{name}.0", width, self.after, self.size, stride=stride)
        return convolution(self.layers, x, f"{name}.1", width, self.after, self.size)

    def level(self, x: Value, name: str, depth: int) -> Value:
        """Add what is below a level, grown, and joined with what it lets through of the level."""
        layers, stride = self.layers, self.strides[depth]
        width, below = self.channels[depth : depth + 2]
        inner = f"{name}.submodule"
        if depth + 2 == len(self.channels):
            deep = self.block(x, f"{inner}.conv", below, stride)
        else:
            deep = self.block(x, f"{inner}.0.conv", below, stride)
            deep = self.level(deep, f"{inner}.1", depth + 1)
        grown = growth(
            layers, deep, f"{name}.upconv.up", width, self.after, self.up_size, stride=stride
        )
        gated = self.gate(grown, x, f"{name}.attention", width // 2)
        joined = layers.cat(f"{name}.cat", gated, grown)
        return convolution(layers, joined, f"{name}.merge", width, self.merged)

    def gate(self, g: Value, x: Value, name: str, width: int) -> Value:
        """Add the product of a feature map with the gate that it and the one below it make."""
        layers = self.layers
        norm = Norm("batch")
        sides = [
            layers.norm(layers.conv(of, f"{name}.{part}.0.conv", width, 1, bias=True), f"{name}.{part}.1", norm)
            for of, part in ((g, "W_g"), (x, "W_x"))
        ]  # fmt: skip
        both = layers.function(layers.add(f"{name}.sum", *sides), f"{name}.relu", Function("relu"))
        one = layers.conv(both, f"{name}.psi.0.conv", 1, 1, bias=True)
        gate = layers.function(
            layers.norm(one, f"{name}.psi.1", norm), f"{name}.psi.2", Function("logistic")
        )
        layers.at(name)
        return arithmetic.multiplied(layers.sketch, f"{name}.product", x, gate)


def attention_unet(keys: Keywords, state: State) -> Net:
    """Return MONAI's AttentionUnet."""
    net = _Attending(keys, state)
    x = net.block(net.layers.input, "model.0.conv", net.channels[0], 1)
    x = net.level(x, "model.1", 0)
    return finished(
        net.layers, net.layers.conv(x, "model.2.conv", keys.integer("out_channels"), 1, bias=True)
    )
