"""emvision's RSUNet in DeepEM: blocks that begin with norm and function, growth by filters that do not learn."""

from __future__ import annotations

import re

from znnpy.errors import ModelFileError
from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, finished
from znnpy.interop.classes.state import State
from znnpy.interop.operators.value import Value

_FUNCTIONS = {
    "ReLU": Function("relu"),
    "ELU": Function("elu", 1.0),
    "LeakyReLU": Function("leaky_relu", 0.01),
}
_HEAD = re.compile(r"(out\.[^.]+(?:\.0)?\.conv)\.weight")
STEP = (1, 2, 2)


class _Blocks:
    def __init__(self, keys: Keywords, layers: Layers, core: str) -> None:
        self.layers, self.core, self.group = layers, core, keys.values["group"]
        function = _FUNCTIONS.get(keys.text("act"))
        if function is None:
            raise keys.wrong("act", f"must be one of {', '.join(_FUNCTIONS)}")
        self.function = function
        self.tracked = bool([n for n in layers.state.tensors if n.endswith("running_mean")])
        if not self.tracked and not (type(self.group) is int and self.group > 0):
            raise keys.wrong(
                "group", "must be the number of groups: the norms have no running statistics"
            )

    def before(self, x: Value, name: str) -> Value:
        """Add norm and function."""
        inner = f"{name}.norm" if f"{name}.norm.weight" in self.layers.state else name
        norm = Norm("batch") if self.tracked else Norm("group", groups=self.group)
        return self.layers.function(self.layers.norm(x, inner, norm), f"{name}.act", self.function)

    def conv(self, x: Value, name: str, width: int) -> Value:
        """Add norm, function and convolution."""
        first = "norm_act" if self.layers.state.below(f"{name}.norm_act.") else "norm_relu"
        return self.layers.conv(self.before(x, f"{name}.{first}"), f"{name}.conv", width, 3)

    def block(self, x: Value, name: str, width: int) -> Value:
        """Add a convolution, a residual block and another convolution."""
        x = self.conv(x, f"{name}.pre", width)
        made = self.conv(self.conv(x, f"{name}.res.conv1", width), f"{name}.res.conv2", width)
        return self.conv(self.layers.add(f"{name}.res.sum", made, x), f"{name}.post", width)

    def up(self, x: Value, skip: Value, name: str, width: int) -> Value:
        """Add a level on the way up: grown by fixed filters, as many channels as the skip, the sum, a block."""
        x = self.layers.grow(
            x, f"{name}.up.up.0", x.channels, [1, 4, 4], stride=list(STEP), padding=[0, 1, 1], groups=x.channels,
            learns=False,
        )  # fmt: skip
        x = self.layers.conv(x, f"{name}.up.up.1", width, 1)
        return self.block(self.layers.add(f"{name}.up.sum", x, skip), f"{name}.conv", width)


def rsunet(keys: Keywords, state: State) -> Net:
    """Return RSUNet, by itself or within DeepEM's model; widths and outputs are those of its tensors."""
    core = "core." if state.below("core.") else ""
    widths = _widths(state, core)
    entry = "in.conv.conv" if "in.conv.conv.weight" in state else None
    shape = state.shape(f"{entry}.weight") if entry else (widths[0], widths[0], 1, 1, 1)
    if len(shape) != 5:
        raise ModelFileError(
            f"{state.where}: {entry}.weight has shape {shape}, no filters of three dimensions"
        )
    layers = Layers(state, 3, shape[1])
    x = layers.input
    if entry:
        x = layers.conv(x, entry, shape[0], list(shape[2:]))
    blocks, skips = _Blocks(keys, layers, core), list[Value]()
    x = blocks.block(x, f"{core}iconv", widths[0])
    for level, width in enumerate(widths[1:]):
        skips.append(x)
        x = layers.pool(x, f"{core}dconvs.{level}.0", "max_pool", list(STEP))
        x = blocks.block(x, f"{core}dconvs.{level}.1", width)
    for number, width in enumerate(widths[-2::-1]):
        x = blocks.up(x, skips.pop(), f"{core}uconvs.{number}", width)
    x = blocks.before(x, f"{core}final")
    return finished(layers, _heads(layers, state, x) or x)


def _widths(state: State, core: str) -> list[int]:
    """Return channels by level, of the first filters of each."""
    found = [state.shape(f"{core}iconv.pre.conv.weight")[0]]
    while f"{core}dconvs.{len(found) - 1}.1.pre.conv.weight" in state:
        found.append(state.shape(f"{core}dconvs.{len(found) - 1}.1.pre.conv.weight")[0])
    return found


def _heads(layers: Layers, state: State, x: Value) -> list[Value]:
    names = [match[1] for name in state.tensors if (match := _HEAD.fullmatch(name))]
    found = []
    for name in names:
        shape = state.shape(f"{name}.weight")
        if len(shape) != 5:
            raise ModelFileError(
                f"{state.where}: {name}.weight has shape {shape}, no filters of three dimensions"
            )
        found.append(layers.conv(x, name, shape[0], list(shape[2:]), bias=f"{name}.bias" in state))
    return found
