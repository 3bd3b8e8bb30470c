"""Real U-Net classes, shrunk and of full width, each with the config that stands for it and what is what in both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from carried import Carried
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from peers.smooth import smooth

from znnpy.network import load_network
from znnpy.network.types import Triple

SHRUNK = (4, 6, 8)
FULL = (32, 64, 128, 256, 320)
"""Widths of nnU-Net, and of MONAI's DynUNet where none are given."""


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

    def smoothed(self) -> Real:
        """Its smooth twin: what has kinks replaced in the same net and in the config."""
        smooth(self.net)
        keys = dict(self.config.get("unet", {}))
        if not keys:  # MONAI's UNet, here with elu and strides
            return self
        keys.pop("slope", None)
        keys |= {"function": "silu"}
        if keys.get("pool", "max") == "max":
            keys |= {"pool": "average"}
        return replace(self, config={"unet": keys})


def basic_unet(norm: str, widths: tuple[int, ...], finest: int) -> Real:
    """`finest`: the width of the last level on the way up."""
    from monai.networks.nets import BasicUNet

    features = (*widths, finest)
    net = BasicUNet(3, 1, 2, features, norm=(norm, {"affine": True})).double()
    modules: dict[str, nn.Module] = {"output.conv": net.final_conv}
    down = [net.conv_0] + [getattr(net, f"down_{i}").convs for i in range(1, 5)]
    up = [getattr(net, f"upcat_{i}") for i in range(1, 5)]
    for prefix, blocks in (("down", down), ("up", [one.convs for one in up])):
        for level, block in enumerate(blocks):
            modules |= _monai(f"{prefix}{level}", [block.conv_0, block.conv_1])
    modules |= {f"up{level}.grow": one.upsample.deconv for level, one in enumerate(up)}
    keys = {
        "widths": list(widths),
        "up_widths": [finest, *widths[1:-1]],
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


def dyn_unet(residual: bool, widths: tuple[int, ...]) -> Real:
    from monai.networks.nets import DynUNet

    sizes, steps = _anisotropic(len(widths))
    supervised = len(widths) - 2
    net = DynUNet(
        3, 1, 2, sizes, steps, steps[1:], filters=widths, deep_supervision=True,
        deep_supr_num=supervised, res_block=residual,
    ).double()  # fmt: skip
    modules: dict[str, nn.Module] = {"output.conv": net.output_block.conv.conv}
    for level, head in enumerate(net.deep_supervision_heads, start=1):
        modules[f"output{level}.conv"] = head.conv.conv
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
        "widths": list(widths),
        "down": steps[1:],
        "size": sizes,
        "up_size": sizes[1:],
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "outputs": 2,
        "supervise": supervised,
    }
    if residual:
        keys |= {
            "block": {"kind": "residual", "from": "input", "add": "norm"},
            "up_block": "plain",
        }
    return Real(net, {"unet": keys}, _size(widths), modules, _turned(widths), _heads)


def _anisotropic(levels: int) -> tuple[list[list[int]], list[list[int]]]:
    """Filter sizes and strides of all levels: thick sections."""
    deeper = [[3, 3, 3]] * (levels - 1), [[2, 2, 2]] * (levels - 2)
    return [[1, 3, 3], *deeper[0]], [[1, 1, 1], [1, 2, 2], *deeper[1]]


def _size(widths: tuple[int, ...]) -> Triple:
    """An input of which the coarsest level has some voxels."""
    return (8, 16, 16) if len(widths) == 3 else (16, 32, 32)


def _turned(widths: tuple[int, ...]) -> dict[str, int]:
    """Nets that stack what comes up first."""
    return {f"up{level}.conv1": width for level, width in enumerate(widths[:-1])}


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


def plain_conv_unet(widths: tuple[int, ...]) -> Real:
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    levels, (sizes, steps) = len(widths), _anisotropic(len(widths))
    net = PlainConvUNet(
        1, levels, widths, nn.Conv3d, sizes, steps, 2, 2, 2, conv_bias=True,
        deep_supervision=True, **_nnunet(),
    ).double()  # fmt: skip
    modules = _decoder(net.decoder, 2)
    for level, stage in enumerate(net.encoder.stages):
        modules |= _stacked(f"down{level}", stage[-1].convs)
    keys = {
        "widths": list(widths),
        "size": sizes,
        "down": steps[1:],
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "bias": True,
        "outputs": 2,
        "supervise": levels - 2,
    }
    return Real(net, {"unet": keys}, _size(widths), modules, _turned(widths))


def residual_encoder_unet(widths: tuple[int, ...], blocks: tuple[int, ...]) -> Real:
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet

    levels, (sizes, steps) = len(widths), _anisotropic(len(widths))
    net = ResidualEncoderUNet(
        1, levels, widths, nn.Conv3d, sizes, steps, blocks, 2, 1, conv_bias=True,
        deep_supervision=True, **_nnunet(),
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
        "widths": list(widths),
        "size": sizes,
        "down": steps[1:],
        "stem": [1, 3, 3],
        "blocks": list(blocks),
        "block": {"kind": "residual", "from": "input", "add": "norm", "shortcut": "average"},
        "up_block": "plain",
        "up_convs": 1,
        "pool": "strided",
        "norm": "instance",
        "function": "leaky_relu",
        "bias": True,
        "outputs": 2,
        "supervise": levels - 2,
    }
    return Real(net, {"unet": keys}, _size(widths), modules, _turned(widths))


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


def monai_unet(residual: bool, widths: tuple[int, ...]) -> Real:
    """MONAI's UNet joins before it grows, so it is written out: nodes and edges."""
    from monai.networks.nets import UNet

    steps = (2,) * (len(widths) - 1)
    net = UNet(
        3, 1, 2, widths, steps, num_res_units=2 if residual else 0, act="elu",
        norm=("instance", {"affine": True}),
    ).double()  # fmt: skip
    drawn = _Drawn()
    _recursed(drawn, net.model, "input", 2, residual)
    config = {"nodes": drawn.nodes, "edges": drawn.edges}
    return Real(net, config, _size(widths), drawn.modules)


@dataclass
class _Drawn:
    """Nodes and edges of MONAI's modules."""

    nodes: dict[str, Any] = field(
        default_factory=lambda: {"input": {"kind": "input", "channels": 1}}
    )
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
        self.nodes[name] = {"kind": kind, "channels": images, **keys}
        return name

    def hand(self, source: str, to: str) -> None:
        self.edges[f"{to}.{source}"] = {"kind": "identity", "from": source, "to": to}

    def residual(self, name: str, source: str, unit: Any) -> str:
        """A ResidualUnit: what went in is added after the last function."""
        at = source
        for index, inner in enumerate(unit.conv):
            at = self.unit(f"{name}.unit{index}", at, inner)
        images = self.nodes[at]["channels"]
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
    images = drawn.nodes[at]["channels"] + drawn.nodes[below]["channels"]
    joined = drawn.node(f"{name}.join", "concat", images)
    drawn.hand(at, joined)
    drawn.hand(below, joined)
    if not residual:
        return drawn.unit(f"{name}.up", joined, up)
    return drawn.residual(f"{name}.more", drawn.unit(f"{name}.up", joined, up[0]), up[1])


Makers = Mapping[str, Callable[[], Real]]


def _classes(
    basic: tuple[tuple[int, ...], int],
    monai: tuple[int, ...],
    widths: tuple[int, ...],
    encoder: tuple[tuple[int, ...], tuple[int, ...]],
) -> Makers:
    """All classes; `basic`, `encoder`: what BasicUNet and ResidualEncoderUNet are given."""
    return {
        "UNet": partial(monai_unet, False, monai),
        "UNet, residual": partial(monai_unet, True, monai),
        "BasicUNet": partial(basic_unet, "instance", *basic),
        "BasicUNet, batch norm": partial(basic_unet, "batch", *basic),
        "DynUNet": partial(dyn_unet, False, widths),
        "DynUNet, residual": partial(dyn_unet, True, widths),
        "PlainConvUNet": partial(plain_conv_unet, widths),
        "ResidualEncoderUNet": partial(residual_encoder_unet, *encoder),
    }


REAL = _classes(((4, 4, 8, 16, 32), 6), SHRUNK, SHRUNK, ((4, 6, 6), (1, 2, 3)))
WIDE = _classes(((32, 32, 64, 128, 256), 32), (16, 32, 64, 128, 256), FULL, (FULL, (1, 2, 2, 2, 2)))
"""The widths that MONAI's classes have by default or in its tutorials, and nnU-Net plans; it has more blocks."""
