"""The edge kind `depth_to_space`: neighbouring channels become the voxels of a block (pixel shuffle), in float64."""

from __future__ import annotations

from math import prod

from pydantic import Field

from znnpy.fields import Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.sizes import AllSizes, Spreads
from znnpy.layers.types import Array, Numbers, Triple


class DepthToSpaceLayer(Strict):
    """Feature maps grow by whole factors: as many neighbouring channels are the voxels of a block, x fastest."""

    factor: Size3 = Field(
        description="Factor by which feature maps grow, z y x; one number is for all."
    )


def spread_out(values: Array, at: Applied) -> Array:
    """Return channel c at voxel (z, y, x) from channel (c, z % f, y % f, x % f) of the source."""
    batch, channels, z, y, x = values.shape
    a, b, c = at.edge.factor
    parts = values.reshape(batch, channels // (a * b * c), a, b, c, z, y, x)
    return parts.transpose(0, 1, 5, 2, 6, 3, 7, 4).reshape(batch, -1, z * a, y * b, x * c)


def spread_out_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `spread_out`: each number goes back to where it was."""
    batch, channels, z, y, x = values.shape
    a, b, c = at.edge.factor
    parts = gradient.reshape(batch, channels // (a * b * c), z, a, y, b, x, c)
    return parts.transpose(0, 1, 3, 5, 7, 2, 4, 6).reshape(values.shape)


def _sizes(edge: Numbers, dilation: Triple) -> AllSizes:
    z, y, x = (Spreads(factor, factor) for factor in edge.factor)
    return z, y, x


DEPTH_TO_SPACE = EdgeKind(
    name="depth_to_space",
    summary="Channels become voxels of blocks (pixel shuffle). In short: the factor.",
    example="depth_to_space: 2                 # eight times fewer channels; or in full, {factor: [1, 2, 2]}",
    keys=DepthToSpaceLayer,
    short=("factor", (int, float, list, tuple)),
    forward=spread_out,
    data_gradient=spread_out_gradient,
    sizes=_sizes,
    channels=lambda edge, inputs: inputs // prod(edge.factor),
)
