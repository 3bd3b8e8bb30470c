"""MONAI's BasicUNet: two convolutions at each of five levels."""

from __future__ import annotations

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Layers, Net, finished
from znnpy.interop.classes.monai_parts import After, convolution, told_dropout, upsampled
from znnpy.interop.classes.state import State
from znnpy.interop.operators.value import Value

LEVELS = 5


def basic_unet(keys: Keywords, state: State) -> Net:
    """Return MONAI's BasicUNet, for images whose sizes are multiples of 16."""
    widths = keys.repeated("features", LEVELS + 1)
    older = keys.values.get("dimensions") is not None
    dimensions = keys.dimensions("dimensions" if older else "spatial_dims")
    layers = Layers(state, dimensions, keys.integer("in_channels"))
    told_dropout(layers, keys, "dropout")
    after, bias, mode = After.of(keys), keys.truth("bias"), keys.text("upsample")

    def twice(x: Value, name: str, width: int) -> Value:
        for number in range(2):
            x = convolution(layers, x, f"{name}.conv_{number}", width, after, bias=bias)
        return x

    skips = [twice(layers.input, "conv_0", widths[0])]
    for level in range(1, LEVELS):
        x = layers.pool(skips[-1], f"down_{level}.max_pooling", "max_pool", 2)
        skips.append(twice(x, f"down_{level}.convs", widths[level]))
    x = skips.pop()
    for level in range(LEVELS - 1, 0, -1):
        name = f"upcat_{level}"
        width = x.channels // 2 if level > 1 else x.channels
        x = upsampled(
            layers, x, f"{name}.upsample", width, mode, corners=True,
            wrong=lambda: keys.wrong("upsample", "must be deconv, nontrainable or pixelshuffle"),
        )  # fmt: skip
        x = layers.cat(f"{name}.cat", skips.pop(), x)
        x = twice(x, f"{name}.convs", widths[level - 1] if level > 1 else widths[LEVELS])
    return finished(
        layers, layers.conv(x, "final_conv", keys.integer("out_channels"), 1, bias=True)
    )
