"""Panels of weight gradients: filters between some blocks of channels, of which one task makes the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.tensors import Tensor
from znnpy.network.types import Triple
from znnpy.plan.algorithms.winograd_tiles import new_voxels


class Panel(NamedTuple):
    """Filter gradients of a task: between blocks `sources` and `targets` of images, so some pieces in a row."""

    sources: range
    targets: range
    pieces: range


def panels_of(pieces: Sequence[Piece], blocks: int, parts: int, together: int) -> list[Panel]:
    """Return panels of all pieces: groups of outputs with all `blocks` of inputs, or one group with some of them.

    `parts`: of the inputs; `together`: pairs of blocks of outputs, 1 if there are several parts.
    """
    widths = [pieces[first].width // LANES for first in range(0, len(pieces), blocks)]
    found = []
    for first in range(0, len(widths), together):
        last = min(len(widths), first + together)
        targets = range(sum(widths[:first]), sum(widths[:last]))
        for low, high in pairwise(blocks * part // parts for part in range(parts + 1)):
            # Contiguous: either all inputs of several groups of outputs, or some inputs of one
            # group.
            own = range(first * blocks + low, (last - 1) * blocks + high)
            found.append(Panel(range(low, high), targets, own))
    return found


def shared_panels(cached: tuple[int, int], blocks: int, pairs: int, wanted: int) -> tuple[int, int]:
    """Return parts of `blocks` of inputs, and pairs of outputs together, with which there are `wanted` panels or more.

    As far as blocks and pairs allow. `cached`: the same of panels that a cache holds; `pairs`: of blocks of outputs,
    in all.
    """
    parts, together = cached
    together = max(1, min(together, pairs // wanted))
    # Several parts have one pair each.
    return (max(parts, min(blocks, -(-wanted // pairs))) if together == 1 else parts), together


def planes_of(
    gradient: Tensor, size: Triple, dilation: Triple, low: int, high: int
) -> tuple[int, int]:
    """Return the planes among which those of some tiles lie."""
    apart, new = dilation[gradient.cut], new_voxels(size)[gradient.cut]
    first, last = low // apart, -(-high // apart)
    return first * new * apart, min(gradient.extent, last * new * apart)
