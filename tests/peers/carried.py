"""Weights and gradients between a PyTorch net and the config that stands for it, by a list of what is what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from znnpy.network.types import Network

Arrays = dict[str, NDArray[np.float64]]
PARTS = {
    "scale": "weight",
    "shift": "bias",
    "running_mean": "running_mean",
    "running_variance": "running_var",
}


@dataclass(frozen=True)
class Carried:
    """`modules`: convolutions by edge, norms and PReLUs by node. `turned`: by edge, how many images of its
    concat the net stacks first which znnpy stacks last."""

    network: Network
    modules: Mapping[str, nn.Module]
    turned: Mapping[str, int] = field(default_factory=dict)

    def parameters(self) -> Arrays:
        """The net's values by znnpy's names."""
        return self._arrays("data")

    def gradients(self) -> Arrays:
        """The net's gradients by znnpy's names."""
        return self._arrays("grad")

    def _arrays(self, what: str) -> Arrays:
        found = {}
        for name, module in self.modules.items():
            for key, tensor in self._tensors(name, module).items():
                if tensor is not None and (value := getattr(tensor, what)) is not None:
                    found[key] = self._ordered(key, value.detach().double().numpy())
        return found

    def _tensors(self, name: str, module: nn.Module) -> dict[str, torch.Tensor | None]:
        if isinstance(module, nn.PReLU):
            return {f"{name}.slopes": module.weight}
        edges = [edge for edge in self.network.edges if edge.name == name]
        if edges:
            return {name: module.weight, edges[0].target: module.bias}
        return {f"{name}.{part}": getattr(module, key) for part, key in PARTS.items()}

    def _ordered(self, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(self.modules.get(name), nn.ConvTranspose3d):
            value = value.swapaxes(0, 1)
        if name in self.turned:
            value = np.roll(value, -self.turned[name], axis=1)
        return np.array(value)


def shuffled(net: nn.Module, seed: int) -> None:
    """Values that no net starts with, so that norms and biases have work to do."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
            if tensor.dtype.is_floating_point:
                noise = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype)
                positive = "var" in name or tensor.ndim == 1
                around = any(word in name for word in ("bias", "mean"))  # zero: relus stay alive
                tensor.copy_(0.5 + noise if positive and not around else (noise - 0.5) / 2)


def tamed(net: nn.Module) -> None:
    """Filters of many taps made smaller, so that images do not grow from layer to layer."""
    with torch.no_grad():
        for tensor in net.parameters():
            if tensor.ndim > 1:
                tensor *= min(1.0, (48 / tensor[0].numel()) ** 0.5)
