"""MONAI's SegResNet: residual blocks that begin with their norm."""

from __future__ import annotations

from dataclasses import replace

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, Sizes, finished
from znnpy.interop.classes.monai_parts import function_of, norm_of, told_dropout, upsampled
from znnpy.interop.classes.state import State
from znnpy.interop.operators.value import Value

MODES = "must be deconv, nontrainable or pixelshuffle"


def preactivated(
    layers: Layers, x: Value, name: str, norm: Norm | None, function: Function | None, names: tuple[str, str, str],
    size: Sizes = 3,
) -> Value:  # fmt: skip
    """Add a residual block of norm, function, convolution, twice; `names`: of both functions, and of convolutions."""
    made = x
    for number, act in ((1, names[0]), (2, names[1])):
        made = layers.norm(made, f"{name}.norm{number}", norm)
        made = layers.function(made, f"{name}.{act}", function)
        made = layers.conv(made, f"{name}.conv{number}{names[2]}", x.channels, size)
    return layers.add(f"{name}.sum", made, x)


def segresnet(keys: Keywords, state: State) -> Net:
    """Return MONAI's SegResNet, without the variational branch."""
    dimensions = keys.dimensions()
    layers = Layers(state, dimensions, keys.integer("in_channels"))
    told_dropout(layers, keys, "dropout_prob")
    norm, act = _norm(keys), function_of(keys, "act")
    width, mode = keys.integer("init_filters"), keys.text("upsample_mode")
    down, up = keys.integers("blocks_down"), keys.integers("blocks_up")
    if len(up) >= len(down):
        raise keys.wrong(
            "blocks_up", f"must hold fewer than the {len(down)} numbers of blocks_down"
        )

    def blocks(x: Value, name: str, first: int, count: int) -> Value:
        for number in range(first, first + count):
            x = preactivated(layers, x, f"{name}.{number}", norm, act, ("act", "act", ".conv"))
        return x

    x, skips = layers.conv(layers.input, "convInit.conv", width, 3), list[Value]()
    for level, count in enumerate(down):
        if level:
            x = layers.conv(x, f"down_layers.{level}.0.conv", 2 * x.channels, 3, stride=2)
        x = blocks(x, f"down_layers.{level}", 1, count)
        skips.append(x)
    skips.pop()
    for level, count in enumerate(up):
        name = f"up_samples.{level}"
        half = x.channels // 2
        x = layers.conv(x, f"{name}.0.conv", half, 1)
        x = upsampled(
            layers, x, f"{name}.1", half, mode, wrong=lambda: keys.wrong("upsample_mode", MODES)
        )
        x = layers.add(f"{name}.sum", x, skips.pop())
        x = blocks(x, f"up_layers.{level}", 0, count)
    if keys.truth("use_conv_final"):
        x = layers.function(layers.norm(x, "conv_final.0", norm), "conv_final.1", act)
        x = layers.conv(x, "conv_final.2.conv", keys.integer("out_channels"), 1, bias=True)
    else:
        state.leave("conv_final.")
    # One function serves as that of the class itself, and of its last layers.
    state.same("act_mod.", "conv_final.1.")
    return finished(layers, x)


def _norm(keys: Keywords) -> Norm | None:
    """Return the norm of all blocks: `norm`, or that of `norm_name`, as it was called before."""
    if "norm_name" not in keys or not keys.text("norm_name"):
        return norm_of(keys, "norm")
    if keys.text("norm_name").lower() != "group":
        raise keys.wrong("norm_name", "must be group")
    return replace(Norm("group"), groups=keys.integer("num_groups"))
