"""The edge kind `identity`: passes a feature map on unchanged, as residual connections do."""

from __future__ import annotations

from znnpy.fields import Strict
from znnpy.layers.edge_kind import EdgeKind


class IdentityLayer(Strict):
    """Passes a feature map on: a residual connection where its node adds edges."""


IDENTITY = EdgeKind(
    name="identity",
    summary="Passes feature maps on, as residual connections do.",
    example="identity: {}                      # in a graph: a residual connection into a sum",
    keys=IdentityLayer,
    forward=lambda values, at: values,
    data_gradient=lambda values, gradient, at: gradient,
)
