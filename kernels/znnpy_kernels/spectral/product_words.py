"""What the products of all frequencies share, and how their rows are cut into register blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES


class Product(NamedTuple):
    """Argument words that the products of all frequencies share; `images` is 0 where filters are not exchanged."""

    x_tile: Any
    x_block: Any
    x_parts: Any
    w_input: Any
    w_block: Any
    y_tile: Any
    y_block: Any
    y_parts: Any
    tiles: Any
    inputs: Any
    blocks: Any
    lanes: Any
    images: Any
    accumulate: Any


@inlined
def cut(count: int, most: int) -> Any:
    """Parts of at most `most`; rows of the smallest; how many, the first ones, have one more."""
    # Parts differ by one row at most: a full one and a small rest would leave the rest waiting for its own
    # multiply-adds.
    # No tiles, no parts; `max` keeps the quotient defined.
    parts = cover(count, most)
    return parts, count // max(1, parts), count % max(1, parts)


@inlined
def lanes_before(product: Product, end: int) -> Any:
    """Lanes that hold channels in the last of the vectors before `end`."""
    return product.lanes if end == product.blocks else LANES
