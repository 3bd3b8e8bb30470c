"""Operations as layers of torch.nn and as expressions of a forward method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from znnpy.interop.export.computation import Operation

_PADS = {"zeros": "ConstantPad3d", "replicate": "ReplicationPad3d", "reflect": "ReflectionPad3d"}
_FUNCTIONS: Mapping[str, Callable[[Operation], str]] = {
    "relu": lambda it: "nn.ReLU()",
    "leaky_relu": lambda it: f"nn.LeakyReLU({it.attributes['slope']!r})",
    "prelu": lambda it: f"nn.PReLU({1 if it.attributes['tied'] else it.channels[0]})",
    "elu": lambda it: f"nn.ELU({it.attributes['slope']!r})",
    "tanh": lambda it: _tanh(it.attributes),
    "logistic": lambda it: "nn.Sigmoid()",
    "forward_logistic": lambda it: "nn.Sigmoid()",
    "softmax": lambda it: "nn.Softmax(dim=1)",
    "softplus": lambda it: "nn.Softplus()",
    "soft_sign": lambda it: "nn.Softsign()",
    "silu": lambda it: "nn.SiLU()",
    "hard_swish": lambda it: "nn.Hardswish()",
    "gelu": lambda it: "nn.GELU()",
    "gelu_tanh": lambda it: 'nn.GELU(approximate="tanh")',
}


def layer(it: Operation) -> str | None:
    """Return the layer of an operation, an expression; None for those that need none."""
    make = _LAYERS.get(it.kind)
    return None if make is None else make(it)


def applied(it: Operation, values: Sequence[str]) -> str:
    """Return the expression of an operation on values."""
    if it.kind in _LAYERS:
        return f"self.{it.name}({values[0]})"
    return _PLAIN[it.kind](it, values)


def _called(name: str, *first: object, **more: object) -> str:
    """Return a call; keywords that are None are left out."""
    words = [repr(value) for value in first]
    words += [f"{key}={value!r}" for key, value in more.items() if value is not None]
    return f"{name}({', '.join(words)})"


def _unless(value: Any, usual: Any) -> Any:
    """Return what an argument has to say: nothing where it is the usual value."""
    return None if value == usual else value


def _conv(it: Operation) -> str:
    said = it.attributes
    transposed = it.kind == "conv_transpose"
    name = "StandardizedConv3d" if said.get("standardized") else "nn.Conv3d"
    return _called(
        "nn.ConvTranspose3d" if transposed else name,
        *it.channels,
        said["size"],
        stride=_unless(said["stride"], (1, 1, 1)),
        padding=_unless(said["padding"], (0, 0, 0)),
        output_padding=_unless(said.get("output_padding", (0, 0, 0)), (0, 0, 0)),
        dilation=_unless(said["dilation"], (1, 1, 1)),
        groups=_unless(said["groups"], 1),
        bias=_unless("bias" in it.tensors, True),
    )


def _pad(it: Operation) -> str:
    (z, y, x), border = it.attributes["sides"], it.attributes["border"]
    around = (*x, *y, *z)
    if border != "zeros":
        return _called(f"nn.{_PADS[border]}", around)
    fill = it.attributes["fill"]
    number = repr(float(fill)) if abs(fill) < float("inf") else f'float("{fill}")'
    return f"nn.{_PADS[border]}({around!r}, {number})"


def _max_pool(it: Operation) -> str:
    said = it.attributes
    return _called(
        "nn.MaxPool3d",
        said["size"],
        said["stride"],
        padding=_unless(said["padding"], (0, 0, 0)),
        dilation=_unless(said["dilation"], (1, 1, 1)),
    )


def _avg_pool(it: Operation) -> str:
    said = it.attributes
    padding, even = said["sides"], all(a == b for a, b in said["sides"])
    if not even or said["dilation"] != (1, 1, 1):
        numbers = (said["size"], said["stride"], said["dilation"], padding)
        return _called("AveragePool3d", *numbers, said["count_padding"])
    before = tuple(first for first, _ in padding)
    return _called(
        "nn.AvgPool3d",
        said["size"],
        said["stride"],
        padding=_unless(before, (0, 0, 0)),
        count_include_pad=_unless(said["count_padding"], True),
    )


def _upsample(it: Operation) -> str:
    factor = tuple(map(float, it.attributes["factor"]))
    if it.attributes["mode"] == "nearest":
        return _called("nn.Upsample", scale_factor=factor)
    corners = it.attributes["mode"] == "corners"
    return _called("nn.Upsample", scale_factor=factor, mode="trilinear", align_corners=corners)


def _resize(it: Operation) -> str:
    mode, said = it.attributes["mode"], it.attributes
    known = {"nearest": "nearest", "nearest_exact": "nearest-exact"}.get(mode, "trilinear")
    how = {"mode": known, "align_corners": mode == "corners" if known == "trilinear" else None}
    return _called("Resize", said["ratios"], said["more"], **how)


def _norm(it: Operation) -> str:
    said, channels = it.attributes, it.channels[0]
    affine = "weight" in it.tensors
    if it.kind == "batch_norm":
        return _called(
            "nn.BatchNorm3d",
            channels,
            eps=said["epsilon"],
            momentum=said["momentum"],
            affine=_unless(affine, True),
        )
    if it.kind == "channel_norm":
        return _called(
            "ChannelNorm", channels, eps=said["epsilon"], elementwise_affine=_unless(affine, True)
        )
    if it.kind == "length_norm":
        return _called("LengthNorm", channels, said["epsilon"], affine)
    if it.kind == "response_norm":
        return _called("ResponseNorm", channels, said["epsilon"])
    if it.kind == "instance_norm":
        return _called("nn.InstanceNorm3d", channels, eps=said["epsilon"], affine=affine)
    affine_key = _unless(affine, True)
    return _called("nn.GroupNorm", said["groups"], channels, eps=said["epsilon"], affine=affine_key)


def _tanh(said: Mapping[str, Any]) -> str:
    if said["amplitude"] == said["gain"] == 1:
        return "nn.Tanh()"
    return _called("ScaledTanh", said["amplitude"], said["gain"])


def _cropped(it: Operation, values: Sequence[str]) -> str:
    cuts = (f"{before or ''}:{-after if after else ''}" for before, after in it.attributes["sides"])
    return f"{values[0]}[:, :, {', '.join(cuts)}]"


def _combined(few: int, operator: str, function: str) -> Callable[[Operation, Sequence[str]], str]:
    """Return what says an operation on several values: by its operator or
    function, or folded where they are more than a few."""

    def said(_: Operation, values: Sequence[str]) -> str:
        if len(values) > few:  # nested calls and sums have a limit in Python
            return f"reduce({function}, ({', '.join(values)}))"
        return operator.join(values) if operator else f"{function}({', '.join(values)})"

    return said


_LAYERS: Mapping[str, Callable[[Operation], str]] = {
    "pad": _pad,
    "conv": _conv,
    "conv_transpose": _conv,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "upsample": _upsample,
    "resize": _resize,
    "mean": lambda it: "SpreadMean()",
    "depth_to_space": lambda it: _called("DepthToSpace", it.attributes["factor"]),
    "dropout": lambda it: f"nn.Dropout({round(1 - it.attributes['keep'], 12)!r})",
    "bias": lambda it: f"Bias({it.channels[0]})",
    "batch_norm": _norm,
    "instance_norm": _norm,
    "group_norm": _norm,
    "channel_norm": _norm,
    "length_norm": _norm,
    "response_norm": _norm,
    "function": lambda it: _FUNCTIONS[it.attributes["function"]](it),
}
_PLAIN: Mapping[str, Callable[[Operation, Sequence[str]], str]] = {
    "crop": _cropped,
    "add": _combined(4, " + ", "torch.add"),
    "multiply": _combined(4, " * ", "torch.mul"),
    "maximum": _combined(2, "", "torch.maximum"),
    "concat": lambda it, values: f"torch.cat(({', '.join(values)}), 1)",
    "identity": lambda it, values: values[0],
}
