"""The edge kinds that there are."""

from __future__ import annotations

from typing import Literal

from znnpy.errors import NetworkError
from znnpy.layers.convolution import CONV
from znnpy.layers.crop import CROP
from znnpy.layers.dropout import DROPOUT
from znnpy.layers.kind import EdgeKind
from znnpy.layers.maxima import MAX_FILTER, MAX_POOL

# The names once more: a misspelt one is then found by the type checker.
EdgeKindName = Literal["conv", "max_filter", "max_pool", "dropout", "crop"]
EDGE_KINDS: dict[str, EdgeKind] = {
    kind.name: kind for kind in (CONV, MAX_FILTER, MAX_POOL, DROPOUT, CROP)
}


def edge_kind(name: str) -> EdgeKind:
    """The kind of that name; NetworkError if there is none."""
    if name not in EDGE_KINDS:
        raise NetworkError(f"edge kind '{name}' is none of {', '.join(EDGE_KINDS)}")
    return EDGE_KINDS[name]
