"""Strategies of the gradient sum over ranks, by name: tree, multicolor, allreduce, blocking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

StrategyName = Literal["tree", "multicolor", "allreduce", "blocking"]

KIB = 1 << 10
# Larger than any gradient, and an int64 in sums.
WHOLE = 1 << 62  # bytes: all in one message


@dataclass(frozen=True)
class Strategy:
    """One way to sum gradients over ranks.

    `chunk`: bytes of a message at most, as far as pieces of filters can be cut; `largest`: the same of layers that have
    two messages of that size for each color. `colors`: number of trees, which take chunks in turn. `doubled`: bytes of
    a layer up to which every rank adds, by recursive doubling: half the rounds, more bytes. `weights_down`:
    rank 0 alone updates the parameters and sends them, else all ranks get the sums. `fixed`: the sums have the order of
    the one tree, and so the same bits with any number of ranks; else the library adds. `whole`: nothing is sent before
    all gradients are ready.
    """

    name: StrategyName
    chunk: int
    colors: int = 1
    weights_down: bool = False
    fixed: bool = True
    whole: bool = False
    largest: int = 0
    doubled: int = 0

    def chunk_of(self, layer: int) -> int:
        """Return the bytes of a message at most, of a layer of so many bytes."""
        return max(self.chunk, min(self.largest, layer // (2 * self.colors)))

    def moves(self, rank: int) -> bool:
        """Return whether a rank updates parameters by itself."""
        return not self.weights_down or rank == 0


# In the order in which `auto` compares them: of equal estimates the first is taken.
STRATEGIES: Mapping[StrategyName, Strategy] = {
    it.name: it
    for it in (
        # Chunks: large enough that a message's own cost is small beside its bytes, small enough that the first
        # are under way while the rest is computed; a value may be given in the config. See
        # docs/design/distributed.md.
        Strategy("tree", 1024 * KIB, weights_down=True),
        # Smaller chunks than of the one tree, since trees take them in turn. As many colors as ranks send the least
        # possible (docs/design/distributed.md, *The tree*): 8 do for up to 8 ranks.
        Strategy("multicolor", 256 * KIB, colors=8, largest=1024 * KIB, doubled=64 * KIB),
        # As `tree`, for a fair comparison.
        Strategy("allreduce", 1024 * KIB, fixed=False),
        Strategy("blocking", WHOLE, fixed=False, whole=True),
    )
}


def strategy(name: StrategyName, colors: int | None = None, chunk: int | None = None) -> Strategy:
    """Return a strategy by name, with other colors or bytes of a message where it has them."""
    return adjusted(STRATEGIES[name], colors, chunk)


def adjusted(found: Strategy, colors: int | None = None, chunk: int | None = None) -> Strategy:
    """Return a strategy with other colors or bytes of a message where it has them."""
    if colors is not None and found.colors > 1:
        # `colors` is a number of trees; a strategy with one tree keeps it.
        found = replace(found, colors=colors)
    if chunk is None or found.whole:
        return found
    return replace(found, chunk=chunk, largest=chunk, doubled=min(chunk, found.doubled))
