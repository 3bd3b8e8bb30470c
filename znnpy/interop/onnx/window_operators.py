"""ONNX's convolutions, pooling, resize, padding and cropping."""

from __future__ import annotations

from typing import Literal

from znnpy.interop.onnx.file import Operator
from znnpy.interop.onnx.reading import Reading, Translation, refuse_extra
from znnpy.interop.onnx.resize import resize
from znnpy.interop.operators import arithmetic, windows
from znnpy.interop.operators.value import Value
from znnpy.interop.operators.windows import both_sides
from znnpy.layers.types import BARE, BorderName, Sides
from znnpy.network.types import Triple

MODES: dict[str, BorderName] = {"constant": "zeros", "edge": "replicate", "reflect": "reflect"}


def _pads(
    reading: Reading, op: Operator, x: Value, size: Triple, stride: Triple, dilation: Triple
) -> Sides:
    """Return the padding of a window: as written, or what keeps the size (divided by the stride)."""
    auto = op.attribute("auto_pad", "NOTSET")
    given = op.attribute("pads", [])
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for length, window, step, apart in zip(x.size, size, stride, dilation, strict=True):
            reach = (window - 1) * apart + 1
            total = max((-(-length // step) - 1) * step + reach - length, 0)
            less, more = total // 2, total - total // 2
            pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
        return pairs[0], pairs[1], pairs[2]
    if auto not in ("NOTSET", "VALID"):
        raise op.wrong(f"attribute auto_pad: {auto[:40]} is not supported")
    if not given or auto == "VALID":
        return BARE
    return _halves(reading, op, x, given, "attribute pads")


def _halves(reading: Reading, op: Operator, x: Value, given: list[int], what: str) -> Sides:
    """Return pairs from numbers before along all axes, then after."""
    half = len(given) // 2
    if len(given) % 2:
        raise op.wrong(f"{what} has {len(given)} numbers")
    before = windows.triple(reading.sketch, given[:half], x.dimensions, 0, what)
    after = windows.triple(reading.sketch, given[half:], x.dimensions, 0, what)
    if min(*before, *after) < -(1 << 20) or max(*before, *after) > 1 << 20:
        raise op.wrong(f"{what}: {given} is absurd")
    return both_sides(before, after)


def _window(reading: Reading, op: Operator, x: Value, size: Triple) -> tuple[Triple, Triple, Sides]:
    """Return stride, dilation and padding."""
    stride = reading.triple(op, x, "strides")
    dilation = reading.triple(op, x, "dilations")
    if min(*stride, *dilation) < 1 or max(*stride, *dilation, *size) > 1 << 16:
        raise op.wrong(f"strides {stride} and dilations {dilation} must be positive")
    return stride, dilation, _pads(reading, op, x, size, stride, dilation)


def _filter_size(reading: Reading, op: Operator, x: Value, shape: tuple[int, ...]) -> Triple:
    size = windows.triple(reading.sketch, shape[2:], x.dimensions, 1, "the filters' shape")
    said = op.attribute("kernel_shape", [])
    if said and list(said) != list(shape[2:]):
        raise op.wrong(f"attribute kernel_shape: {said} is not that of filters {shape}")
    return size


def conv(reading: Reading, op: Operator, name: str) -> Value:
    """Conv."""
    x, weight = reading.value(op), reading.filters(op, "W")
    size = _filter_size(reading, op, x, weight.shape)
    stride, dilation, padding = _window(reading, op, x, size)
    if min(min(pair) for pair in padding) < 0:
        raise op.wrong(f"attribute pads: {padding} is negative")
    x, padding = _within(reading, name, x, padding, size, dilation)
    return windows.convolved(
        reading.sketch, name, x, weight, reading.maybe(op, 2, "B"), stride=stride, padding=padding,
        dilation=dilation, groups=op.attribute("group", 1), edge=reading.named(op),
    )  # fmt: skip


def _within(
    reading: Reading, name: str, x: Value, padding: Sides, size: Triple, dilation: Triple
) -> tuple[Value, Sides]:
    """Return a convolution's source and padding: padding beyond the filter's reach is made before it."""
    reach = [(n - 1) * step for n, step in zip(size, dilation, strict=True)]
    if all(max(pair) <= most for pair, most in zip(padding, reach, strict=True)):
        return x, padding
    return windows.padded(reading.sketch, f"{name}.padded", x, padding, "zeros"), BARE


def conv_transpose(reading: Reading, op: Operator, name: str) -> Value:
    """ConvTranspose."""
    x, weight = reading.value(op), reading.filters(op, "W")
    size = _filter_size(reading, op, x, weight.shape)
    if op.attribute("output_shape", []):
        raise op.wrong("attribute output_shape is not supported: pads are")
    stride, dilation = reading.triple(op, x, "strides"), reading.triple(op, x, "dilations")
    more = reading.triple(op, x, "output_padding", 0)
    if max(dilation) > 1:
        raise op.wrong(f"attribute dilations: {dilation} is not supported")
    if min(stride) < 1 or max(*stride, *size) > 1 << 16 or min(more) < 0:
        raise op.wrong(f"strides {stride} must be positive")
    auto, given = op.attribute("auto_pad", "NOTSET"), op.attribute("pads", [])
    padding = BARE
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [n - step for n, step in zip(size, stride, strict=True)]
        if min(total) < 0:
            raise op.wrong(
                f"attribute auto_pad with filters {size} of strides {stride} is not supported"
            )
        pairs = [(n // 2, n - n // 2)[:: 1 if auto == "SAME_UPPER" else -1] for n in total]
        padding = (*pairs[0],), (*pairs[1],), (*pairs[2],)  # type: ignore[assignment]
    elif auto not in ("NOTSET", "VALID"):
        raise op.wrong(f"attribute auto_pad: {auto[:40]} is not supported")
    elif given and auto == "NOTSET":
        padding = _halves(reading, op, x, given, "attribute pads")
    if min(min(pair) for pair in padding) < 0:
        raise op.wrong(f"attribute pads: {padding} is negative")
    return windows.transposed(
        reading.sketch, name, x, weight, reading.maybe(op, 2, "B"), stride=stride, padding=padding,
        more=more, groups=op.attribute("group", 1), edge=reading.named(op),
    )  # fmt: skip


def _pool(kind: Literal["max_pool", "avg_pool"]) -> Translation:
    def translated(reading: Reading, op: Operator, name: str) -> Value:
        x = reading.value(op)
        refuse_extra(reading, op)
        size = reading.triple(op, x, "kernel_shape")
        stride, dilation, padding = _window(reading, op, x, size)
        if max(dilation) > 1:
            raise op.wrong(f"attribute dilations: {dilation} is not supported")
        counted = bool(op.attribute("count_include_pad", 0)) if kind == "avg_pool" else True
        if kind == "max_pool" and op.attribute("storage_order", 0):
            raise op.wrong("attribute storage_order is not supported")
        up = bool(op.attribute("ceil_mode", 0))
        return windows.pooled(
            reading.sketch, name, x, kind, size, stride, padding, up=up, counted=counted
        )

    return translated


def pad(reading: Reading, op: Operator, name: str) -> Value:
    """Pad."""
    x, mode = reading.value(op), op.attribute("mode", "constant")
    if mode not in MODES:
        raise op.wrong(f"attribute mode: {mode[:40]} is not supported")
    given, rank = reading.numbers(op, 1, "pads"), len(x.seen)
    if reading.given(op, 2) and reading.array(op, 2, "constant_value").any():
        raise op.wrong("constant_value other than 0 is not supported")
    axes = reading.numbers(op, 3, "axes") if reading.given(op, 3) else list(range(rank))
    if len(given) != 2 * len(axes) or not all(-rank <= axis < rank for axis in axes):
        raise op.wrong(f"pads has {len(given)} numbers for {len(axes)} axes")
    whole = [0] * (2 * rank)
    for number, axis in enumerate(axes):
        whole[axis % rank], whole[axis % rank + rank] = given[number], given[number + len(axes)]
    before, after = whole[1], whole[rank + 1]
    if whole[0] or whole[rank] or ((before or after) and mode != "constant"):
        raise op.wrong("padding of samples, or of channels but by 0, is not supported")
    if before or after:
        if max(before, after) > 1 << 16:
            raise op.wrong(f"pads {given[:10]} are absurd")
        kept = [*[None] * max(before, 0), *range(x.channels), *[None] * max(after, 0)]
        kept = kept[max(-before, 0) : max(len(kept) - max(-after, 0), 0)]
        if not kept:
            raise op.wrong(f"pads {given[:10]} leave no channels")
        x = arithmetic.chosen(reading.sketch, f"{name}.channels", x, kept)
    sides = _halves(reading, op, x, whole[2:rank] + whole[rank + 2 :], "pads")
    return windows.padded(reading.sketch, name, x, sides, MODES[mode])


def crop(reading: Reading, op: Operator, name: str) -> Value:
    """Slice along space."""
    x = reading.value(op)
    rank = len(x.seen)
    starts, ends = reading.numbers(op, 1, "starts"), reading.numbers(op, 2, "ends")
    axes = reading.numbers(op, 3, "axes") if reading.given(op, 3) else list(range(len(starts)))
    steps = reading.numbers(op, 4, "steps") if reading.given(op, 4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or not all(
        -rank <= a < rank for a in axes
    ):
        raise op.wrong("starts, ends, axes and steps must be of one length")
    cuts = [(0, 0)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        length = x.seen[axis]
        low, high, by = slice(start, end, step or 1).indices(length)
        if by != 1 or high <= low:
            raise op.wrong(f"steps {steps} are not supported, nor slices without voxels")
        cuts[axis % rank] = (low, length - high)
    if not any(map(any, cuts)):
        return x
    if any(cuts[0]):
        raise op.wrong("a slice of samples is not supported")
    if any(cuts[1]):
        kept = range(cuts[1][0], x.channels - cuts[1][1])
        x = arithmetic.chosen(reading.sketch, f"{name}.channels", x, [*kept])
    z, y, w = [(0, 0)] * (5 - rank) + cuts[2:]
    return windows.cropped(reading.sketch, name, x, (z, y, w))


WINDOW_OPERATORS: dict[str, Translation] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "Pad": pad,
    "Slice": crop,
    "Resize": resize,
}
