"""Modules with the formulas and the names of classes whose packages need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def _singles(x: int, width: int, order: str, groups: int) -> nn.Sequential:
    """pytorch-3dunet's SingleConv."""
    made, now = nn.Sequential(), x
    for letter in order:
        if letter == "c":
            bias = "g" not in order and "b" not in order
            made.add_module("conv", nn.Conv3d(x, width, 3, padding=1, bias=bias))
            now = width
        elif letter == "g":
            made.add_module("groupnorm", nn.GroupNorm(groups if now >= groups else 1, now))
        elif letter == "b":
            made.add_module("batchnorm", nn.BatchNorm3d(now))
        else:
            kind = {"r": nn.ReLU(), "l": nn.LeakyReLU(), "e": nn.ELU(), "d": nn.Dropout()}[letter]
            made.add_module(letter, kind)
    return made


class _Residual(nn.Module):
    def __init__(self, x: int, width: int, order: str, groups: int, excited: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(x, width, 1) if x != width else nn.Identity()
        self.conv2 = _singles(width, width, order, groups)
        bare = order.translate({ord(letter): None for letter in "rel"})
        self.conv3 = _singles(width, width, bare, groups)
        self.last = nn.LeakyReLU(0.1) if "l" in order else nn.ELU() if "e" in order else nn.ReLU()
        if excited:
            self.se_module = nn.ModuleDict({"cSE": nn.Module(), "sSE": nn.Module()})
            self.se_module["cSE"].fc1 = nn.Linear(width, width)
            self.se_module["cSE"].fc2 = nn.Linear(width, width)
            self.se_module["sSE"].conv = nn.Conv3d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.last(self.conv3(self.conv2(x)) + x)
        if not hasattr(self, "se_module"):
            return x
        channels, voxels = self.se_module["cSE"], self.se_module["sSE"]
        gate = torch.sigmoid(channels.fc2(torch.relu(channels.fc1(x.mean((2, 3, 4))))))
        return torch.max(x * gate[:, :, None, None, None], x * torch.sigmoid(voxels.conv(x)))


class UNet3D(nn.Module):
    """pytorch-3dunet's networks: `kind` double, residual or excited; `older`: growth as in older versions."""

    def __init__(
        self, in_channels: int, out_channels: int, f_maps: Sequence[int], kind: str = "double",
        layer_order: str = "gcr", num_groups: int = 8, final_sigmoid: bool = True, is_segmentation: bool = True,
        older: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kind, self.older = kind, older
        self.last = None if not is_segmentation else "sigmoid" if final_sigmoid else "softmax"

        def block(x: int, width: int, down: bool) -> nn.Module:
            if kind != "double":
                return _Residual(x, width, layer_order, num_groups, kind == "excited")
            first = max(width // 2, x) if down else width
            found = nn.Sequential()
            found.add_module("SingleConv1", _singles(x, first, layer_order, num_groups))
            found.add_module("SingleConv2", _singles(first, width, layer_order, num_groups))
            return found

        self.encoders, self.decoders = nn.ModuleList(), nn.ModuleList()
        for x, width in zip((in_channels, *f_maps), f_maps, strict=False):
            self.encoders.append(nn.ModuleDict({"basic_module": block(x, width, True)}))
        for x, width in zip(f_maps[::-1], f_maps[-2::-1], strict=False):
            parts: dict[str, nn.Module] = {}
            if kind != "double":
                parts["upsampling"] = nn.Module()
                if older:
                    parts["upsampling"].upsample = nn.ConvTranspose3d(x, width, 3, 2, 1)
                else:
                    inner = parts["upsampling"].upsample = nn.Module()
                    inner.conv_transposed = nn.ConvTranspose3d(x, width, 3, 2, 1, bias=False)
            parts["basic_module"] = block(width if parts else x + width, width, False)
            self.decoders.append(nn.ModuleDict(parts))
        self.final_conv = nn.Conv3d(f_maps[0], out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, encoder in enumerate(self.encoders):
            x = encoder["basic_module"](functional.max_pool3d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for decoder in self.decoders:
            skip = skips.pop()
            size = skip.shape[2:]
            if self.kind == "double":
                x = torch.cat((skip, functional.interpolate(x, size)), 1)
            elif self.older:
                x = skip + decoder["upsampling"].upsample(x, size)
            else:
                inner = decoder["upsampling"].upsample
                x = skip + functional.interpolate(inner.conv_transposed(x), size)
            x = decoder["basic_module"](x)
        x = self.final_conv(x)
        if self.last is None:
            return x
        return torch.sigmoid(x) if self.last == "sigmoid" else torch.softmax(x, 1)


class TorchEm(nn.Module):
    """torch-em's AnisotropicUNet."""

    def __init__(
        self, in_channels: int, out_channels: Any, scale_factors: Sequence[Any], initial_features: int, gain: int = 2,
        norm: str | None = "InstanceNorm", final_activation: str | None = None, sides: bool = False,
        flat: Sequence[int] = (), postprocessing: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.factors, self.sides, self.largest = scale_factors, sides, bool(postprocessing)
        self.last = getattr(nn, final_activation)() if final_activation else nn.Identity()

        def normed(n: int) -> nn.Module:
            match norm:
                case "InstanceNorm":
                    return nn.InstanceNorm3d(n)
                case "InstanceNormTrackStats":
                    return nn.InstanceNorm3d(n, affine=True, track_running_stats=True)
                case "GroupNorm":
                    return nn.GroupNorm(min(32, n), n)
            return nn.BatchNorm3d(n)

        def block(x: int, width: int, size: Sequence[int] = (3, 3, 3)) -> nn.Module:
            parts: list[nn.Module] = []
            for n in (x, width):
                conv = nn.Conv3d(n, width, size, padding=[k // 2 for k in size])
                parts += [*([normed(n)] if norm else []), conv, nn.ReLU()]
            return nn.ModuleDict({"block": nn.Sequential(*parts)})

        depth = len(scale_factors)
        widths = [initial_features * gain**level for level in range(depth + 1)]
        size = flat or (3, 3, 3)
        self.encoder, self.decoder = nn.Module(), nn.Module()
        pairs = zip((in_channels, *widths), widths[:-1], strict=False)
        self.encoder.blocks = nn.ModuleList(block(x, width, size) for x, width in pairs)
        self.base = block(widths[-2], widths[-1])
        down = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.decoder.samplers = nn.ModuleList(
            nn.ModuleDict({"conv": nn.Conv3d(x, width, 1)}) for x, width in down
        )
        self.decoder.blocks = nn.ModuleList(block(2 * width, width, size) for _, width in down)
        if sides:
            self.out_conv: nn.Module = nn.ModuleList(
                nn.Conv3d(width, n, 1) for (_, width), n in zip(down, out_channels, strict=True)
            )
        else:
            self.out_conv = nn.Conv3d(widths[0], out_channels, 1)

    def forward(self, x: Tensor) -> Any:
        skips, made = [], []
        for block, factor in zip(self.encoder.blocks, self.factors, strict=True):
            skips.append(block["block"](x))
            x = functional.max_pool3d(skips[-1], factor)
        x = self.base["block"](x)
        for part, block, factor in zip(
            self.decoder.samplers, self.decoder.blocks, self.factors[::-1], strict=True
        ):
            scale = tuple(np.broadcast_to(factor, 3).astype(float).tolist())
            x = part["conv"](functional.interpolate(x, scale_factor=scale, mode="trilinear"))
            x = block["block"](torch.cat([x, skips.pop()], 1))
            made.append(x)
        if self.sides:
            return [self.last(f(y)) for f, y in zip(self.out_conv, made, strict=True)][::-1]
        x = self.last(self.out_conv(x))
        return torch.cat((x[:, :1], x[:, 1:4].amax(1, keepdim=True)), 1) if self.largest else x


class RSUNet(nn.Module):
    """DeepEM's model around emvision's RSUNet; `group` for group norm, `act` for variants that name a function."""

    def __init__(
        self,
        width: Sequence[int],
        heads: dict[str, int],
        group: int = 0,
        act: str = "",
        nested: bool = False,
    ) -> None:
        super().__init__()
        function, word = getattr(nn, act or "ReLU"), "norm_act" if act else "norm_relu"

        def before(n: int) -> nn.Sequential:
            found = nn.Sequential()
            found.add_module("norm", nn.GroupNorm(group, n) if group else nn.BatchNorm3d(n))
            found.add_module("act", function())
            return found

        def conv(x: int, n: int) -> nn.Sequential:
            found = nn.Sequential()
            found.add_module(word, before(x))
            found.add_module("conv", nn.Conv3d(x, n, 3, padding=1, bias=False))
            return found

        def block(x: int, n: int) -> nn.ModuleDict:
            inner = nn.ModuleDict({"conv1": conv(n, n), "conv2": conv(n, n)})
            return nn.ModuleDict({"pre": conv(x, n), "res": inner, "post": conv(n, n)})

        self.add_module(
            "in", nn.ModuleDict({"conv": nn.ModuleDict({"conv": self._flat(1, width[0], False)})})
        )
        core = self.core = nn.Module()
        core.iconv = block(width[0], width[0])
        core.dconvs, core.uconvs = nn.ModuleList(), nn.ModuleList()
        for x, n in pairwise(width):
            core.dconvs.append(nn.Sequential(nn.MaxPool3d((1, 2, 2)), block(x, n)))
        for x, n in zip(width[::-1], width[-2::-1], strict=False):
            fixed = nn.Module()
            ramp = torch.tensor([0.25, 0.75, 0.75, 0.25])
            fixed.register_buffer("weight", torch.outer(ramp, ramp).expand(x, 1, 1, 4, 4).clone())
            up = nn.ModuleDict({"up": nn.Sequential(fixed, nn.Conv3d(x, n, 1, bias=False))})
            core.uconvs.append(nn.ModuleDict({"up": up, "conv": block(n, n)}))
        core.final = before(width[0])
        self.out = nn.ModuleDict()
        for name, n in heads.items():
            head = nn.ModuleDict({"conv": self._flat(width[0], n, True)})
            self.out[name] = nn.Sequential(head) if nested else head

    @staticmethod
    def _flat(x: int, n: int, bias: bool) -> nn.Module:
        return nn.Conv3d(x, n, (1, 5, 5), padding=(0, 2, 2), bias=bias)

    def forward(self, x: Tensor) -> Any:
        def block(part: Any, x: Tensor) -> Tensor:
            x = part["pre"](x)
            x = part["res"]["conv2"](part["res"]["conv1"](x)) + x
            return part["post"](x)

        x = getattr(self, "in")["conv"]["conv"](x)
        x, skips = block(self.core.iconv, x), []
        for pool, part in self.core.dconvs:
            skips.append(x)
            x = block(part, pool(x))
        for part in self.core.uconvs:
            fixed, conv = part["up"]["up"]
            x = functional.conv_transpose3d(
                x, fixed.weight, None, (1, 2, 2), (0, 1, 1), groups=x.shape[1]
            )
            x = block(part["conv"], conv(x) + skips.pop())
        x = self.core.final(x)
        heads = [part[0] if isinstance(part, nn.Sequential) else part for part in self.out.values()]
        found = [head["conv"](x) for head in heads]
        return found if len(found) > 1 else found[0]


class Lsd(nn.Module):
    """funlib's UNet, with a convolution of one voxel and a sigmoid behind each way up."""

    def __init__(
        self, in_channels: int, num_fmaps: int, fmap_inc_factor: int, downsample_factors: Sequence[Sequence[int]],
        num_heads: int = 1, constant_upsample: bool = False, padding: str = "valid", out: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.factors, self.constant = downsample_factors, constant_upsample
        self.names = ["aff_head", "lsd_head"][: len(out)]
        pad = 1 if padding == "same" else 0
        self.same, widths = bool(pad), [num_fmaps * fmap_inc_factor**level for level in range(9)]

        def passed(x: int, n: int) -> nn.Module:
            conv, act = nn.Conv3d, nn.ReLU
            inner = nn.Sequential(
                conv(x, n, 3, padding=pad), act(), conv(n, n, 3, padding=pad), act()
            )
            return nn.ModuleDict({"conv_pass": inner})

        net = self.unet = nn.Module()
        depth = len(downsample_factors)
        pairs = zip((in_channels, *widths), widths[: depth + 1], strict=False)
        net.l_conv = nn.ModuleList(passed(x, n) for x, n in pairs)
        net.r_up, net.r_conv = nn.ModuleList(), nn.ModuleList()
        for _ in range(num_heads):
            net.r_up.append(nn.ModuleList())
            net.r_conv.append(nn.ModuleList())
            for level, factor in enumerate(downsample_factors):
                n, below = widths[level : level + 2]
                up = nn.Upsample(scale_factor=tuple(float(f) for f in factor))
                grown = nn.ConvTranspose3d(below, below, tuple(factor), tuple(factor))
                net.r_up[-1].append(nn.ModuleDict({"up": up if constant_upsample else grown}))
                net.r_conv[-1].append(passed(n + below, n))
        for name, n in zip(self.names, out, strict=True):
            self.add_module(
                name,
                nn.ModuleDict(
                    {"conv_pass": nn.Sequential(nn.Conv3d(widths[0], n, 1), nn.Sigmoid())}
                ),
            )

    def level(self, x: Tensor, level: int) -> list[Tensor]:
        left = self.unet.l_conv[level]["conv_pass"](x)
        if level == len(self.factors):
            return [left] * len(self.unet.r_up)
        below = self.level(functional.max_pool3d(left, tuple(self.factors[level])), level + 1)
        return [self.up(left, deep, level, head) for head, deep in enumerate(below)]

    def up(self, left: Tensor, deep: Tensor, level: int, head: int) -> Tensor:
        deep = self.unet.r_up[head][level]["up"](deep)
        if not self.same:  # tiles of outputs are to fit, whatever was pooled
            whole = np.prod(self.factors[level:], axis=0)
            pairs = zip(deep.shape[2:], whole, strict=True)
            deep = self.middle(deep, [(n - 4) // int(f) * int(f) + 4 for n, f in pairs])
        x = torch.cat((self.middle(left, deep.shape[2:]), deep), 1)
        return self.unet.r_conv[head][level]["conv_pass"](x)

    @staticmethod
    def middle(x: Tensor, size: Sequence[int]) -> Tensor:
        first = [(n - m) // 2 for n, m in zip(x.shape[2:], size, strict=True)]
        return x[(..., *(slice(a, a + m) for a, m in zip(first, size, strict=True)))]

    def forward(self, x: Tensor) -> Any:
        found = self.level(x, 0)
        if self.names:
            found = [
                getattr(self, n)["conv_pass"](y) for n, y in zip(self.names, found, strict=True)
            ]
        return found if len(found) > 1 else found[0]


class _LayerNorm(nn.Module):
    """MedNeXt's, over the channels of a voxel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        away = x - x.mean(1, keepdim=True)
        x = away / torch.sqrt(away.pow(2).mean(1, keepdim=True) + 1e-5)
        return self.weight[:, None, None, None] * x + self.bias[:, None, None, None]


class MedNeXt(nn.Module):
    """MedNeXt of version 1."""

    def __init__(
        self, in_channels: int, n_channels: int, n_classes: int, exp_r: Any = 2, enc_kernel_size: int = 3,
        dec_kernel_size: int = 5, do_res: bool = True, do_res_up_down: bool = True, deep_supervision: bool = False,
        block_counts: Sequence[int] = (1,) * 9, kernel_size: None = None, norm_type: str = "group", grn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.res, self.around, self.deep = do_res, do_res_up_down, deep_supervision
        grow = [exp_r] * 9 if isinstance(exp_r, int) else exp_r
        conv, back = nn.Conv3d, nn.ConvTranspose3d

        def block(kind: Any, x: int, n: int, r: int, k: int, step: int = 1) -> nn.ModuleDict:
            norm = _LayerNorm(x) if norm_type == "layer" else nn.GroupNorm(x, x)
            parts = {
                "conv1": kind(x, x, k, step, k // 2, groups=x), "norm": norm, "conv2": conv(x, r * x, 1),
                "conv3": conv(r * x, n, 1),
            }  # fmt: skip
            if step == 2 and do_res_up_down:
                parts["res_conv"] = kind(x, n, 1, 2)
            made = nn.ModuleDict(parts)
            if grn:
                for name in ("grn_beta", "grn_gamma"):
                    made.register_parameter(name, nn.Parameter(torch.zeros(1, r * x, 1, 1, 1)))
            return made

        def stage(place: int, n: int, k: int) -> nn.Sequential:
            return nn.Sequential(
                *(block(conv, n, n, grow[place], k) for _ in range(block_counts[place]))
            )

        self.stem = conv(in_channels, n_channels, 1)
        widths = [n_channels << level for level in range(5)]
        for level in range(4):
            n = widths[level]
            self.add_module(f"enc_block_{level}", stage(level, n, enc_kernel_size))
            self.add_module(
                f"down_{level}", block(conv, n, 2 * n, grow[level + 1], enc_kernel_size, 2)
            )
            self.add_module(
                f"up_{level}", block(back, 2 * n, n, grow[8 - level], dec_kernel_size, 2)
            )
            self.add_module(f"dec_block_{level}", stage(8 - level, n, dec_kernel_size))
        self.bottleneck = stage(4, widths[4], dec_kernel_size)
        for level in range(5 if deep_supervision else 1):
            self.add_module(
                f"out_{level}", nn.ModuleDict({"conv_out": back(widths[level], n_classes, 1)})
            )
        self.dummy_tensor = nn.Parameter(torch.ones(1))

    def inner(self, part: Any, x: Tensor) -> Tensor:
        x = functional.gelu(part["conv2"](part["norm"](part["conv1"](x))))
        if hasattr(part, "grn_gamma"):
            gx = torch.norm(x, p=2, dim=(-3, -2, -1), keepdim=True)
            nx = gx / (gx.mean(dim=1, keepdim=True) + 1e-6)
            x = part.grn_gamma * (x * nx) + part.grn_beta + x
        return part["conv3"](x)

    def stage(self, name: str, x: Tensor) -> Tensor:
        for part in getattr(self, name):
            x = self.inner(part, x) + x if self.res else self.inner(part, x)
        return x

    def forward(self, x: Tensor) -> Any:
        x, skips = self.stem(x), []
        for level in range(4):
            x = self.stage(f"enc_block_{level}", x)
            skips.append(x)
            part = getattr(self, f"down_{level}")
            x = self.inner(part, x) + (part["res_conv"](x) if self.around else 0)
        made = [self.stage("bottleneck", x)]
        for level in range(3, -1, -1):
            part, x = getattr(self, f"up_{level}"), made[-1]
            up = functional.pad(self.inner(part, x), (1, 0) * 3)
            if self.around:
                up = up + functional.pad(part["res_conv"](x), (1, 0) * 3)
            made.append(self.stage(f"dec_block_{level}", skips.pop() + up))
        levels = range(5 if self.deep else 1)
        found = [getattr(self, f"out_{level}")["conv_out"](made[4 - level]) for level in levels]
        return found if self.deep else found[0]
