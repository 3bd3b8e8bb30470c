"""MONAI's blocks: norms and functions by the names of its factories, Convolution, ResidualUnit, UpSample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Norm, Sizes
from znnpy.interop.operators import windows
from znnpy.interop.operators.value import Value

_PLAIN = {
    "RELU": "relu", "SIGMOID": "logistic", "TANH": "tanh", "GELU": "gelu", "SWISH": "silu", "MEMSWISH": "silu",
    "RELU6": "relu6",
}  # fmt: skip
_SLOPED = {"LEAKYRELU": ("leaky_relu", "negative_slope", 0.01), "ELU": ("elu", "alpha", 1.0)}


def norm_of(keys: Keywords, key: str, *, affine: bool | None = None) -> Norm | None:
    """Return the norm that an argument names; `affine`: what is usual where it is not said."""
    found = keys.named(key)
    if found is None:
        return None
    name, more = found
    kind = name.upper()
    if kind == "GROUP":
        more.only(("num_groups", "num_channels", "eps", "affine"))
        usual, groups = True, more.integer("num_groups")
    elif kind in ("BATCH", "SYNCBATCH"):
        more.only(("num_features", "eps", "affine", "momentum"))
        usual, groups = True, 1
    elif kind == "INSTANCE":
        more.only(("num_features", "eps", "affine", "momentum", "track_running_stats"))
        usual, groups = False, 1
    else:
        raise keys.wrong(key, "must be INSTANCE, BATCH or GROUP")
    return Norm(
        {"GROUP": "group", "INSTANCE": "instance"}.get(kind, "batch"),  # type: ignore[arg-type]
        more.number("eps") if "eps" in more else 1e-5,
        more.truth("affine", usual if affine is None else affine),
        more.number("momentum") if "momentum" in more else 0.1,
        groups,
        more.truth("track_running_stats"),
    )


def function_of(keys: Keywords, key: str, channels: int = 1) -> Function | None:
    """Return the function that an argument names; `channels`: slopes of a prelu whose number is not said."""
    found = keys.named(key)
    if found is None:
        return None
    name, more = found
    kind = name.upper()
    if kind == "PRELU":
        more.only(("num_parameters", "init"))
        slopes = more.integer("num_parameters") if "num_parameters" in more else channels
        return Function("prelu", slopes=slopes)
    if kind in _SLOPED:
        ours, theirs, usual = _SLOPED[kind]
        more.only((theirs, "inplace"))
        return Function(ours, more.number(theirs) if theirs in more else usual)
    if kind not in _PLAIN:
        raise keys.wrong(key, f"must be one of {', '.join((*_PLAIN, *_SLOPED, 'PRELU'))}")
    more.only(("inplace",))
    return Function(_PLAIN[kind])


@dataclass(frozen=True)
class After:
    """What follows a convolution (ADN): norm and function in this order, dropout left out."""

    norm: Norm | None
    function: Function | None
    order: str = "NDA"

    @classmethod
    def of(cls, keys: Keywords) -> After:
        """Return what the arguments act, norm and adn_ordering say."""
        order = keys.text("adn_ordering").upper() if "adn_ordering" in keys else "NDA"
        if sorted(set(order)) != sorted(order) or not set(order) <= set("NDA"):
            raise keys.wrong("adn_ordering", "must hold the letters N, D and A, each once at most")
        return cls(norm_of(keys, "norm"), function_of(keys, "act"), order)

    def added(self, layers: Layers, x: Value, name: str) -> Value:
        """Add them to a net."""
        for letter in self.order:
            if letter == "N":
                x = layers.norm(x, f"{name}.N", self.norm)
            elif letter == "A":
                x = layers.function(x, f"{name}.A", self.function)
        return x


NONE = After(None, None)


def convolution(
    layers: Layers, x: Value, name: str, channels: int, after: After, size: Sizes = 3, *, stride: Sizes = 1,
    bias: bool = True,
) -> Value:  # fmt: skip
    """Add MONAI's Convolution: a convolution that keeps the size but for its stride, then norm and function."""
    x = layers.conv(x, f"{name}.conv", channels, size, stride=stride, bias=bias)
    return after.added(layers, x, f"{name}.adn")


def growth(
    layers: Layers, x: Value, name: str, channels: int, after: After, size: Sizes, *, stride: Sizes, bias: bool = True
) -> Value:  # fmt: skip
    """Add MONAI's Convolution, transposed: grown by its stride."""
    taps, steps = layers.triple(size), layers.triple(stride)
    first = 3 - layers.dimensions
    pad = [(n - 1) // 2 for n in taps][first:]
    more = [n - 1 for n in steps][first:]
    x = layers.grow(
        x, f"{name}.conv", channels, size, stride=stride, padding=pad, more=more, bias=bias
    )
    return after.added(layers, x, f"{name}.adn")


def residual_unit(
    layers: Layers, x: Value, name: str, channels: int, after: After, size: Sizes, *, stride: Sizes = 1, units: int = 2,
    bias: bool = True, bare: bool = False,
) -> Value:  # fmt: skip
    """Add MONAI's ResidualUnit; `bare`: its last convolution has nothing behind it."""
    strided = max(layers.triple(stride)) > 1
    short, made = x, x
    for unit in range(max(1, units)):
        last = unit == max(1, units) - 1
        made = convolution(
            layers, made, f"{name}.conv.unit{unit}", channels, NONE if bare and last else after, size,
            stride=1 if unit else stride, bias=bias,
        )  # fmt: skip
    if strided or x.channels != channels:
        short = layers.conv(
            x, f"{name}.residual", channels, size if strided else 1, stride=stride, bias=bias
        )
    return layers.add(f"{name}.sum", made, short)


def upsampled(
    layers: Layers, x: Value, name: str, channels: int, mode: str, *, factor: Sizes = 2, size: Sizes | None = None,
    bias: bool = True, corners: bool = False, wrong: Callable[[], Exception],
) -> Value:  # fmt: skip
    """Add MONAI's UpSample of a mode (deconv, nontrainable, pixelshuffle); `wrong()` is raised for others."""
    first = 3 - layers.dimensions
    if mode == "deconv":
        taps, steps = layers.triple(size or factor), layers.triple(factor)
        pad = [(n - 1) // 2 if size else 0 for n in taps][first:]
        more = [s - 1 - (n - 1) % 2 if size else 0 for n, s in zip(taps, steps, strict=True)][
            first:
        ]
        return layers.grow(
            x, f"{name}.deconv", channels, list(taps[first:]), stride=factor, padding=pad,
            more=[max(n, 0) for n in more], bias=bias,
        )  # fmt: skip
    if mode == "nontrainable":
        if x.channels != channels:
            x = layers.conv(x, f"{name}.preconv", channels, 1, bias=bias)
        return layers.resize(x, name, factor, "corners" if corners else "linear")
    if mode != "pixelshuffle":
        raise wrong()
    each = layers.triple(factor)[2]
    steps = layers.triple(each)
    many = channels * each**layers.dimensions
    x = layers.conv(x, f"{name}.pixelshuffle.conv_block", many, 3, bias=bias)
    layers.at(name)
    x = windows.shuffled(layers.sketch, f"{name}.pixelshuffle", x, steps)
    before = windows.both_sides((steps[0] - 1, steps[1] - 1, steps[2] - 1), (0, 0, 0))
    x = windows.padded(layers.sketch, f"{name}.pixelshuffle.pad", x, before, "zeros")
    return layers.pool(x, f"{name}.pixelshuffle.pool", "avg_pool", each, 1)


def told_dropout(layers: Layers, keys: Keywords, *names: str) -> None:
    """Note that dropout is left out, where there is some."""
    for name in names:
        value = keys.values.get(name)
        shares = value if isinstance(value, list) else [value]
        if any(share not in (None, 0, "") for share in shares):
            layers.at(name)
            layers.sketch.note("dropout does nothing in prediction, and is left out")
