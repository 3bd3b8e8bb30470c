"""PyTorch's convolutions, pooling, resize, padding and cropping."""

from __future__ import annotations

from typing import Literal

from znnpy.interop.operators import arithmetic, resizing, windows
from znnpy.interop.operators.sketch import Floats
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import both_sides
from znnpy.interop.pytorch.calls import Call, Translation
from znnpy.layers.types import BARE, BorderName, Interpolation, Sides

MODES: dict[str, BorderName] = {"constant": "zeros", "replicate": "replicate", "reflect": "reflect"}


def convolution(call: Call, name: str) -> Value:
    """conv2d and conv3d."""
    x, (weight, edge) = call.value(), call.filters()
    stride, dilation = call.triple("stride", x), call.triple("dilation", x)
    if isinstance(call["padding"], str):
        padding = _named_padding(call, weight, dilation)
    else:
        sides = call.triple("padding", x, 0)
        padding = both_sides(sides, sides)
    size = (1,) * (5 - weight.ndim) + weight.shape[2:]
    reach = [(n - 1) * step for n, step in zip(size, dilation, strict=True)]
    if any(max(pair) > most for pair, most in zip(padding, reach, strict=True)):
        x, padding = (
            windows.padded(call.sketch, f"{name}.padded", x, padding, "zeros"),
            BARE,
        )
    return windows.convolved(
        call.sketch, name, x, weight, call.floats("bias"), stride=stride, padding=padding,
        dilation=dilation, groups=call["groups"], edge=edge,
    )  # fmt: skip


def _named_padding(call: Call, weight: Floats, dilation: tuple[int, ...]) -> Sides:
    if call["padding"] == "valid":
        return BARE
    if call["padding"] != "same":
        raise call.wrong(f"argument padding: {str(call['padding'])[:20]} is not supported")
    size = (1,) * (5 - weight.ndim) + weight.shape[2:]
    total = [(n - 1) * step for n, step in zip(size, dilation, strict=True)]
    z, y, x = ((n // 2, n - n // 2) for n in total)
    return z, y, x


def transposed(call: Call, name: str) -> Value:
    """conv_transpose2d and conv_transpose3d."""
    x, (weight, edge) = call.value(), call.filters()
    if max(call.triple("dilation", x)) > 1:
        raise call.wrong(f"argument dilation: {call['dilation']} is not supported")
    sides = call.triple("padding", x, 0)
    return windows.transposed(
        call.sketch, name, x, weight, call.floats("bias"), stride=call.triple("stride", x),
        padding=both_sides(sides, sides), more=call.triple("output_padding", x, 0),
        groups=call["groups"], edge=edge,
    )  # fmt: skip


def _flattened(call: Call) -> bool:
    """Return whether only reshapes read what a call makes, as they do before linear layers."""
    names = [getattr(user.target, "__name__", "").split(".")[0] for user in call.node.users]
    return all(name in ("view", "reshape", "flatten", "squeeze") for name in names)


def _pool(kind: Literal["max_pool", "avg_pool"]) -> Translation:
    def translated(call: Call, name: str) -> Value:
        x = call.value()
        size = call.triple("kernel_size", x)
        stride = call.triple("stride", x) if call["stride"] else size
        sides = call.triple("padding", x, 0)
        if max(call.triple("dilation", x)) > 1 if "dilation" in call.arguments else False:
            raise call.wrong(f"argument dilation: {call['dilation']} is not supported")
        if call.arguments.get("divisor_override") is not None:
            raise call.wrong("argument divisor_override is not supported")
        if kind == "avg_pool" and size == x.size and not any(sides) and _flattened(call):
            return arithmetic.averaged(call.sketch, name, x)
        return windows.pooled(
            call.sketch, name, x, kind, size, stride, both_sides(sides, sides),
            up=call["ceil_mode"], counted=call.arguments.get("count_include_pad", True),
        )  # fmt: skip

    return translated


def _resize(mode: Interpolation) -> Translation:
    def translated(call: Call, name: str) -> Value:
        x = call.value()
        how: Interpolation = "corners" if call.arguments.get("align_corners") else mode
        size = call.size(x)
        scales = [call.arguments.get(f"scales_{axis}") for axis in "dhw"]
        given = call.arguments.get("scale_factors") or scales
        for old, new, scale in zip(x.size[::-1], size[::-1], given[::-1], strict=False):
            if scale is not None and how != "corners" and abs(old * scale - new) > 1e-3:
                raise call.wrong(
                    f"argument scale_factors: {scale} times {old} voxels are no whole number of voxels; take an "
                    "example of other sizes, or say recompute_scale_factor=True in the module"
                )
        return resizing.grown(call.sketch, name, x, size, how)

    return translated


def pad(call: Call, name: str) -> Value:
    """pad along space; of channels, by 0."""
    x, mode, given = call.value(), call.arguments.get("mode", "constant"), list(call["pad"])
    if mode not in MODES or call.arguments.get("value"):
        raise call.wrong(
            f"argument mode: {mode} with value {call.arguments.get('value')} is not supported"
        )
    pairs = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]  # the last axis first
    pairs += [(0, 0)] * (len(x.seen) - len(pairs))
    samples, channels = pairs[-1], pairs[-2]
    if any(samples) or (any(channels) and (mode != "constant" or min(channels) < 0)):
        raise call.wrong("padding of samples, or of channels but by 0, is not supported")
    if any(channels):
        before, after = channels
        kept = [*[None] * before, *range(x.channels), *[None] * after]
        x = arithmetic.chosen(call.sketch, f"{name}.channels", x, kept)
    space = [*pairs[:-2], *[(0, 0)] * (5 - len(pairs))][::-1]
    return windows.padded(call.sketch, name, x, (space[0], space[1], space[2]), MODES[mode])


def crop(call: Call, name: str) -> Value:
    """slice."""
    x, axis = call.value(), call["dim"] % len(call.value().seen)
    low, high, step = slice(call["start"], call["end"], call["step"]).indices(x.seen[axis])
    if step != 1 or high <= low:
        raise call.wrong(f"argument step: {step} is not supported, nor slices without voxels")
    cut = (low, x.seen[axis] - high)
    if not any(cut):
        return x
    if axis == 0:
        raise call.wrong("a slice of samples is not supported")
    if axis == 1:
        return arithmetic.chosen(call.sketch, name, x, [*range(low, high)])
    sides = [(0, 0)] * 3
    sides[axis - len(x.seen)] = cut
    return windows.cropped(call.sketch, name, x, (sides[0], sides[1], sides[2]))


WINDOW_OPERATORS: dict[str, Translation] = {
    **dict.fromkeys(("conv2d", "conv3d"), convolution),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose3d"), transposed),
    **dict.fromkeys(("max_pool2d", "max_pool3d"), _pool("max_pool")),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _pool("avg_pool")),
    **dict.fromkeys(("upsample_nearest2d", "upsample_nearest3d"), _resize("nearest")),
    **dict.fromkeys(("_upsample_nearest_exact2d", "_upsample_nearest_exact3d"), _resize("nearest_exact")),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_trilinear3d"), _resize("linear")),
    **dict.fromkeys(("pad", "constant_pad_nd"), pad),
    "slice": crop,
}  # fmt: skip
