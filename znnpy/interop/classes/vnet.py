"""MONAI's VNet: convolutions of five taps, sums around several of them."""

from __future__ import annotations

from znnpy.interop.classes.keywords import Keywords
from znnpy.interop.classes.layers import Function, Layers, Net, Norm, finished
from znnpy.interop.classes.monai_parts import function_of, told_dropout
from znnpy.interop.classes.state import State
from znnpy.interop.operators import arithmetic
from znnpy.interop.operators.value import Value

WIDTH = 16


class _VNet:
    def __init__(self, keys: Keywords, state: State) -> None:
        self.keys = keys
        self.layers = Layers(state, keys.dimensions(), keys.integer("in_channels"))
        self.bias = keys.truth("bias")
        told_dropout(self.layers, keys, "dropout_prob", "dropout_prob_down", "dropout_prob_up")

    def act(self, x: Value, name: str) -> Value:
        """Add the function; a prelu that is named alone has a slope for each channel."""
        alone = self.keys.values.get("act") == "prelu"
        function: Function | None = function_of(self.keys, "act", x.channels if alone else 1)
        return self.layers.function(x, name, function)

    def normed(self, x: Value, name: str, width: int, bias: bool) -> Value:
        """Add a convolution of five taps and its norm."""
        x = self.layers.conv(x, f"{name}.conv_block.conv", width, 5, bias=bias)
        return self.layers.norm(x, f"{name}.conv_block.adn.N", Norm("batch"))

    def steps(self, x: Value, name: str, count: int, bias: bool) -> Value:
        """Add convolutions one after the other."""
        for number in range(count):
            inner = f"{name}.ops.{number}"
            x = self.act(self.normed(x, inner, x.channels, bias), f"{inner}.act_function")
        return x

    def down(self, x: Value, name: str, count: int) -> Value:
        """Add a level."""
        layers = self.layers
        x = layers.conv(
            x, f"{name}.down_conv", 2 * x.channels, 2, stride=2, padding=0, bias=self.bias
        )
        x = self.act(layers.norm(x, f"{name}.bn1", Norm("batch")), f"{name}.act_function1")
        made = self.steps(x, name, count, self.bias)
        return self.act(layers.add(f"{name}.sum", made, x), f"{name}.act_function2")

    def up(self, x: Value, skip: Value, name: str, width: int, count: int) -> Value:
        """Add a level on the way up."""
        layers = self.layers
        x = layers.grow(x, f"{name}.up_conv", width // 2, 2, stride=2, bias=True)
        x = self.act(layers.norm(x, f"{name}.bn1", Norm("batch")), f"{name}.act_function1")
        both = layers.cat(f"{name}.cat", x, skip)
        made = self.steps(both, name, count, False)
        return self.act(layers.add(f"{name}.sum", made, both), f"{name}.act_function2")


def vnet(keys: Keywords, state: State) -> Net:
    """Return MONAI's VNet."""
    net = _VNet(keys, state)
    layers, channels = net.layers, keys.integer("in_channels")
    if WIDTH % channels:
        raise keys.wrong("in_channels", f"must divide {WIDTH}")
    first = net.normed(layers.input, "in_tr", WIDTH, net.bias)
    layers.at("in_tr.repeat")
    image = arithmetic.repeated(layers.sketch, "in_tr.repeat", layers.input, WIDTH // channels)
    skips = [net.act(layers.add("in_tr.sum", first, image), "in_tr.act_function")]
    for name, count in (("32", 1), ("64", 2), ("128", 3), ("256", 2)):
        skips.append(net.down(skips[-1], f"down_tr{name}", count))
    x = skips.pop()
    for width, count in ((256, 2), (128, 2), (64, 1), (32, 1)):
        x = net.up(x, skips.pop(), f"up_tr{width}", width, count)
    out = keys.integer("out_channels")
    x = net.act(net.normed(x, "out_tr", out, net.bias), "out_tr.act_function1")
    return finished(layers, layers.conv(x, "out_tr.conv2", out, 1, bias=True))
