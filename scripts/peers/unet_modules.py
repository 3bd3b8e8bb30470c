"""The U-Nets of `unet_nets` in PyTorch, as their users write them.

The modules are named as znnpy names nodes and edges, so that `load` carries weights over by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from peers.smooth import smooth
from peers.unet_nets import LSD, NNUNET, RSUNET, UNET3D, Arrays, Net
from znnpy.network import Network
from znnpy.network.types import Triple


class Block(nn.Module):
    """Convolutions `conv1`, `conv2` ..., each with its norm `layer1` ... (if any) and function."""

    def __init__(self, images: int, width: int, sizes: list[Triple], stride: int = 1, **keys: Any):
        super().__init__()
        self.count, self.function = len(sizes), keys["function"]
        self.residual = keys.get("residual", False)
        for index, size in enumerate(sizes, start=1):
            padding = tuple(taps // 2 for taps in size) if keys.get("padded", True) else 0
            conv = nn.Conv3d(images, width, size, stride, padding, bias=keys["bias"])
            self.add_module(f"conv{index}", conv)
            self.add_module(f"layer{index}", keys["norm"](width))
            images, stride = width, 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = self.layer(1, x)
        for index in range(2, self.count + 1):
            x = self.layer(index, x, first if self.residual and index == self.count else None)
        return x

    def layer(self, index: int, x: torch.Tensor, more: torch.Tensor | None = None) -> torch.Tensor:
        x = getattr(self, f"conv{index}")(x)
        x = x if more is None else x + more
        return self.function(getattr(self, f"layer{index}")(x))


class RSUNet(nn.Module):
    """Lee et al. 2017, with 1x3x3 filters where a block begins."""

    def __init__(self) -> None:
        super().__init__()
        widths = RSUNET["widths"]
        keys = {"function": nn.ELU(), "norm": nn.BatchNorm3d, "bias": False, "residual": True}
        sizes = [(1, 3, 3), (3, 3, 3), (3, 3, 3)]
        self.stem = Named(conv=nn.Conv3d(1, widths[0], (1, 5, 5), padding=(0, 2, 2), bias=False))
        self.stem.layer = nn.BatchNorm3d(widths[0])
        self.function, self.pool = nn.ELU(), nn.MaxPool3d((1, 2, 2))
        before = [widths[0], *widths[:-1]]
        for level, (images, width) in enumerate(zip(before, widths, strict=True)):
            self.add_module(f"down{level}", Block(images, width, sizes, **keys))
        for level, (width, below) in enumerate(pairwise(widths)):
            block = Block(width, width, sizes, **keys)
            block.narrow = nn.Conv3d(below, width, 1, bias=False)
            block.join = nn.BatchNorm3d(width)
            self.add_module(f"up{level}", block)
        self.grow = nn.Upsample(scale_factor=(1, 2, 2), mode="trilinear", align_corners=False)
        self.output = Named(conv=nn.Conv3d(widths[0], 3, (1, 5, 5), padding=(0, 2, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.function(self.stem.layer(self.stem.conv(x)))
        skips = []
        for level in range(5):
            x = getattr(self, f"down{level}")(self.pool(x) if level else x)
            skips.append(x)
        for level in reversed(range(4)):
            up = getattr(self, f"up{level}")
            x = up(self.function(up.join(up.narrow(self.grow(x)) + skips[level])))
        return self.output.conv(x)


class Concatenating(nn.Module):
    """U-Nets that stack what came down before what a transposed convolution makes grow."""

    def __init__(
        self,
        widths: list[int],
        outputs: int,
        *,
        strided: bool = False,
        supervise: int = 0,
        **keys: Any,
    ) -> None:
        super().__init__()
        self.levels, self.supervise = len(widths), supervise
        self.padded = keys.get("padded", True)
        sizes = [(3, 3, 3), (3, 3, 3)]
        self.pool = nn.Identity() if strided else nn.MaxPool3d(2)
        images = 1
        for level, width in enumerate(widths):
            stride = 2 if strided and level else 1
            self.add_module(f"down{level}", Block(images, width, sizes, stride, **keys))
            images = width
        for level, (width, below) in enumerate(pairwise(widths)):
            block = Block(2 * width, width, sizes, **keys)
            block.grow = nn.ConvTranspose3d(below, width, 2, 2, bias=keys["bias"])
            self.add_module(f"up{level}", block)
            if level <= supervise:
                head = nn.Conv3d(width, outputs, 1)
                self.add_module(f"output{level or ''}", Named(conv=head))

    def forward(self, x: torch.Tensor) -> Any:
        skips, outputs = [], []
        for level in range(self.levels):
            x = getattr(self, f"down{level}")(self.pool(x) if level else x)
            skips.append(x)
        for level in reversed(range(self.levels - 1)):
            up = getattr(self, f"up{level}")
            x = up.grow(x)
            skip = skips[level] if self.padded else _centre(skips[level], x)
            x = up(torch.cat([skip, x], dim=1))
            if level == 0 or (level <= self.supervise and self.training):
                outputs.insert(0, getattr(self, f"output{level or ''}").conv(x))
        return outputs if len(outputs) > 1 else outputs[0]


class Named(nn.Module):
    """Modules by name, where znnpy's names have a dot."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def _centre(image: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    z, y, x = ((a - b) // 2 for a, b in zip(image.shape[2:], like.shape[2:], strict=True))
    depth, height, width = like.shape[2:]
    return image[:, :, z : z + depth, y : y + height, x : x + width]


def _without(width: int) -> nn.Module:
    return nn.Identity()


def _unet3d() -> nn.Module:
    keys = {"function": nn.ReLU(), "norm": nn.BatchNorm3d, "bias": False}
    return Concatenating(UNET3D["widths"], 1, **keys)


def _lsd() -> nn.Module:
    keys = {"function": nn.ReLU(), "norm": _without, "bias": True, "padded": False}
    return Concatenating(LSD["widths"], LSD["outputs"], **keys)


def _nnunet() -> nn.Module:
    keys = {"function": nn.LeakyReLU(0.01), "norm": _affine_instance, "bias": True}
    return Concatenating(NNUNET["widths"], NNUNET["outputs"], strided=True, supervise=3, **keys)


def _affine_instance(width: int) -> nn.Module:
    return nn.InstanceNorm3d(width, affine=True)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "rsunet": RSUNet,
    "unet3d": _unet3d,
    "lsd": _lsd,
    "nnunet": _nnunet,
}


def made(net: Net) -> nn.Module:
    """The module of a net, or of its smooth twin."""
    module = MODULES[net.name]()
    if net.smooth:
        smooth(module)
    return module


NORMS = {
    "scale": "weight",
    "shift": "bias",
    "running_mean": "running_mean",
    "running_variance": "running_var",
}


def key_of(network: Network, name: str) -> str:
    """A module's name of an array of znnpy's: `EDGE.weight`, `EDGE.bias`; a norm's are `NODE.weight` ..."""
    node, _, part = name.rpartition(".")
    if part in NORMS:
        return f"{node}.{NORMS[part]}"
    if any(edge.name == name for edge in network.edges):
        return f"{name}.weight"
    leading = [edge.name for edge in network.incoming(name) if edge.kind.startswith("conv")]
    return f"{leading[0]}.bias"


def swapped(network: Network, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array with the axes that PyTorch's filters have, or back: transposed ones begin (in, out)."""
    grows = any(edge.name == name and edge.kind == "conv_transpose" for edge in network.edges)
    return np.swapaxes(array, 0, 1) if grows else array


def load(module: nn.Module, network: Network, parameters: Arrays) -> None:
    """Give a module znnpy's arrays."""
    state = {
        key_of(network, name): torch.from_numpy(swapped(network, name, np.array(value)).copy())
        for name, value in parameters.items()
    }
    missing, unknown = module.load_state_dict(state, strict=False)
    left = [key for key in missing if not key.endswith("num_batches_tracked")]
    if left or unknown:
        raise SystemExit(f"the module has other arrays: {left} are missing, {unknown} unknown")


def gradients(module: nn.Module, network: Network, names: Iterable[str]) -> Arrays:
    """Gradients by znnpy's names."""
    named = dict(module.named_parameters())
    found = {}
    for name in names:
        if (key := key_of(network, name)) in named:
            found[name] = swapped(network, name, named[key].grad.numpy()).copy()
    return found
