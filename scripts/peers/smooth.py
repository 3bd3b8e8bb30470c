"""Smooth twins of PyTorch modules: what has kinks replaced, all else as it is.

One voxel of a relu or a maximum that is decided by less than rounding moves gradients in float32 by 1e-3 to 1e-2. Where
nothing has a kink only rounding is left: programs that compute the same agree a hundred times as closely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

SMOOTH: Mapping[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.ReLU: lambda one: nn.SiLU(),
    nn.LeakyReLU: lambda one: nn.SiLU(),
    nn.PReLU: lambda one: nn.SiLU(),
    nn.MaxPool3d: lambda one: nn.AvgPool3d(one.kernel_size, one.stride, one.padding),
}


def smooth(module: nn.Module) -> None:
    """Put SiLU in the place of relus, the mean of a window in that of its maximum."""
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if type(child) in SMOOTH:
                setattr(parent, name, SMOOTH[type(child)](child))
