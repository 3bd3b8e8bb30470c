"""Four U-Nets as people use them, as configs: keys, sizes, weights and samples. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.geometry import fit_input
from znnpy.network import Network, load_network, parameter_shapes
from znnpy.network.types import Triple

Arrays = Mapping[str, NDArray[np.float32]]

RSUNET = {
    "widths": [28, 36, 48, 64, 80],
    "down": [1, 2, 2],
    "stem": [1, 5, 5],
    "convs": 3,
    "first_size": [1, 3, 3],
    "block": "residual",
    "up": "linear",
    "join": "sum",
    "norm": "batch",
    "function": "elu",
    "output_size": [1, 5, 5],
    "outputs": 3,
}
UNET3D = {"widths": [32, 64, 128, 256], "norm": "batch"}
LSD = {"widths": [12, 60, 300], "padding": "valid", "outputs": 10}
NNUNET = {
    "widths": [32, 64, 128, 256, 320],
    "pool": "strided",
    "norm": "instance",
    "function": "leaky_relu",
    "bias": True,
    "outputs": 2,
    "supervise": 3,
}

KINKED = ("relu", "leaky_relu")
"""Functions whose slope jumps; that of elu does not."""


@dataclass(frozen=True)
class Net:
    """A net, its input's size (z, y, x), and a small one that shows whether results are equal.

    `compared`: the size with which gradients are compared, where float64 takes minutes with that of timing.
    """

    name: str
    keys: Mapping[str, Any]
    size: Triple
    small: Triple
    compared: Triple | None = None
    smooth: bool = False

    def smoothed(self) -> Net:
        """Its smooth twin: SiLU where it has relus, leaky or not, and the mean of a window where it has the maximum."""
        keys = dict(self.keys)
        if keys.get("function", "relu") in KINKED:
            keys["function"] = "silu"
        if keys.get("pool", "max") == "max":
            keys["pool"] = "average"
        return replace(self, keys=keys, smooth=True)

    @cached_property
    def network(self) -> Network:
        """As it is trained."""
        return load_network({"unet": dict(self.keys)})

    @cached_property
    def deployed(self) -> Network:
        """As it predicts: without the outputs that only supervise."""
        return load_network({"unet": {**self.keys, "supervise": 0}})

    def as_compared(self, *, training: bool) -> Net:
        """It with the size with which results are compared; outputs are compared as they are timed."""
        return replace(self, size=self.compared) if self.compared and training else self

    def output_shapes(self, network: Network, *, small: bool) -> dict[str, Triple]:
        """Sizes by output node."""
        return dict(fit_input(network, self.small if small else self.size).output_shapes)

    def parameters(self) -> Arrays:
        """Weights that no one would start with: every norm has work to do."""
        rng = np.random.default_rng(1)
        shapes = parameter_shapes(self.network)
        return {name: _drawn(rng, name, shape) for name, shape in shapes.items()}

    def image(self, seed: int = 0, *, small: bool) -> NDArray[np.float32]:
        """An input (1, image, z, y, x)."""
        rng = np.random.default_rng(seed)
        shape = (1, 1, *(self.small if small else self.size))
        return rng.standard_normal(shape).astype(np.float32)

    def targets(self, seed: int = 0, *, small: bool) -> Arrays:
        """A target (1, image, z, y, x) of zeros and ones for each output, the finest one's first."""
        rng = np.random.default_rng((1, seed))
        shapes = self.output_shapes(self.network, small=small)
        return {
            name: rng.integers(0, 2, (1, self.network.node(name).channels, *shapes[name])).astype(
                "f4"
            )
            for name in sorted(shapes, key=lambda name: (len(name), name))
        }


def _drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if len(shape) > 1:
        values = rng.standard_normal(shape) * np.sqrt(2 / prod(shape[1:]))
    elif name.endswith((".scale", ".running_variance")):
        values = rng.uniform(0.5, 1.5, shape)
    else:
        values = rng.normal(0, 0.1, shape)
    return values.astype(np.float32)


NETS = {
    net.name: net
    for net in (
        Net("rsunet", RSUNET, (18, 160, 160), (3, 32, 32), (18, 80, 80)),
        Net("unet3d", UNET3D, (64, 64, 64), (16, 16, 16)),
        Net("lsd", LSD, (88, 88, 88), (48, 48, 48)),
        Net("nnunet", NNUNET, (64, 64, 64), (32, 32, 32)),
    )
}
