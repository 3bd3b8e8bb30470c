"""Real U-Net classes, small, each with the config that stands for it and what is what in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from carried import Carried
from torch import nn

from znnpy.network import load_network
from znnpy.network.types import Triple


@dataclass(frozen=True)
class Real:
    """A net in float64 and the same as a config; `size`: of its input, z y x."""

    net: nn.Module
    config: Mapping[str, Any]
    size: Triple
    modules: Mapping[str, nn.Module]
    turned: Mapping[str, int] = field(default_factory=dict)
    outputs: Callable[[nn.Module, torch.Tensor], list[torch.Tensor]] | None = None

    def carried(self) -> Carried:
        return Carried(load_network(self.config), self.modules, self.turned)

    def __call__(self, image: torch.Tensor) -> list[torch.Tensor]:
        """Outputs, the finest first."""
        if self.outputs is not None:
            return self.outputs(self.net, image)
        found = self.net(image)
        return found if isinstance(found, list) else [found]


def basic_unet(norm: str) -> Real:
    from monai.networks.nets import BasicUNet

    net = BasicUNet(
        in_channels=1, out_channels=2, features=(4, 4, 8, 16, 32, 6),
        norm=(norm, {"affine": True}),
    ).double()  # fmt: skip
    modules: dict[str, nn.Module] = {"output.conv": net.final_conv}
    down = [net.conv_0] + [getattr(net, f"down_{i}").convs for i in range(1, 5)]
    up = [getattr(net, f"upcat_{i}") for i in range(1, 5)]
    for prefix, blocks in (("down", down), ("up", [one.convs for one in up])):
        for level, block in enumerate(blocks):
            modules |= _monai(f"{prefix}{level}", [block.conv_0, block.conv_1])
    modules |= {f"up{level}.grow": one.upsample.deconv for level, one in enumerate(up)}
    keys = {
        "widths": [4, 4, 8, 16, 32],
        "up_widths": [6, 4, 8, 16],
        "norm": norm,
        "function": "leaky_relu",
        "slope": 0.1,
        "bias": True,
        "outputs": 2,
    }
    return Real(net, {"unet": keys}, (16, 32, 32), modules)


def _monai(prefix: str, units: list[Any]) -> dict[str, nn.Module]:
    """Convolutions and norms of some of MONAI's Convolution modules."""
    found = {}
    for index, unit in enumerate(units, start=1):
        found[f"{prefix}.conv{index}"] = unit.conv
        found[f"{prefix}.layer{index}"] = unit.adn.N
    return found


def dyn_unet(residual: bool) -> Real:
    from monai.networks.nets import DynUNet

    sizes, steps = [(1, 3, 3), (3, 3, 3), (3, 3, 3)], [(1, 1, 1), (1, 2, 2), (2, 2, 2)]
    net = DynUNet(
        3, 1, 2, sizes, steps, steps[1:], filters=[4, 6, 8], deep_supervision=True,
        deep_supr_num=1, res_block=residual,
    ).double()  # fmt: skip
    modules: dict[str, nn.Module] = {
        "output.conv": net.output_block.conv.conv,
        "output1.conv": net.deep_supervision_heads[0].conv.conv,
    }
    for level, block in enumerate([net.input_block, *net.downsamples, net.bottleneck]):
        modules |= _two(f"down{level}", block)
        if hasattr(block, "conv3"):
            modules |= {
                f"down{level}.shortcut": block.conv3.conv,
                f"down{level}.projected": block.norm3,
            }
    for level, block in enumerate(list(net.upsamples)[::-1]):
        modules |= _two(f"up{level}", block.conv_block)
        modules[f"up{level}.grow"] = block.transp_conv.conv
    keys = {
        "widths": [4, 6, 8],
        "down": [list(step) for step in steps[1:]],
        "size": [list(size) for size in sizes],
        "up_size": [list(size) for size in sizes[1:]],
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "outputs": 2,
        "supervise": 1,
    }
    if residual:
        keys |= {
            "block": {"kind": "residual", "from": "input", "add": "norm"},
            "up_block": "plain",
        }
    turned = {"up0.conv1": 4, "up1.conv1": 6}
    return Real(net, {"unet": keys}, (8, 16, 16), modules, turned, _heads)


def _two(prefix: str, block: Any) -> dict[str, nn.Module]:
    return {
        f"{prefix}.conv1": block.conv1.conv,
        f"{prefix}.layer1": block.norm1,
        f"{prefix}.conv2": block.conv2.conv,
        f"{prefix}.layer2": block.norm2,
    }


def _heads(net: Any, image: torch.Tensor) -> list[torch.Tensor]:
    """What supervises, before MONAI resizes it."""
    return [net.output_block(net.skip_layers(image)), *net.heads]


def plain_conv_unet() -> Real:
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    sizes, steps, widths = [[1, 3, 3], 3, 3], [1, [1, 2, 2], 2], [4, 6, 8]
    full = [[1, 3, 3], [3, 3, 3], [3, 3, 3]], [[1, 1, 1], [1, 2, 2], [2, 2, 2]]
    net = PlainConvUNet(
        1, 3, widths, nn.Conv3d, *full, 2, 2, 2, conv_bias=True, deep_supervision=True, **_nnunet()
    ).double()
    modules = _decoder(net.decoder, 2)
    for level, stage in enumerate(net.encoder.stages):
        modules |= _stacked(f"down{level}", stage[-1].convs)
    keys = {
        "widths": widths,
        "size": sizes,
        "down": steps[1:],
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "bias": True,
        "outputs": 2,
        "supervise": 1,
    }
    return Real(net, {"unet": keys}, (8, 16, 16), modules, {"up0.conv1": 4, "up1.conv1": 6})


def residual_encoder_unet() -> Real:
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    widths = [4, 6, 6]
    full = [[1, 3, 3], [3, 3, 3], [3, 3, 3]], [[1, 1, 1], [1, 2, 2], [2, 2, 2]]
    net = ResidualEncoderUNet(
        1, 3, widths, nn.Conv3d, *full, [1, 2, 3], 2, 1, conv_bias=True, deep_supervision=True,
        **_nnunet(),
    ).double()  # fmt: skip
    modules = _decoder(net.decoder, 1)
    stem = net.encoder.stem.convs[0]
    modules |= {"stem.conv": stem.conv, "stem.layer": stem.norm}
    for level, stage in enumerate(net.encoder.stages):
        for index, block in enumerate(stage.blocks, start=1):
            name = f"down{level}.block{index}" if level else "down0"
            modules |= _stacked(name, [block.conv1, block.conv2])
            if isinstance(block.skip, nn.Sequential) and hasattr(block.skip[-1], "conv"):
                modules[f"{name}.shortcut"] = block.skip[-1].conv
                modules[f"{name}.projected"] = block.skip[-1].norm
    keys = {
        "widths": widths,
        "size": [[1, 3, 3], 3, 3],
        "down": [[1, 2, 2], 2],
        "stem": [1, 3, 3],
        "blocks": [1, 2, 3],
        "block": {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"},
        "up_block": "plain",
        "up_convs": 1,
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "bias": True,
        "outputs": 2,
        "supervise": 1,
    }
    return Real(net, {"unet": keys}, (8, 16, 16), modules, {"up0.conv1": 4, "up1.conv1": 6})


def _nnunet() -> dict[str, Any]:
    return {
        "norm_op": nn.InstanceNorm3d,
        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
        "nonlin": nn.LeakyReLU,
        "nonlin_kwargs": {"negative_slope": 0.01},
    }


def _stacked(prefix: str, convs: Any) -> dict[str, nn.Module]:
    found = {}
    for index, one in enumerate(convs, start=1):
        found[f"{prefix}.conv{index}"] = one.conv
        found[f"{prefix}.layer{index}"] = one.norm
    return found


def _decoder(decoder: Any, convs: int) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    stages = zip(decoder.stages, decoder.transpconvs, decoder.seg_layers, strict=True)
    for level, (stage, grow, head) in enumerate(list(stages)[::-1]):
        found |= _stacked(f"up{level}", list(stage.convs)[:convs])
        found |= {f"up{level}.grow": grow, f"output{level or ''}.conv": head}
    return found


def monai_unet(residual: bool) -> Real:
    """MONAI's UNet joins before it grows, so it is written out: nodes and edges."""
    from monai.networks.nets import UNet

    widths, steps = (4, 6, 8), (2, 2)
    net = UNet(
        3, 1, 2, widths, steps, num_res_units=2 if residual else 0, act="elu",
        norm=("instance", {"affine": True}),
    ).double()  # fmt: skip
    drawn = _Drawn()
    _recursed(drawn, net.model, "input", 2, residual)
    return Real(net, {"nodes": drawn.nodes, "edges": drawn.edges}, (8, 16, 16), drawn.modules)


@dataclass
class _Drawn:
    """Nodes and edges of MONAI's modules."""

    nodes: dict[str, Any] = field(default_factory=lambda: {"input": {"kind": "input", "images": 1}})
    edges: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, nn.Module] = field(default_factory=dict)

    def unit(self, name: str, source: str, unit: Any) -> str:
        """A Convolution: its own norm and function, if it has them."""
        plain = not hasattr(unit, "adn")
        norm = {} if plain else {"norm": "instance", "bias": True, "function": "elu"}
        self.node(name, "transfer", unit.conv.out_channels, **norm)
        if not plain:
            self.modules[name] = unit.adn.N
        return self.conv(source, name, unit.conv)

    def conv(self, source: str, to: str, conv: Any) -> str:
        keys: dict[str, Any] = {"size": list(conv.kernel_size), "stride": list(conv.stride)}
        keys["padding"] = list(conv.padding)
        kind = "conv"
        if isinstance(conv, nn.ConvTranspose3d):
            kind, keys["output_padding"] = "conv_transpose", list(conv.output_padding)
        name = f"{to}.{source}"
        self.edges[name] = {"kind": kind, "from": source, "to": to, **keys}
        self.modules[name] = conv
        return to

    def node(self, name: str, kind: str, images: int, **keys: Any) -> str:
        self.nodes[name] = {"kind": kind, "images": images, **keys}
        return name

    def hand(self, source: str, to: str) -> None:
        self.edges[f"{to}.{source}"] = {"kind": "identity", "from": source, "to": to}

    def residual(self, name: str, source: str, unit: Any) -> str:
        """A ResidualUnit: what went in is added after the last function."""
        at = source
        for index, inner in enumerate(unit.conv):
            at = self.unit(f"{name}.unit{index}", at, inner)
        images = self.nodes[at]["images"]
        if isinstance(unit.residual, nn.Identity):
            self.node(name, "sum", images)
            self.hand(source, name)
        else:
            self.node(name, "transfer", images)
            self.conv(source, name, unit.residual)
        self.hand(at, name)
        return name


def _recursed(drawn: _Drawn, level: Any, source: str, outputs: int, residual: bool) -> str:
    """A level: down, what lies below stacked behind what came down, up."""
    down, skip, up = level
    name = f"level{len(drawn.nodes)}"
    make = drawn.residual if residual else drawn.unit
    at = make(f"{name}.down", source, down)
    inside = skip.submodule
    if isinstance(inside, nn.Sequential) and len(inside) == 3:
        below = _recursed(drawn, inside, at, outputs, residual)
    else:
        below = make(f"{name}.bottom", at, inside)
    images = drawn.nodes[at]["images"] + drawn.nodes[below]["images"]
    joined = drawn.node(f"{name}.join", "concat", images)
    drawn.hand(at, joined)
    drawn.hand(below, joined)
    if not residual:
        return drawn.unit(f"{name}.up", joined, up)
    return drawn.residual(f"{name}.more", drawn.unit(f"{name}.up", joined, up[0]), up[1])


REAL: dict[str, Callable[[], Real]] = {
    "UNet": lambda: monai_unet(residual=False),
    "UNet, residual": lambda: monai_unet(residual=True),
    "BasicUNet": lambda: basic_unet("instance"),
    "BasicUNet, batch norm": lambda: basic_unet("batch"),
    "DynUNet": lambda: dyn_unet(residual=False),
    "DynUNet, residual": lambda: dyn_unet(residual=True),
    "PlainConvUNet": plain_conv_unet,
    "ResidualEncoderUNet": residual_encoder_unet,
}
