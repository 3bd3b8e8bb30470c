"""torch-em's UNet2d, UNet3d and AnisotropicUNet: blocks of norm, convolution, function, twice."""

from __future__ import annotations

from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, Sizes, example, finished
from znnpy.interop.classes.state import State
from znnpy.interop.operators import arithmetic
from znnpy.interop.operators.value import Value

_FUNCTIONS = {
    "Sigmoid": "logistic", "Softmax": "softmax", "ReLU": "relu", "Tanh": "tanh", "Identity": "linear",
}  # fmt: skip
_AFTER: dict[str, tuple[tuple[int, int] | None, tuple[int, int]]] = {
    "affinities_to_boundaries_anisotropic": (None, (1, 3)),
    "affinities_to_boundaries2d": (None, (0, 2)),
    "affinities_with_foreground_to_boundaries2d": ((0, 1), (1, 3)),
    "affinities_to_boundaries3d": (None, (0, 3)),
    "affinities_with_foreground_to_boundaries3d": ((0, 1), (1, 4)),
}
"""Channels that stay, and channels of which the largest is taken."""
_GROUPS = 32


class _Blocks:
    def __init__(self, keys: Keywords, layers: Layers) -> None:
        self.keys, self.layers = keys, layers
        self.normed = "norm" in keys

    def norm(self, channels: int) -> Norm | None:
        """Return the norm of so many channels."""
        if not self.normed:
            return None
        match self.keys.text("norm"):
            case "InstanceNorm":
                return Norm("instance", affine=False)
            case "InstanceNormTrackStats":
                return Norm("instance", momentum=0.01, tracked=True)
            case "GroupNorm":
                return Norm("group", groups=min(_GROUPS, channels))
            case "BatchNorm":
                return Norm("batch")
        raise self.keys.wrong(
            "norm", "must be InstanceNorm, InstanceNormTrackStats, GroupNorm, BatchNorm or null"
        )

    def block(self, x: Value, name: str, width: int) -> Value:
        """Add a block."""
        place = 0
        for _ in range(2):
            if self.normed:
                x = self.layers.norm(x, f"{name}.block.{place}", self.norm(x.channels))
                place += 1
            inner = f"{name}.block.{place}"
            x = self.layers.conv(x, inner, width, self._filters(inner), bias=True)
            x = self.layers.function(x, f"{name}.block.{place + 1}", Function("relu"))
            place += 2
        return x

    def _filters(self, name: str) -> Sizes:
        """Return the size of filters; of an anisotropic net which are flat is seen from the filters alone."""
        size: Sizes = self.keys.sizes("kernel_size")
        if not self.keys.truth("anisotropic_kernel") or not isinstance(size, int):
            return size
        stored = self.layers.state.shape(f"{name}.weight")[2:]
        if not set(stored) <= {1, size}:
            raise self.keys.wrong("kernel_size", f"is not that of {name}, which has {stored}")
        return list(stored)


def _net(keys: Keywords, state: State, dimensions: int, factors: list[Any]) -> Net:
    for key in ("conv_block_impl", "pooler_impl", "sampler_impl"):
        keys.refuse(key, None)
    _refuse_padding(keys)
    first, gain = keys.integer("initial_features"), keys.integer("gain")
    layers = Layers(state, dimensions, keys.integer("in_channels"), example(factors, dimensions))
    blocks = _Blocks(keys, layers)
    x, skips = layers.input, list[Value]()
    for level, factor in enumerate(factors):
        x = blocks.block(x, f"encoder.blocks.{level}", first * gain**level)
        skips.append(x)
        x = layers.pool(x, f"encoder.poolers.{level}", "max_pool", factor)
    x = blocks.block(x, "base", first * gain ** len(factors))
    made = []
    for number, factor in enumerate(factors[::-1]):
        width = first * gain ** (len(factors) - 1 - number)
        name = f"decoder.samplers.{number}"
        x = layers.resize(x, name, factor, "linear")
        x = layers.conv(x, f"{name}.conv", width, 1, bias=True)
        x = layers.cat(f"decoder.{number}.cat", x, skips.pop())
        x = blocks.block(x, f"decoder.blocks.{number}", width)
        made.append(x)
    return finished(layers, _outputs(keys, layers, made))


def _refuse_padding(keys: Keywords) -> None:
    """Raise ModelFileError for padding that does not keep the size: skips would be cropped."""
    size: Any = keys.sizes("kernel_size")
    kept = [n // 2 for n in size] if isinstance(size, list) else size // 2
    if keys.values["padding"] != kept:
        raise keys.wrong("padding", f"must be {kept}, which keeps the size")


def _outputs(keys: Keywords, layers: Layers, made: list[Value]) -> list[Value]:
    """Return the outputs, the finest one first."""
    if keys.truth("return_side_outputs"):
        widths = keys.repeated("out_channels", len(made))
        heads = [
            layers.conv(x, f"out_conv.{number}", width, 1, bias=True)
            for number, (x, width) in enumerate(zip(made, widths, strict=True))
        ][::-1]
    elif "out_channels" in keys:
        heads = [layers.conv(made[-1], "out_conv", keys.integer("out_channels"), 1, bias=True)]
    else:
        heads = made[-1:]
    if "final_activation" in keys:
        name = keys.text("final_activation")
        if name not in _FUNCTIONS:
            raise keys.wrong("final_activation", f"must be one of {', '.join(_FUNCTIONS)}")
        heads = [layers.function(x, "final_activation", Function(_FUNCTIONS[name])) for x in heads]
    if "postprocessing" in keys:
        name = keys.text("postprocessing")
        if name not in _AFTER:
            raise keys.wrong("postprocessing", f"must be one of {', '.join(_AFTER)}")
        heads = [_accumulated(layers, x, *_AFTER[name]) for x in heads]
    return heads


def _accumulated(
    layers: Layers, x: Value, kept: tuple[int, int] | None, gathered: tuple[int, int]
) -> Value:
    """Return the channels that are kept, and the largest of those that are gathered."""
    name, sketch = "postprocessing", layers.sketch
    layers.at(name)
    low, high = gathered
    if high > x.channels:
        raise sketch.wrong(f"of channels {low} to {high - 1}, and there are {x.channels}")
    most = arithmetic.chosen(sketch, f"{name}.{low}", x, [low])
    for channel in range(low + 1, high):
        one = arithmetic.chosen(sketch, f"{name}.{channel}", x, [channel])
        most = arithmetic.larger(sketch, f"{name}.max{channel}", most, one)
    if kept is None:
        return most
    stays = arithmetic.chosen(sketch, f"{name}.kept", x, [*range(*kept)])
    return arithmetic.concatenated(sketch, name, [stays, most])


def unet2d(keys: Keywords, state: State) -> Net:
    """Return UNet2d."""
    return _net(keys, state, 2, [2] * keys.integer("depth"))


def unet3d(keys: Keywords, state: State) -> Net:
    """Return UNet3d."""
    return _net(keys, state, 3, [2] * keys.integer("depth"))


def anisotropic_unet(keys: Keywords, state: State) -> Net:
    """Return AnisotropicUNet."""
    return _net(keys, state, 3, keys.each("scale_factors"))
