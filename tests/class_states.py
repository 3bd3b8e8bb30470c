"""State dicts of small nets of known classes, without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from znnpy.weights.stored_tensor import Storage, Tensor


def stored(array: Any) -> Tensor:
    """An array as a file's tensor."""
    plain = np.ascontiguousarray(array, np.float32)
    raw = plain.reshape(-1).view(np.uint8)
    strides = tuple(n // 4 for n in plain.strides)
    return Tensor(Storage("a", "<f4", plain.size, lambda: raw), 0, plain.shape, strides)


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Tensors of these shapes."""
    rng = np.random.default_rng(0)
    return {name: stored(rng.standard_normal(shape)) for name, shape in shapes.items()}


VALUES = {"in_channels": 1, "out_channels": 2, "f_maps": [2, 4], "layer_order": "cr"}
SHAPES = {
    f"{block}.{part}": shape
    for block, x, y, z in (
        ("encoders.0", 1, 1, 2),
        ("encoders.1", 2, 2, 4),
        ("decoders.0", 6, 2, 2),
    )
    for part, shape in {
        "basic_module.SingleConv1.conv.weight": (y, x, 3, 3, 3),
        "basic_module.SingleConv1.conv.bias": (y,),
        "basic_module.SingleConv2.conv.weight": (z, y, 3, 3, 3),
        "basic_module.SingleConv2.conv.bias": (z,),
    }.items()
} | {"final_conv.weight": (2, 2, 1, 1, 1), "final_conv.bias": (2,)}
"""pytorch-3dunet's UNet3D with these arguments."""
