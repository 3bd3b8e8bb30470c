"""The registry of all edge kinds, `EDGE_KINDS`."""

from __future__ import annotations

from znnpy.errors import NetworkError
from znnpy.layers.convolution import CONV
from znnpy.layers.data_movement import CROP, DROPOUT, IDENTITY, PAD
from znnpy.layers.depth_to_space import DEPTH_TO_SPACE
from znnpy.layers.edge_kind import EdgeKind
from znnpy.layers.means import MEAN
from znnpy.layers.pooling import AVG_POOL, MAX_FILTER, MAX_POOL
from znnpy.layers.resizing import RESIZE
from znnpy.layers.transposed_convolution import CONV_TRANSPOSE
from znnpy.layers.upsampling import UPSAMPLE
from znnpy.registry import Registry

EDGE_KINDS = Registry[EdgeKind](
    "layer",
    (
        CONV,
        CONV_TRANSPOSE,
        MAX_FILTER,
        MAX_POOL,
        AVG_POOL,
        UPSAMPLE,
        IDENTITY,
        DROPOUT,
        CROP,
        PAD,
        MEAN,
        DEPTH_TO_SPACE,
        RESIZE,
    ),
)


def edge_kind(name: str) -> EdgeKind:
    """Return the edge kind of that name; NetworkError if there is none."""
    if name not in EDGE_KINDS:
        raise NetworkError(f"edge kind '{name}' is none of {', '.join(EDGE_KINDS)}")
    return EDGE_KINDS[name]
