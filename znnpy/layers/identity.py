"""The edge kind `identity`: images are passed on, to be added to others."""

from __future__ import annotations

from znnpy.fields import Strict
from znnpy.layers.edge_kind import EdgeKind


class IdentityLayer(Strict):
    """Passes images on: a residual connection where its node adds edges."""


IDENTITY = EdgeKind(
    name="identity",
    summary="Passes feature maps on, as residual connections do.",
    example="identity: {}                      # in a graph: a residual connection into a sum",
    keys=IdentityLayer,
    forward=lambda image, at: image,
    data_gradient=lambda image, gradient, at: gradient,
)
