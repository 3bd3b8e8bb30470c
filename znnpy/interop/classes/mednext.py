"""MedNeXt (version 1): depthwise convolutions, expansion and compression by filters of one voxel, levels summed."""

from __future__ import annotations

from typing import Any

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, finished
from znnpy.interop.classes.state import State
from znnpy.interop.operators import windows
from znnpy.interop.operators.value import Value

LEVELS = 5
BLOCKS = 2 * LEVELS - 1


class _Blocks:
    def __init__(self, keys: Keywords, layers: Layers) -> None:
        self.layers = layers
        self.expansion = keys.repeated("exp_r", BLOCKS)
        self.counts = keys.repeated("block_counts", BLOCKS)
        self.residual, self.around = keys.truth("do_res"), keys.truth("do_res_up_down")
        taps = "kernel_size" if "kernel_size" in keys else ""
        self.sizes = [keys.integer(taps or key) for key in ("enc_kernel_size", "dec_kernel_size")]
        self.layered, self.responding = keys.text("norm_type") == "layer", keys.truth("grn")
        if any(size % 2 == 0 for size in self.sizes):
            raise keys.wrong("kernel_size", "must be odd")

    def inner(self, x: Value, name: str, width: int, place: int) -> Value:
        """Add norm, expansion, function and compression, before which responses may be normalised."""
        channels, layers = x.channels, self.layers
        norm = Norm("channel") if self.layered else Norm("group", groups=channels)
        x = layers.norm(x, f"{name}.norm", norm)
        x = layers.conv(x, f"{name}.conv2", self.expansion[place] * channels, 1, bias=True)
        x = layers.function(x, f"{name}.act", Function("gelu"))
        if self.responding:
            x = layers.response(x, f"{name}.grn", 1e-6)
        return layers.conv(x, f"{name}.conv3", width, 1, bias=True)

    def stage(self, x: Value, name: str, place: int) -> Value:
        """Add the blocks of a level."""
        for number in range(self.counts[place]):
            inner = f"{name}.{number}"
            made = self.layers.conv(
                x, f"{inner}.conv1", x.channels, self._taps(place), groups=x.channels, bias=True
            )
            made = self.inner(made, inner, x.channels, place)
            x = self.layers.add(f"{inner}.sum", x, made) if self.residual else made
        return x

    def down(self, x: Value, name: str, place: int) -> Value:
        """Add half the size and twice the channels."""
        width, layers = 2 * x.channels, self.layers
        made = layers.conv(
            x,
            f"{name}.conv1",
            x.channels,
            self.sizes[0],
            stride=2,
            groups=x.channels,
            bias=True,
        )
        made = self.inner(made, name, width, place)
        if not self.around:
            return made
        other = layers.conv(x, f"{name}.res_conv", width, 1, stride=2, bias=True)
        return layers.add(f"{name}.sum", made, other)

    def up(self, x: Value, name: str, place: int) -> Value:
        """Add twice the size and half the channels; a plane of zeros comes before."""
        width, taps, layers = x.channels // 2, self._taps(place), self.layers
        made = layers.grow(
            x, f"{name}.conv1", x.channels, taps, stride=2, padding=taps // 2, groups=x.channels, bias=True
        )  # fmt: skip
        made = self._padded(self.inner(made, name, width, place), f"{name}.pad")
        if not self.around:
            return made
        other = layers.grow(x, f"{name}.res_conv", width, 1, stride=2, bias=True)
        return layers.add(f"{name}.sum", made, self._padded(other, f"{name}.res_pad"))

    def _padded(self, x: Value, name: str) -> Value:
        self.layers.at(name)
        z, y, w = self.layers.triple(1, 0)
        before = windows.both_sides((z, y, w), (0, 0, 0))
        return windows.padded(self.layers.sketch, name, x, before, "zeros")

    def _taps(self, place: int) -> int:
        return self.sizes[place >= LEVELS - 1]


def mednext(keys: Keywords, state: State) -> Net:
    """Return MedNeXt, with an output at each level if it is supervised deeply."""
    dimensions: Any = {"2d": 2, "3d": 3}.get(keys.text("dim"))
    if dimensions is None:
        raise keys.wrong("dim", "must be 2d or 3d")
    # The class's layer norm has parameters of four axes, which beside maps of a flat net give another shape.
    known = ("group", "layer") if dimensions == 3 else ("group",)
    if keys.text("norm_type") not in known:
        raise keys.wrong(
            "norm_type", f"must be {' or '.join(known)} where dim is {keys.text('dim')}"
        )
    layers = Layers(state, dimensions, keys.integer("in_channels"))
    blocks, classes = _Blocks(keys, layers), keys.integer("n_classes")
    state.leave("dummy_tensor")
    x, skips = layers.conv(layers.input, "stem", keys.integer("n_channels"), 1, bias=True), []
    for level in range(LEVELS - 1):
        x = blocks.stage(x, f"enc_block_{level}", level)
        skips.append(x)
        # Filters are as large as those of the level above, the expansion is that of the level below.
        x = blocks.down(x, f"down_{level}", level + 1)
    x = blocks.stage(x, "bottleneck", LEVELS - 1)
    made = [x]
    for level in range(LEVELS - 2, -1, -1):
        place = BLOCKS - 1 - level
        x = blocks.up(x, f"up_{level}", place)
        x = layers.add(f"dec_{level}.sum", skips.pop(), x)
        x = blocks.stage(x, f"dec_block_{level}", place)
        made.append(x)
    heads = made[::-1] if keys.truth("deep_supervision") else made[-1:]
    return finished(
        layers,
        [
            layers.grow(x, f"out_{level}.conv_out", classes, 1, stride=1, bias=True)
            for level, x in enumerate(heads)
        ],
    )
