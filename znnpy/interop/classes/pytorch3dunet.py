"""pytorch-3dunet's networks, which PanSeg has, too: UNet3D, ResidualUNet3D, and that with squeeze and excitation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, finished
from znnpy.interop.classes.state import State
from znnpy.interop.operators import arithmetic, windows
from znnpy.interop.operators.value import Value
from znnpy.layers.types import Interpolation

_FUNCTIONS = {"r": Function("relu"), "l": Function("leaky_relu", 0.01), "e": Function("elu", 1.0)}
_RESIZED: dict[str, Interpolation] = {
    "nearest": "nearest", "bilinear": "linear", "trilinear": "linear",
}  # fmt: skip
DEEPEST = 12  # levels


@dataclass(frozen=True)
class _Blocks:
    """The net's blocks; `kind` double, residual or excited; `padding` of all convolutions of three taps."""

    layers: Layers
    kind: str
    order: str
    groups: int
    padding: int
    upscale: int

    def single(self, x: Value, name: str, width: int, order: str, padding: int) -> Value:
        """Add a convolution, its norm and its function in an order."""
        for letter in order:
            if letter == "c":
                bias = not set("gb") & set(order)
                x = self.layers.conv(x, f"{name}.conv", width, 3, padding=padding, bias=bias)
            elif letter == "g":
                groups = 1 if x.channels < self.groups else self.groups
                x = self.layers.norm(x, f"{name}.groupnorm", Norm("group", groups=groups))
            elif letter == "b":
                x = self.layers.norm(x, f"{name}.batchnorm", Norm("batch"))
            elif letter in _FUNCTIONS:
                x = self.layers.function(x, f"{name}.{letter}", _FUNCTIONS[letter])
        return x

    def block(self, x: Value, name: str, width: int, down: bool) -> Value:
        """Add a block of a level."""
        if self.kind == "double":
            first = width
            if down:
                first = max(width if self.upscale == 1 else width // 2, x.channels)
            x = self.single(x, f"{name}.SingleConv1", first, self.order, self.padding)
            return self.single(x, f"{name}.SingleConv2", width, self.order, self.padding)
        layers = self.layers
        if x.channels != width:
            x = layers.conv(x, f"{name}.conv1", width, 1, bias=True)
        made = self.single(x, f"{name}.conv2", width, self.order, 1)
        bare = "".join(letter for letter in self.order if letter not in _FUNCTIONS)
        made = layers.add(f"{name}.sum", self.single(made, f"{name}.conv3", width, bare, 1), x)
        last = next((letter for letter in "le" if letter in self.order), "r")
        function = Function("leaky_relu", 0.1) if last == "l" else _FUNCTIONS[last]
        made = layers.function(made, f"{name}.non_linearity", function)
        return self.excited(made, f"{name}.se_module") if self.kind == "excited" else made

    def excited(self, x: Value, name: str) -> Value:
        """Add the larger of squeeze and excitation of channels, and of voxels."""
        layers, sketch = self.layers, self.layers.sketch
        layers.at(name)
        mean = arithmetic.averaged(sketch, f"{name}.cSE.avg_pool", x)
        few = layers.linear(mean.seen_as((1, x.channels)), f"{name}.cSE.fc1", x.channels)
        few = layers.function(few, f"{name}.cSE.relu", Function("relu"))
        gate = layers.linear(few, f"{name}.cSE.fc2", x.channels)
        gate = layers.function(gate, f"{name}.cSE.sigmoid", Function("logistic"))
        gate = gate.seen_as((1, x.channels, *(1,) * layers.dimensions))
        layers.at(name)
        one = arithmetic.multiplied(sketch, f"{name}.cSE.product", x, gate)
        where = layers.conv(x, f"{name}.sSE.conv", 1, 1, bias=True)
        where = layers.function(where, f"{name}.sSE.sigmoid", Function("logistic"))
        layers.at(name)
        other = arithmetic.multiplied(sketch, f"{name}.sSE.product", x, where)
        return arithmetic.larger(sketch, f"{name}.max", one, other)

    def grown(self, x: Value, name: str, width: int) -> Value:
        """Add twice the size by a transposed convolution of three taps, as this version or older ones do."""
        older = f"{name}.upsample"
        if f"{older}.weight" in self.layers.state:
            bias = f"{older}.bias" in self.layers.state
            return self.layers.grow(x, older, width, 3, stride=2, padding=1, more=1, bias=bias)
        x = self.layers.grow(x, f"{older}.conv_transposed", width, 3, stride=2, padding=1)
        # 2 n - 1 voxels become 2 n by the nearest: the first one is there twice.
        z, y, w = self.layers.triple(1, 0)
        before = windows.both_sides((z, y, w), (0, 0, 0))
        self.layers.at(name)
        return windows.padded(self.layers.sketch, f"{name}.resize", x, before, "replicate")


def _net(keys: Keywords, state: State, kind: str, dimensions: int) -> Net:
    widths = _widths(keys)
    order = keys.text("layer_order")
    if order.count("c") != 1 or not set(order) <= set("cgbrledD"):
        raise keys.wrong("layer_order", "must hold one c, and letters of g, b, r, l, e, d and D")
    layers = Layers(state, dimensions, keys.integer("in_channels"))
    padding = keys.values["conv_padding"]
    if padding != 1:
        raise keys.wrong("conv_padding", "must be 1: sizes of other levels would not fit")
    blocks = _Blocks(
        layers, kind, order, keys.integer("num_groups") if "g" in order else 1, 1, keys.integer("conv_upscale")
    )  # fmt: skip
    x, skips = layers.input, list[Value]()
    for level, width in enumerate(widths):
        if level:
            x = layers.pool(x, f"encoders.{level}.pooling", "max_pool", 2)
        x = blocks.block(x, f"encoders.{level}.basic_module", width, down=True)
        skips.append(x)
    skips.pop()
    mode, summed = _upsampling(keys, kind)
    for number, width in enumerate(widths[-2::-1]):
        name = f"decoders.{number}"
        if mode == "deconv":
            x = blocks.grown(x, f"{name}.upsampling", width)
        else:
            x = layers.resize(x, f"{name}.upsampling", 2, _RESIZED[mode])
        skip = skips.pop()
        x = layers.add(f"{name}.sum", skip, x) if summed else layers.cat(f"{name}.cat", skip, x)
        x = blocks.block(x, f"{name}.basic_module", width, down=False)
    x = layers.conv(x, "final_conv", keys.integer("out_channels"), 1, bias=True)
    if keys.truth("is_segmentation"):
        name = "logistic" if keys.truth("final_sigmoid") else "softmax"
        x = layers.function(x, "final_activation", Function(name))
    return finished(layers, x)


def _widths(keys: Keywords) -> list[int]:
    given: Any = keys.sizes("f_maps")
    levels = keys.integer("num_levels")
    if levels > DEEPEST:
        raise keys.wrong("num_levels", f"must be at most {DEEPEST}")
    widths = given if isinstance(given, list) else [given << level for level in range(levels)]
    if len(widths) < 2:
        raise keys.wrong("f_maps", "must hold at least two numbers")
    return list(widths)


def _upsampling(keys: Keywords, kind: str) -> tuple[str, bool]:
    """Return how the net grows, and whether levels are summed instead of stacked."""
    mode = keys.text("upsample")
    if mode == "default":
        return ("nearest", False) if kind == "double" else ("deconv", True)
    if mode != "deconv" and mode not in _RESIZED:
        raise keys.wrong("upsample", f"must be default, deconv, {', '.join(_RESIZED)}")
    return mode, False


def unet3d(keys: Keywords, state: State) -> Net:
    """Return UNet3D."""
    return _net(keys, state, "double", 3)


def unet2d(keys: Keywords, state: State) -> Net:
    """Return UNet2D."""
    return _net(keys, state, "double", 2)


def residual_unet3d(keys: Keywords, state: State) -> Net:
    """Return ResidualUNet3D."""
    return _net(keys, state, "residual", 3)


def residual_unet2d(keys: Keywords, state: State) -> Net:
    """Return ResidualUNet2D."""
    return _net(keys, state, "residual", 2)


def excited_unet3d(keys: Keywords, state: State) -> Net:
    """Return ResidualUNetSE3D."""
    return _net(keys, state, "excited", 3)
