"""funlib's UNet, the network of LSD: convolutions without padding, crops, one or several ways up, heads behind it."""

from __future__ import annotations

from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, finished
from znnpy.interop.classes.state import State
from znnpy.interop.operators import windows
from znnpy.interop.operators.value import Value
from znnpy.network.types import Triple

_FUNCTIONS = {
    "ReLU": Function("relu"), "Sigmoid": Function("logistic"), "ELU": Function("elu", 1.0), "Tanh": Function("tanh"),
    "LeakyReLU": Function("leaky_relu", 0.01), "Softplus": Function("softplus"),
}  # fmt: skip
DEEP = 12  # voxels of the deepest feature map, in the example
FIRST = "l_conv.0.conv_pass.0.weight"


class _UNet:
    def __init__(self, keys: Keywords, state: State) -> None:
        self.keys = keys
        self.factors = keys.each("downsample_factors")
        self.dimensions = (
            len(self.factors[0]) if self.factors and isinstance(self.factors[0], list) else 0
        )
        if self.dimensions not in (2, 3):
            raise keys.wrong("downsample_factors", "must hold lists of two or three numbers")
        levels = len(self.factors) + 1
        self.down = self._kernels("kernel_size_down", levels)
        self.up = self._kernels("kernel_size_up", levels - 1)
        found = [name.removesuffix(FIRST) for name in state.tensors if name.endswith(FIRST)]
        if len(found) != 1:
            raise ModelFileError(
                f"{state.where}: has {len(found)} tensors ...{FIRST}, and one is needed"
            )
        self.prefix = found[0]
        self.valid = keys.text("padding") == "valid"
        if not self.valid and keys.text("padding") != "same":
            raise keys.wrong("padding", "must be valid or same")
        self.layers = Layers(state, self.dimensions, keys.integer("in_channels"), self._size())

    def _kernels(self, key: str, levels: int) -> list[list[list[int]]]:
        given = self.keys.values.get(key) or [[[3] * self.dimensions] * 2] * levels
        found = [[[n] * self.dimensions if type(n) is int else n for n in level] for level in given]
        sizes = [size for level in found for size in level]
        plain = all(type(n) is int and 1 <= n < 64 for size in sizes for n in size)
        if len(found) != levels or not plain or any(len(size) != self.dimensions for size in sizes):
            raise self.keys.wrong(key, f"must hold lists of sizes for {levels} levels")
        return found

    def _size(self) -> Triple:
        """Return a size of the image with which all levels are pooled without a rest."""
        first = 3 - self.dimensions
        along = [DEEP] * self.dimensions
        for level in range(len(self.factors), -1, -1):
            if self.valid:
                along = [
                    n + sum(size[axis] - 1 for size in self.down[level])
                    for axis, n in enumerate(along)
                ]
            if level:
                along = [n * f for n, f in zip(along, self.factors[level - 1], strict=True)]
        z, y, x = [1] * first + along
        return z, y, x

    def passed(
        self,
        x: Value,
        name: str,
        sizes: list[list[int]],
        width: int,
        act: str | None,
        *,
        bare: bool = False,
    ) -> Value:
        """Add convolutions, each with its function."""
        function = self.function(act)
        step = 2 if function else 1
        for number, size in enumerate(sizes):
            inner = f"{name}.conv_pass.{number * step}"
            pad: Any = 0 if self.valid else [n // 2 for n in size]
            x = self.layers.conv(x, inner, width, size, padding=0 if bare else pad, bias=True)
            x = self.layers.function(x, f"{name}.conv_pass.{number * step + 1}", function)
        return x

    def function(self, name: str | None) -> Function | None:
        """Return a function by its name in torch.nn."""
        if name is None:
            return None
        if name not in _FUNCTIONS:
            raise self.keys.wrong("activation", f"must be one of {', '.join(_FUNCTIONS)}, or null")
        return _FUNCTIONS[name]

    def width(self, level: int) -> int:
        """Return the channels of a level."""
        found: int = self.keys.integer("num_fmaps") * self.keys.integer("fmap_inc_factor") ** level
        return found

    def level(self, x: Value, level: int, heads: int) -> list[Value]:
        """Add a level and what is below it; one value for each way up."""
        act = self.keys.values["activation"]
        name = f"{self.prefix}l_conv.{level}"
        left = self.passed(x, name, self.down[level], self.width(level), act)
        if level == len(self.factors):
            return [left] * heads
        factor = self.factors[level]
        below = self.layers.pool(left, f"{self.prefix}l_down.{level}", "max_pool", factor)
        found = []
        for head, deep in enumerate(self.level(below, level + 1, heads)):
            name = f"{self.prefix}r_up.{head}.{level}.up"
            if self.keys.truth("constant_upsample"):
                grown = self.layers.resize(deep, name, factor, "nearest")
            else:
                grown = self.layers.grow(
                    deep, name, deep.channels, factor, stride=factor, bias=True
                )
            joined = self.layers.cat(
                f"{name}.cat", self.cropped(left, grown, f"{name}.crop"), grown
            )
            width = self.width(level)
            if level == 0 and "num_fmaps_out" in self.keys:
                width = self.keys.integer("num_fmaps_out")
            name = f"{self.prefix}r_conv.{head}.{level}"
            found.append(self.passed(joined, name, self.up[level], width, act))
        return found

    def cropped(self, x: Value, like: Value, name: str) -> Value:
        """Add the middle of a feature map, as large as another."""
        self.layers.at(name)
        before = [(n - m) // 2 for n, m in zip(x.size, like.size, strict=True)]
        after = [n - m - b for n, m, b in zip(x.size, like.size, before, strict=True)]
        if min(*before, *after) < 0:
            raise self.layers.sketch.wrong(f"a skip of {x.size} voxels for {like.size}")
        z, y, w = zip(before, after, strict=True)
        return windows.cropped(self.layers.sketch, name, x, (z, y, w))


def unet(keys: Keywords, state: State) -> Net:
    """Return funlib's UNet. `heads`: of convolutions of one voxel behind it, by their names, the function of each.

    The class also cuts feature maps so that tiles fit; those voxels are computed here, and are the same.
    """
    net, ways = _UNet(keys, state), keys.integer("num_heads")
    found = net.level(net.layers.input, 0, ways)
    heads = keys.inside("heads").values if keys.values["heads"] else {}
    unsaid = {name.split(".conv_pass.")[0] for name in state.tensors if ".conv_pass." in name}
    unsaid -= {
        name for name in unsaid if name.startswith((f"{net.prefix}l_conv.", f"{net.prefix}r_conv."))
    }
    for name in sorted(unsaid - set(heads)):
        raise keys.wrong(
            "heads", f"must say the function of {name[:60]}: {{{name[:60]}: Sigmoid}}, or null"
        )
    outputs = []
    for number, (name, act) in enumerate(heads.items()):
        source = found[number if ways == len(heads) else 0]
        width = state.shape(f"{name}.conv_pass.0.weight")[0]
        one = [[1] * net.dimensions]
        outputs.append(net.passed(source, name, one, width, act, bare=True))
    return finished(net.layers, outputs or found)
