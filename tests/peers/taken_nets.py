"""Small nets of real packages, and classes as people write them, each with the size of its input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carried import shuffled, tamed
from class_modules import UNet3D
from dynamic_network_architectures.architectures.unet import PlainConvUNet, ResidualEncoderUNet
from monai.networks.nets import (
    AttentionUnet,
    BasicUNet,
    DynUNet,
    HighResNet,
    SegResNet,
    SegResNetDS,
    UNet,
    VNet,
)
from torch import Tensor, nn
from torch.nn import functional

CUBE = (16, 16, 16)


class Excited(nn.Module):
    """Squeeze and excitation by linear layers, a gate of one channel (scSE), and a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, 8, 3, padding="same", bias=False)
        self.norm = nn.BatchNorm3d(8)
        self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 8)
        self.gate = nn.Conv3d(8, 1, 1)
        self.gamma = nn.Parameter(torch.ones(8))
        self.last = nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.leaky_relu_(self.norm(self.first(x)), 0.1)
        few = functional.adaptive_avg_pool3d(x, 1).flatten(1)
        channels = torch.sigmoid(self.up(torch.relu(self.down(few)))).view(-1, 8, 1, 1, 1)
        x = x * channels + functional.relu6(x) * functional.hardsigmoid(self.gate(x))
        return torch.sigmoid(self.last(x * self.gamma.view(1, -1, 1, 1, 1) * 0.5 + 1))


class Pyramid(nn.Module):
    """Atrous convolutions beside the mean over all of space (ASPP), flat, softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.wide = nn.ModuleList(nn.Conv2d(6, 4, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(16, 8, 1), nn.SiLU(), nn.Conv2d(8, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.gelu(self.first(x))
        means = functional.interpolate(
            self.whole(y), y.shape[2:], mode="bilinear", align_corners=False
        )
        y = self.last(torch.cat([*(layer(y) for layer in self.wide), means], 1))
        y = functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)
        return torch.softmax(y, 1)


class Valid(nn.Module):
    """Without padding, cropped skips, as LSD's and the first 3-D U-Net; an uneven crop and an uneven pad."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 4, 3), nn.Conv3d(4, 6, (1, 3, 3))
        self.c, self.last = nn.Conv3d(10, 5, 3, groups=5), nn.Conv3d(5, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.elu(self.a(x))
        y = functional.max_pool3d(x, (1, 2, 2))
        y = functional.interpolate(functional.hardswish(self.b(y)), scale_factor=(1, 2, 2))
        y = torch.cat([x[:, :, :, 2:-2, 2:-2], y], 1)
        y = functional.pad(self.c(y)[:, :, 1:], (1, 0, 0, 1, 2, 0))
        return self.last(-y)


class NormFirst(nn.Module):
    """Blocks of norm, convolution, function, as PanSeg's (gcr), with nearest upsampling to the skip's size."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = self.block(2, 8), self.block(8, 16), self.block(24, 8)
        self.last = nn.Conv3d(8, 1, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        groups = 1 if inputs < 8 else 8
        norm, conv = (
            nn.GroupNorm(groups, inputs),
            nn.Conv3d(inputs, outputs, 3, padding=1, bias=False),
        )
        return nn.Sequential(norm, conv, nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        skip = self.one(x)
        y = functional.interpolate(self.two(functional.max_pool3d(skip, 2)), size=skip.shape[2:])
        return torch.sigmoid(self.last(self.three(torch.cat((skip, y), dim=1))))


class Resizing(nn.Module):
    """Feature maps that shrink and grow by no whole factors, and to the size of another, by one mode."""

    def __init__(self, mode: str, corners: bool | None = None) -> None:
        super().__init__()
        self.how: dict[str, Any] = {"mode": mode, "align_corners": corners}
        self.a, self.b, self.c = (
            nn.Conv3d(1, 6, 3),
            nn.Conv3d(6, 6, 4, 2),
            nn.Conv3d(6, 6, 3, padding=1),
        )
        self.last = nn.Conv3d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.a(x))
        y = functional.interpolate(
            torch.tanh(self.b(x)), size=x.shape[2:], **self.how
        )  # 2 n + 2 of n
        few = [2 * n // 3 for n in y.shape[2:]]
        small = torch.tanh(self.c(functional.interpolate(y, size=few, **self.how)))
        return self.last(x + y + functional.interpolate(small, scale_factor=1.5, **self.how))


class Odd(nn.Module):
    """Grouped transposed filters, averages, halves of channels, the larger of two, replicated borders, two outputs."""

    def __init__(self, around: tuple[int, int, int] = (1, 0, 0)) -> None:
        super().__init__()
        self.a = nn.Conv3d(1, 8, 3, padding=1, padding_mode="replicate")
        self.b = nn.ConvTranspose3d(8, 8, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.norm = nn.InstanceNorm3d(8)
        self.c, self.d = nn.Conv3d(4, 2, (3, 1, 1), padding=around), nn.Conv3d(8, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.tanh(self.a(x))
        y = self.norm(self.b(functional.avg_pool3d(x, 3, 2, padding=1)))
        one, other = y.chunk(2, 1)
        return self.c(torch.maximum(one, other) - one / 3), self.d(
            functional.relu(torch.max(y, y * -0.5))
        )


def basic() -> nn.Module:
    return BasicUNet(3, 1, 2, (4, 4, 8, 8, 8, 4))


def plain() -> nn.Module:
    return PlainConvUNet(
        1, 3, [4, 8, 16], nn.Conv3d, 3, [1, 2, 2], 2, 3, 2, True, nn.InstanceNorm3d,
        {"eps": 1e-5, "affine": True}, None, None, nn.LeakyReLU, {},
    )  # fmt: skip


def residual() -> nn.Module:
    return ResidualEncoderUNet(
        1, 3, [4, 8, 16], nn.Conv3d, 3, [1, 2, 2], [1, 2, 2], 3, [1, 1], True, nn.BatchNorm3d, {},
        None, None, nn.LeakyReLU, {}, deep_supervision=True,
    )  # fmt: skip


Maker = tuple[Callable[[], nn.Module], tuple[int, ...]]
SIXES = (1, 8, 14, 20)
NETS: dict[str, Maker] = {
    "AttentionUnet": (lambda: AttentionUnet(3, 1, 2, (4, 8, 16), (2, 2)), (1, *CUBE)),
    "squeeze and excitation": (Excited, (1, 6, 10, 12)),
    "SegResNet": (
        lambda: SegResNet(3, 8, 1, 2, blocks_down=(1, 2, 2), blocks_up=(1, 1)), (1, *CUBE),
    ),
    "valid": (Valid, (1, 8, 20, 24)),
    "flat pyramid": (Pyramid, (3, 20, 24)),
    "norm first": (NormFirst, (2, 8, 12, 16)),
    "resized, nearest": (lambda: Resizing("nearest"), SIXES),
    "resized, linear": (lambda: Resizing("trilinear", False), SIXES),
    "resized, corners": (lambda: Resizing("trilinear", True), SIXES),
    "ResidualUNet3D": (lambda: UNet3D(1, 2, (8, 16, 24), "residual"), (1, 8, 16, 24)),
    "ResidualUNetSE3D": (lambda: UNet3D(1, 2, (8, 16, 24), "excited"), (1, 8, 16, 24)),
    "odd operators": (Odd, (1, 8, 10, 12)),
    "UNet": (lambda: UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=2), (1, *CUBE)),
    "UNet, flat": (lambda: UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=1), (1, 16, 24)),
    "UNet, relu": (
        lambda: UNet(3, 1, 2, (4, 8), (2,), num_res_units=1, act="RELU", norm="BATCH"), (1, 8, 8, 12),
    ),
    "BasicUNet": (basic, (1, 32, 32, 32)),
    "DynUNet": (
        lambda: DynUNet(3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16], res_block=True),
        (1, *CUBE),
    ),
    "SegResNet, pixel shuffle": (
        lambda: SegResNet(3, 8, 1, 2, blocks_down=(1, 2), blocks_up=(1,), upsample_mode="pixelshuffle"),
        (1, 8, 12, 8),
    ),
    "SegResNetDS": (lambda: SegResNetDS(3, 8, 1, 2, blocks_down=(1, 2, 2)), (1, *CUBE)),
    "VNet": (lambda: VNet(3, 1, 2), (1, *CUBE)),
    "HighResNet": (lambda: HighResNet(3, 1, 2), (1, 8, 8, 8)),
    "PlainConvUNet": (plain, (1, *CUBE)),
    "ResidualEncoderUNet": (residual, (1, *CUBE)),
}  # fmt: skip
LEARNED = (
    "squeeze and excitation", "valid", "norm first", "UNet", "resized, linear", "ResidualUNet3D",
)  # fmt: skip
"""Those of which an update is compared: nothing in them is shared that would not be shared here."""


def made(name: str) -> tuple[Any, Any]:
    """A net with values that no net starts with, and an image."""
    make, shape = NETS[name]
    torch.manual_seed(0)
    net = make()
    shuffled(net, 1)
    tamed(net)
    return net.eval(), torch.from_numpy(
        np.random.default_rng(2).standard_normal((1, *shape))
    ).float()


def expected(net: Any, image: Any) -> list[Any]:
    with torch.no_grad():
        found = net(image)
    arrays = [found.numpy()] if torch.is_tensor(found) else [one.numpy() for one in found]
    for array in arrays:  # a net whose relus are all 0 would be equal to anything
        assert (array.std(axis=tuple(range(2, array.ndim))) > 1e-2 * array.std()).all()
    return arrays


def exported(net: Any, image: Any, path: Path, dynamo: bool, **more: Any) -> Path:
    if dynamo:
        torch.onnx.export(net, (image,), path, dynamo=True, verbose=False, **more)
    else:
        torch.onnx.export(net, (image,), path, dynamo=False, **more)
    return path
